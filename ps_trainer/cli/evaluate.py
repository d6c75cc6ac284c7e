"""`python -m ps_trainer evaluate`: the test metrics of a checkpoint."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.run import quiet_tensorflow, run_main, start_logging
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError
from ps_trainer.options import option

_USAGE = """python -m ps_trainer evaluate --logdir=DIR --model=NAME --dataset=NAME [flags]

Computes the test metrics of the latest checkpoint. Model, dataset and their options must be those of training."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateFlags:
    """What to evaluate."""

    checkpoint_dir: str | None = option(None, "folder of the checkpoints; none = <logdir>/checkpoints")


def main_evaluate(argv: Sequence[str]) -> int:
    """Evaluates the latest checkpoint; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    evaluate_flags, config = flags_lib.parse(argv, _USAGE, EvaluateFlags, TrainConfig).groups
    config.check()
    checkpoint_dir = _checkpoint_dir(evaluate_flags.checkpoint_dir, config)
    start_logging()
    quiet_tensorflow()

    from ps_trainer.runtime import environment

    environment.prepare(is_ps=False)

    from ps_trainer.training import evaluator

    return evaluator.main(config, checkpoint_dir=checkpoint_dir)


def _checkpoint_dir(given: str | None, config: TrainConfig) -> pathlib.Path:
    path = pathlib.Path(given) if given else config.checkpoint_dir
    if path is None:
        raise CheckpointError("nothing to evaluate: give --logdir of the run, or --checkpoint_dir")
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder; give --logdir or --checkpoint_dir of a run that has saved")
    return path
