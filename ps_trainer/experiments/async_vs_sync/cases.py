"""Cases of the experiment on asynchronous and synchronous SGD: its runs, seeds together, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.frame.base import Level, Results
from ps_trainer.experiments.frame.tables import Column, Table
from ps_trainer.experiments.lab import theory
from ps_trainer.experiments.lab.statistics import spread, standard_error

ASYNC, SYNC_SAME, SYNC_GLOBAL = "asynchronous", "synchronous", "synchronous, same batch per update"


class Arm(NamedTuple):
    """Trainings of one kind with one learning rate, all seeds together.

    Attributes:
        mode: `ASYNC`, `SYNC_SAME` (each worker has the batch of an asynchronous one, an update n of them) or
            `SYNC_GLOBAL` (an update has the batch of an asynchronous one, a worker the n-th part of it).
        n: workers.
        alpha: share of the step that is exponential; None for synchronous ones, whose updates do not depend on it.
        rate: learning rate.
        examples: until the target, of each seed; where it was not reached those that were seen, a lower bound.
        secs: the same in virtual time, by alpha as text.
        num_lost: seeds that did not reach the target.
    """

    mode: str
    n: int
    alpha: float | None
    rate: float
    examples: Sequence[float]
    secs: Sequence[dict[str, float]]
    num_lost: int

    def secs_at(self, alpha: float) -> list[float]:
        """Virtual seconds to the target with these step times, of each seed."""
        return [secs[f"{alpha:g}"] for secs in self.secs]


def arms_of(results: Results) -> list[Arm]:
    """The trainings, in the order of the runs."""
    groups = Results(r for r in results if r.run.settings["mode"] != "rates").by("mode", "n", "alpha", "lr")
    return [
        Arm(*key, group.figures("examples"), group.figures("secs"), group.figures("is_reached").count(False))
        for key, group in groups.items()
    ]


def tuned(arms: Sequence[Arm], mode: str, n: int, alpha: float | None = None) -> Arm:
    """The one that needs fewest examples with its best learning rate."""
    own = [arm for arm in arms if (arm.mode, arm.n, arm.alpha) == (mode, n, alpha)]
    return min(own, key=lambda arm: (arm.num_lost, float(np.mean(arm.examples))))


def lead(one: Arm, other: Arm, num_window_examples: int) -> float:
    """Examples that the first needs more than the second, in standard errors of the difference.

    The seeds' variances, or with a single seed that of a tenth of the window in which the target is measured.
    """
    variance = sum(standard_error(arm.examples) ** 2 for arm in (one, other))
    if math.isnan(variance) or not variance:
        variance = (num_window_examples / 10) ** 2
    return float(np.mean(one.examples) - np.mean(other.examples)) / math.sqrt(variance)


def predicted_ratio(n: int, alpha: float) -> float:
    """E[max] / E[X] of n shifted exponential times, 1 − α + α H_n: A2."""
    return theory.async_over_sync((1.0 - alpha) + alpha * theory.harmonic(n), 1.0)


def rates_table(results: Results) -> Table:
    """Throughput of both and their ratio."""
    columns = (
        *(Column(name="n", form="d"), Column(name="α", form="g")),
        Column(name="asynchronous", unit="gradients/s", form=".2f"),
        Column(name="synchronous", unit="gradients/s", form=".2f"),
        Column(name="ratio", form=".3f"),
        *(Column(name="E[max]/E[X]", form=".3f"), Column(name="mean staleness", form=".2f")),
    )
    rows = []
    for (n, alpha), group in results.where(mode="rates").by("n", "alpha").items():
        fast, slow = (spread(group.figures(name)).median for name in ("async_rate", "sync_rate"))
        staleness = float(np.mean(group.figures("staleness")))
        rows.append([n, alpha, fast, slow, fast / slow, predicted_ratio(n, alpha), staleness])
    return Table(title="Throughput", level=Level.VIRTUAL.value, columns=columns, rows=rows)


def arms_table(title: str, arms: Sequence[Arm], alphas: Sequence[float]) -> Table:
    """Examples and virtual seconds to the target."""
    columns = [Column(name="mode"), Column(name="n", form="d"), Column(name="α", form="g"), Column(name="lr", form="g")]
    columns += [Column(name="examples", form=",.0f"), Column(name="± SE", form=",.0f")]
    columns += [Column(name=f"time, α = {alpha:g}", unit="s", form=".1f") for alpha in alphas]
    columns += [Column(name="not reached", form="d"), Column(name="seeds", form="d")]
    rows = []
    for arm in arms:
        secs = [
            float(np.mean(arm.secs_at(alpha))) if arm.alpha in (None, alpha) and arm.mode != SYNC_GLOBAL else None
            for alpha in alphas
        ]
        examples = [float(np.mean(arm.examples)), standard_error(arm.examples)]
        rows.append([arm.mode, arm.n, arm.alpha, arm.rate, *examples, *secs, arm.num_lost, len(arm.examples)])
    return Table(title=title, level=Level.VIRTUAL.value, columns=columns, rows=rows)
