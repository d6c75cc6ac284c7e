"""Training under a bound on the lead: updates and virtual time to a test loss, by learning rate."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ps_trainer.experiments.bounded_staleness.cases import EXPONENTIAL, bound_name, compute_of, rule_of
from ps_trainer.experiments.frame.base import Level, Measured, Results, Run
from ps_trainer.experiments.frame.tables import Column, Table
from ps_trainer.experiments.lab import virtual, virtual_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRAINING = "training"  # what a run is of
NUM_WORKERS = 8
RATES = (0.5, 1.0, 2.0)
SAME_RATE = 0.5  # with which all bounds are stable
BATCH_SIZE = 32
TARGET_LOSS = 0.25

_BOUNDS = (0, 1, 3, 10, None)
_MAX_UPDATES = 480
_UPDATES_BETWEEN_TESTS = 8
_MEAN_SECS = 0.1
_EXPECTED_SECS = 3.0


class Arm(NamedTuple):
    """A bound with its best learning rate; medians over the seeds, inf where the target was not reached.

    Attributes:
        bound: s; None = nobody waits.
        rate: the learning rate with which the target is reached soonest.
        updates: until the target.
        time: until then, in mean steps.
        updates_by_rate: until the target, with each learning rate.
    """

    bound: int | None
    rate: float
    updates: float
    time: float
    updates_by_rate: dict[float, float]


def runs(seeds: Sequence[int]) -> list[Run]:
    """Every bound with every learning rate."""
    return [
        Run(
            key=f"{TRAINING}-s={bound}-rate={rate:g}-seed={seed}",
            level=Level.VIRTUAL,
            settings={"what": TRAINING, "n": NUM_WORKERS, "bound": bound, "rate": rate, "max_updates": _MAX_UPDATES},
            seed=seed,
            expected_secs=_EXPECTED_SECS,
        )
        for bound in _BOUNDS
        for rate in RATES
        for seed in seeds
    ]


def carry_out(run: Run) -> Measured:
    """Softmax regression on digits along a schedule with exponential steps. Imports TensorFlow."""
    from ps_trainer.simulation.replay.run import train

    settings = run.settings
    update, options = rule_of(settings["bound"])
    schedule = virtual.run(
        update,
        options,
        num_workers=NUM_WORKERS,
        compute=compute_of(EXPONENTIAL, NUM_WORKERS, False),
        num_updates=settings["max_updates"],
        seed=run.seed,
    ).schedule
    training = virtual_training.digits("softmax", settings["rate"], batch_size=BATCH_SIZE, seed=run.seed)
    trained = train(
        training,
        schedule,
        update,
        options,
        evaluate_every=_UPDATES_BETWEEN_TESTS,
        stop_when=lambda evaluation: evaluation.metrics["loss"] <= TARGET_LOSS,
    )
    end = trained.evaluations[-1]
    has_reached = not trained.has_diverged and end.metrics["loss"] <= TARGET_LOSS
    return Measured(
        {
            "updates": end.version if has_reached else None,
            "time": end.secs / _MEAN_SECS if has_reached else None,
            "has_diverged": trained.has_diverged,
        }
    )


def arms_of(results: Results) -> list[Arm]:
    """The arms, by rising bound, that without one last."""
    arms = []
    for (bound,), group in results.where(what=TRAINING).by("bound").items():
        rates = group.by("rate").items()
        by_rate = {rate: (_median(own, "time"), _median(own, "updates")) for (rate,), own in rates}
        best = min(by_rate, key=by_rate.__getitem__)
        secs, updates = by_rate[best]
        arms.append(Arm(bound, best, updates, secs, {rate: updates for rate, (_, updates) in by_rate.items()}))
    return arms


def table_of(arms: Sequence[Arm]) -> Table:
    """What each bound took."""
    columns = (
        Column(name="bound"),
        Column(name="best learning rate", form="g"),
        Column(name="updates", form=".0f"),
        Column(name="time", form=".1f", unit="mean steps"),
        *(Column(name=f"updates, learning rate {rate:g}", form=".0f") for rate in RATES),
    )
    rows = [
        [bound_name(arm.bound), arm.rate, arm.updates, arm.time, *(arm.updates_by_rate.get(r) for r in RATES)]
        for arm in arms
    ]
    title = f"To a test loss of {TARGET_LOSS:g}, n = {NUM_WORKERS}, exponential steps"
    return Table(title=title, level=Level.VIRTUAL.value, columns=columns, rows=rows)


def draw(figure: Figure, arms: Sequence[Arm]) -> None:
    """Updates, and time, against the bound."""
    places = range(len(arms))
    for axis, values, name in zip(
        figure.subplots(1, 2),
        ([arm.updates for arm in arms], [arm.time for arm in arms]),
        ("updates", "time / mean step"),
        strict=True,
    ):
        axis.plot(places, values, "o-")
        axis.set_xticks(places, ["∞" if arm.bound is None else str(arm.bound) for arm in arms])
        axis.set_ylim(bottom=0)
        axis.set_xlabel("bound s on the lead, in clocks")
        axis.set_ylabel(f"{name} to the objective")


def _median(results: Results, name: str) -> float:
    """Of the runs, where those that did not reach the target count as later than all others."""
    return statistics.median_high(math.inf if value is None else value for value in results.figures(name))
