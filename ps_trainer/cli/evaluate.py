"""`ps_trainer evaluate`: computes the test metrics of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig

HELP = CommandHelp(
    usage=("ps_trainer evaluate --logdir=DIR [flags]",),
    text="""Computes the test metrics of the latest checkpoint. The command takes model, dataset and their
options from the run's config.json unless the flags give them. It also accepts the other
settings of a run, which change nothing.""",
    examples=(
        ("ps_trainer evaluate --logdir=runs/a", "the test metrics of a run"),
        ("ps_trainer evaluate --logdir=runs/a --data_dir=/data/mnist", "the same, with the data in another folder"),
    ),
    flags=(CheckpointFlags, TrainConfig),
    common=("eval_examples", *run_lookup.COMMON_FLAGS),
    shows_only_common=True,
    own_texts={
        **run_lookup.OWN_TEXTS,
        "eval_examples": "number of test examples, spread over all of them; default: all",
    },
)


def main_evaluate(argv: Sequence[str]) -> int:
    """Evaluates the latest checkpoint; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, CheckpointFlags, TrainConfig)
    checkpoint_flags, config = parsed.groups
    config, checkpoint_dir = run_lookup.find(checkpoint_flags, config, parsed.given)
    run_lookup.start()

    with importing_tensorflow():
        from ps_trainer.training import evaluator

    return evaluator.main(config, checkpoint_dir=checkpoint_dir)
