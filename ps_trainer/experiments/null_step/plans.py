"""Runs of the experiment on the null step: which cases, how many steps of each, and how often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ps_trainer.experiments.frame.base import Level, Run
from ps_trainer.experiments.lab.sized_settings import MEGABYTE, PAPER_PS, PAPER_STEP_SECS, Curve

_START_SECS = 8.0
_START_SECS_PER_WORKER = 1.5
_VIRTUAL_SECS_PER_WORKER = 0.01
_PAPER_COUNTS = (1, 2, 5, 10, 25, 50, 100)
_QUICK_PAPER_COUNTS = (1, 10, 100)
_BYTES_PER_SEC = 23.9e6  # of a shaped link, about: for the time left only


class Plan(NamedTuple):
    """Runs of one case.

    Attributes:
        curve: which.
        megabytes: of all parameters.
        n: workers.
        p: ps tasks.
        updates: of each run.
        delay_ms: how long each worker sleeps between pull and push, so that processes find the cores idle.
        is_repeated: whether for every seed, as a claim needs it, or for the first one only.
    """

    curve: Curve
    megabytes: float
    n: int
    p: int
    updates: int
    delay_ms: int = 0
    is_repeated: bool = False


_SCALAR, _DENSE, _SPARSE, _GOODPUT = Curve.SCALAR, Curve.DENSE, Curve.SPARSE, Curve.GOODPUT
_LOCAL = (
    *(Plan(_SCALAR, 0, n, 1, 60, 100, n in (1, 8)) for n in (1, 2, 4, 8)),
    *(Plan(_SCALAR, 0, 4, p, 60, 100) for p in (2, 4)),
    *(Plan(_SPARSE, size, 1, 1, 120, 50, True) for size in (16, 256)),
    *(Plan(_SPARSE, size, 4, p, 60, 100) for p in (1, 4) for size in (16, 256)),
    *(Plan(_DENSE, size, 1, 1, 40, 100) for size in (1, 4, 16)),
    Plan(_DENSE, 64, 1, 1, 15, 400),
    *(Plan(_DENSE, 4, n, 1, 40, 100) for n in (2, 4)),
)
_SHAPED = (
    Plan(_GOODPUT, 0, 1, 1, 3, 0, True),
    *(Plan(_SCALAR, 0, n, 1, 40, 100) for n in (1, 4)),
    *(Plan(_SPARSE, size, 2, 1, 40, 100) for size in (16, 256)),
    Plan(_DENSE, 1, 2, 1, 30, 0, True),
    Plan(_DENSE, 4, 2, 1, 15, 0, True),
    Plan(_DENSE, 16, 2, 1, 8, 0, True),
    *(Plan(_DENSE, 4, n, 1, 11) for n in (1, 4, 8)),
    *(Plan(_DENSE, 4, 4, p, 15) for p in (2, 4)),
    Plan(_DENSE, 4, 8, 4, 12),
)
_QUICK_LOCAL = (
    *(Plan(_SCALAR, 0, n, 1, 30, 60) for n in (1, 4)),
    *(Plan(_SPARSE, size, 1, 1, 60, 50, True) for size in (1, 16)),
    Plan(_DENSE, 16, 1, 1, 20, 100),
)
_QUICK_SHAPED = (Plan(_GOODPUT, 0, 1, 1, 2), Plan(_DENSE, 1, 2, 1, 20), Plan(_DENSE, 4, 2, 1, 10))


def runs(quick: bool, seeds: Sequence[int], *, has_links: bool) -> list[Run]:
    """The runs, in order.

    Args:
        quick: whether in the quick form.
        seeds: of the repetitions.
        has_links: whether there can be shaped hosts; without, there are no runs on them.
    """
    local, links = (_QUICK_LOCAL, _QUICK_SHAPED) if quick else (_LOCAL, _SHAPED)
    counts = _QUICK_PAPER_COUNTS if quick else _PAPER_COUNTS
    made = [_virtual_run(curve, size, n, seeds[0]) for curve, size in PAPER_STEP_SECS for n in counts]
    made += [run for plan in local for run in _runs_of(plan, Level.PROCESSES, seeds)]
    return made + [run for plan in links if has_links for run in _runs_of(plan, Level.SHAPED, seeds)]


def _runs_of(plan: Plan, level: Level, seeds: Sequence[int]) -> Iterator[Run]:
    settings = plan._asdict() | {"curve": plan.curve.value}
    del settings["is_repeated"]
    case = f"{plan.curve.value}-{plan.megabytes:g}MB-n={plan.n}-p={plan.p}"
    transfer = 2 * plan.megabytes * MEGABYTE * max(1, plan.n / plan.p) / _BYTES_PER_SEC
    secs = transfer if level is Level.SHAPED and plan.curve is Curve.DENSE else 0.01 + 0.002 * plan.megabytes
    for seed in seeds if plan.is_repeated else seeds[:1]:
        yield Run(
            key=f"{level.value[:2]}-{case}-seed={seed}",
            level=level,
            settings=settings,
            seed=seed,
            expected_secs=3.0 * plan.updates
            if plan.curve is Curve.GOODPUT
            else _START_SECS + _START_SECS_PER_WORKER * plan.n + plan.updates * (secs + plan.delay_ms / 1000),
        )


def _virtual_run(curve: Curve, megabytes: int, n: int, seed: int) -> Run:
    return Run(
        key=f"L0-{curve.value}-{megabytes}MB-n={n}-seed={seed}",
        level=Level.VIRTUAL,
        settings={"curve": curve.value, "megabytes": megabytes, "n": n, "p": PAPER_PS},
        seed=seed,
        expected_secs=_VIRTUAL_SECS_PER_WORKER * n,
    )
