"""`ps_trainer check_model`, which only the launcher calls: builds a model once, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import run_main
from ps_trainer.cli.component_options import CheckFlags
from ps_trainer.cli.help import CommandHelp
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE
from ps_trainer.launch.trial_build import COMMAND, WARNING

HELP = CommandHelp(
    usage=(f"ps_trainer {COMMAND} [flags]",),
    text="Builds a run's model on a batch of its dataset, without starting a task.",
    flags=(CheckFlags, TrainConfig),
)


def main_check_model(argv: Sequence[str]) -> int:
    """Checks the model that the training flags in `argv` name; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, CheckFlags, TrainConfig)
    cluster, config = parsed.groups

    # The launcher forks this process from one that has imported TensorFlow, with the environment set before.
    from ps_trainer.training import components, model_defaults

    config = model_defaults.completed(config, parsed.given, cluster.num_workers).config
    advice = components.advice(components.load(config, cluster.num_workers))
    if advice is not None:
        print(f"{WARNING}{advice}", flush=True)
    return EXIT_DONE
