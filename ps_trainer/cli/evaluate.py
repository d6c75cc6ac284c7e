"""`python -m ps_trainer evaluate`: computes the test metrics of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import run_main
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig

_USAGE = """python -m ps_trainer evaluate --logdir=DIR [flags]

Computes the test metrics of the latest checkpoint. The command takes model, dataset and their options from the
run's config.json unless the flags give them."""


def main_evaluate(argv: Sequence[str]) -> int:
    """Evaluates the latest checkpoint; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, _USAGE, CheckpointFlags, TrainConfig)
    checkpoint_flags, config = parsed.groups
    config, checkpoint_dir = run_lookup.find(checkpoint_flags, config, parsed.given)
    run_lookup.start()

    from ps_trainer.training import evaluator

    return evaluator.main(config, checkpoint_dir=checkpoint_dir)
