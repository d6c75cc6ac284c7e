"""`ps_trainer check_model`, which only the launcher calls: checks a run's components before `local` starts a task.

The options of a component are declared beside its TensorFlow code, which the launcher has not imported. So a child
process makes the check: one that the fork server forks (`ps_trainer.launch.trial_build`), or without a fork server a
fresh one, unless the launcher has TensorFlow in memory.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Collection, Sequence

from ps_trainer import component_tables
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.config import COLOCATED, MODEL_PARALLEL, TrainConfig
from ps_trainer.errors import EXIT_DONE, EXIT_USAGE, UsageError
from ps_trainer.launch.trial_build import COMMAND, ERROR, NO_GPU, WARNING, may_be_rejected, needs_model
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckFlags:
    """The cluster that the components must fit."""

    num_workers: int = option(2, "worker tasks, including the chief", least=1)


HELP = CommandHelp(
    usage=(f"ps_trainer {COMMAND} [flags]",),
    text="Checks the options of a run's components, and builds a model of the user's own, without starting a task.",
    flags=(CheckFlags, TrainConfig),
)


def main_check_model(argv: Sequence[str]) -> int:
    """Checks the components that the training flags in `argv` name; returns the exit code."""
    return run_main(lambda: _run(argv))


def check_without_fork_server(config: TrainConfig, train_args: Sequence[str], num_workers: int) -> None:
    """Checks the options of all components. Imports nothing for a run whose settings cannot be wrong.

    Under `--placement=model_parallel` the check also builds the model, to compare its stages with the cluster.

    Args:
        config: Settings of the run.
        train_args: Flags with the same settings.
        num_workers: Number of workers in the cluster.

    Raises:
        UsageError: A name or an option is unknown. An option has a wrong value, or does not fit the cluster. Settings
            exclude each other. `init_from` names no checkpoint. The dataset needs a folder of files, and there is none.
    """
    if not may_be_rejected(config, num_workers):
        return
    if "tensorflow" in sys.modules and config.placement != MODEL_PARALLEL:
        _check(config, num_workers, {arg.removeprefix("--").partition("=")[0] for arg in train_args})
        return
    done = subprocess.run(
        [sys.executable, "-m", "ps_trainer", COMMAND, f"--num_workers={num_workers}", *train_args],
        env={**os.environ, **NO_GPU},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    # Any other failure, such as an import error in the user's model, is in the log of the tasks, with its traceback.
    if done.returncode == EXIT_USAGE:
        raise UsageError(done.stderr.strip().splitlines()[-1].removeprefix(ERROR))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, CheckFlags, TrainConfig)
    cluster, config = parsed.groups
    builds = config.has_own_class or config.placement == MODEL_PARALLEL
    advice = _check(config, cluster.num_workers, parsed.given, builds=builds)
    if advice is not None:
        print(f"{WARNING}{advice}", flush=True)
    return EXIT_DONE


def _check(config: TrainConfig, num_workers: int, given: Collection[str], *, builds: bool = False) -> str | None:
    """Checks the components, with `builds` also the built model; returns the advice about it."""
    with importing_tensorflow():
        from ps_trainer.checkpoints import warm_start
        from ps_trainer.training import components, model_defaults

    if config.init_from is not None:
        warm_start.find(config.init_from)
    if builds or needs_model(config):
        config = model_defaults.fill_in_defaults(config, given, num_workers).config
    components.check_options(config, num_workers)
    layout_options = component_tables.LAYOUTS.parse_options(config.layout, config.layout_option)
    components.check_shares(layout_options, is_colocated=config.placement == COLOCATED)
    if not builds:
        return None
    config = dataclasses.replace(config, logdir=None)  # a check leaves nothing in the run's folder
    return components.advice(components.load(config, num_workers))
