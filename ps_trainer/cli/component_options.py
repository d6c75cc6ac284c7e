"""Checks a run's components, their options and the folder of the data before `local` starts anything.

python -m ps_trainer.cli.component_options --num_workers=N [training flags]

The options of a component are declared beside its TensorFlow code. The launcher has not imported TensorFlow, so a
child process makes the check. A launcher that was forked with TensorFlow in memory makes it itself.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Collection, Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.config import MODEL_PARALLEL, TrainConfig
from ps_trainer.errors import EXIT_DONE, EXIT_USAGE, UsageError
from ps_trainer.options import option

_MODULE = "ps_trainer.cli.component_options"
_PREFIX = "error: "  # the start of the line in which `run_main` prints an error


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """The cluster that the components must fit."""

    num_workers: int = option(2, "worker tasks, including the chief", least=1)


_HELP = CommandHelp(
    usage=(f"python -m {_MODULE} [flags]",),
    text="Checks the options of a run's components, without reading data or starting a task.",
    flags=(CheckFlags, TrainConfig),
)


def check(config: TrainConfig, train_args: Sequence[str], num_workers: int) -> None:
    """Checks all components. Imports nothing for a run whose settings cannot be wrong.

    Under `--placement=model_parallel` the check also builds the model, to compare its stages with the cluster.

    Args:
        config: Settings of the run.
        train_args: Flags with the same settings.
        num_workers: Number of workers in the cluster.

    Raises:
        UsageError: An option is unknown, has a wrong value or does not fit the cluster, a name is unknown, settings
            exclude each other, `init_from` names no checkpoint, or the dataset needs a folder of files and there is
            none.
    """
    if not may_be_rejected(config, num_workers):
        return
    if "tensorflow" in sys.modules and config.placement != MODEL_PARALLEL:
        _check_here(config, num_workers, {arg.removeprefix("--").partition("=")[0] for arg in train_args})
        return
    command = [sys.executable, "-m", _MODULE, f"--num_workers={num_workers}", *train_args]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    # Any other failure, such as an import error in the user's model, is in the log of the tasks, with its traceback.
    if done.returncode == EXIT_USAGE:
        raise UsageError(done.stderr.strip().splitlines()[-1].removeprefix(_PREFIX))


def may_be_rejected(config: TrainConfig, num_workers: int) -> bool:
    """Whether `check` may find something; the answer needs no TensorFlow.

    An update rule or optimizer without options goes with the defaults of all other settings.
    """
    has_optimizer = config.optimizer != TrainConfig.optimizer or bool(config.optimizer_for)
    has_rule = config.update != TrainConfig.update
    return (
        _has_options(config)
        or bool(config.gradient_transform)
        or (has_rule and (has_optimizer or num_workers == 1))
        or config.steps_per_call > 1
        or config.init_from is not None
        or config.lacks_data_dir
        or _needs_model(config)
    )


def main(argv: Sequence[str]) -> int:
    """Checks the options that the training flags in `argv` give; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, _HELP, CheckFlags, TrainConfig)
    cluster, config = parsed.groups
    _check_here(config, cluster.num_workers, parsed.given)
    return EXIT_DONE


def _needs_model(config: TrainConfig) -> bool:
    """Whether the check needs the model, for its stages, its default batch size or its preset."""
    return config.placement == MODEL_PARALLEL or config.devices_per_worker > 1 or config.preset is not None


def _has_options(config: TrainConfig) -> bool:
    """Whether the run gives any component an option; the defaults need no check."""
    names = [field.name for field in dataclasses.fields(config) if field.name.endswith("_option")]
    return any(":" in text for text in config.optimizer_for) or any(getattr(config, name) for name in names)


def _check_here(config: TrainConfig, num_workers: int, given: Collection[str] = ()) -> None:
    with importing_tensorflow():
        from ps_trainer.training import components, warm_start
    if config.init_from is not None:
        warm_start.find(config.init_from)
    if _needs_model(config):
        from ps_trainer.training import model_defaults

        config = model_defaults.completed(config, given, num_workers).config
    if config.placement == MODEL_PARALLEL:
        components.load(config, num_workers)
    else:
        components.check_options(config, num_workers)


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a check needs no GPU
    sys.exit(main(sys.argv))
