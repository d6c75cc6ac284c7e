"""`python -m ps_trainer local`: a whole cluster on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.run import run_main
from ps_trainer.config import TrainConfig
from ps_trainer.options import option

_USAGE = """python -m ps_trainer local --num_ps=1 --num_workers=2 [flags]

Starts ps tasks and workers on this machine, shows their progress, and ends when training is done."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalFlags:
    """What to start, and how to show it."""

    num_ps: int = option(1, "ps tasks")
    num_workers: int = option(2, "worker tasks, the chief among them")
    num_evaluators: int = option(0, "1 = evaluate every checkpoint in a task of its own")
    plain: bool = option(False, "plain lines instead of a live table, also on a terminal")


def main_local(argv: Sequence[str]) -> int:
    """Runs a local cluster; returns its exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, _USAGE, LocalFlags, TrainConfig)
    local_flags, config = parsed.groups
    config.check()

    from ps_trainer.launch import local

    return local.run(
        num_ps=local_flags.num_ps,
        num_workers=local_flags.num_workers,
        num_evaluators=local_flags.num_evaluators,
        train_args=flags_lib.to_args(config, parsed.given),
        config=config,
        plain=local_flags.plain,
    )
