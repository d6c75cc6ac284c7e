"""The tables and the explanations of the experiment on asynchronous and synchronous SGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.base import Level
from ps_trainer.experiments.harness.tables import Column, Table, numbers
from ps_trainer.experiments.toolkit import real
from ps_trainer.experiments.toolkit.statistics import standard_error

from .cases import (
    ALPHAS,
    NUM_REAL_WORKERS,
    TARGET_LOSS,
    Mode,
    RealTraining,
    Throughput,
    TrainedArm,
    predicted_ratio,
    ratio_of,
    tuned,
)

NOTES = (
    "With the same batch per worker a synchronous update has n batches. Where that is more than the task can use per"
    " update, its examples go to waste, and asynchronous SGD, one batch per update, needs fewer where its staleness"
    " costs little: with exponential steps, whose geometric staleness stands larger rates than the same staleness in"
    " each update (experiment staleness_quality). With the same batch per update staleness is the only difference.",
    "Times are of the same batch per worker: a synchronous worker with the n-th part of it would have shorter steps.",
    "The real trainings end at a loss instead, as steps of clusters log no accuracy; the virtual ones beside them do,"
    " too. Time counts from the end of the first step, in which a cluster still builds its graph.",
    "The simulator's steps take their delay and nothing else. A real step takes more, so that a real cluster makes"
    " fewer steps.",
    "An arm that does not reach the target counts with all examples it may see: a lower bound.",
)


def of_throughput(cases: Sequence[Throughput]) -> list[Table]:
    """Throughput of both and their ratio."""
    columns = (
        *(Column(name="n", form="d"), Column(name="α", form="g")),
        *numbers(".2f", "asynchronous", "synchronous", unit="gradients/s"),
        *numbers(".3f", "ratio", "E[max]/E[X]"),
        *numbers(".2f", "mean staleness"),
    )
    rows = [
        [case.n, case.alpha, case.async_rate, case.sync_rate, case.async_rate / case.sync_rate]
        + [predicted_ratio(case.n, case.alpha), case.staleness]
        for case in cases
    ]
    return [Table(title="Throughput", level=Level.VIRTUAL.value, columns=columns, rows=rows)]


def of_training(arms: Sequence[TrainedArm]) -> list[Table]:
    """Examples and time to the target, of the best learning rates and of all."""
    best = [tuned(arms, *key) for key in dict.fromkeys((arm.mode, arm.n, arm.alpha) for arm in arms)]
    return [
        _arms_table("To the target, each at its best learning rate", best),
        _arms_table("To the target, all learning rates", arms),
    ]


def of_real_throughput(rates: Mapping[tuple[int, float], Mapping[str, real.Pair]]) -> list[Table]:
    """Throughput, and the simulator's timing; none without runs."""
    columns = (
        *(Column(name="n", form="d"), Column(name="α", form="g")),
        *numbers(".3f", "ratio", "simulated ratio", "E[max]/E[X]"),
    )
    rows = [
        [n, alpha, ratio_of(pairs, "measured"), ratio_of(pairs, "simulated"), predicted_ratio(n, alpha)]
        for (n, alpha), pairs in rates.items()
        if len(pairs) > 1
    ]
    title = "Gradients per second of real clusters, asynchronous over synchronous"
    ratios = Table(title=title, level=real.LEVEL.value, columns=columns, rows=rows)
    flat = [pair for pairs in rates.values() for pair in pairs.values()]
    return [ratios, real.timing_table("throughput", "gradients per mean step", flat)] if rates else []


def of_real_training(cases: Sequence[RealTraining]) -> list[Table]:
    """Examples and time to the target; none without runs."""
    columns = (
        *(Column(name="mode"), Column(name="α", form="g"), Column(name="lr", form="g")),
        *numbers(",.0f", "examples", "examples, virtual"),
        *numbers(".1f", "time", "virtual time", unit="s"),
    )
    rows = []
    for case in cases:
        examples, secs = case.pair("examples"), case.secs
        times = [secs.measured, secs.simulated] if secs else [None, None]
        rows.append([case.mode, case.alpha, case.rate, examples.measured, examples.simulated, *times])
    title = f"Real trainings to a loss of {TARGET_LOSS:g}, n = {NUM_REAL_WORKERS}, one seed"
    return [Table(title=title, level=real.LEVEL.value, columns=columns, rows=rows)] if rows else []


def _arms_table(title: str, arms: Sequence[TrainedArm]) -> Table:
    """Examples and virtual seconds to the target."""
    columns = [Column(name="mode"), Column(name="n", form="d"), Column(name="α", form="g"), Column(name="lr", form="g")]
    columns += [Column(name="examples", form=",.0f"), Column(name="± SE", form=",.0f")]
    columns += [Column(name=f"time, α = {alpha:g}", unit="s", form=".1f") for alpha in ALPHAS]
    columns += [Column(name="not reached", form="d"), Column(name="seeds", form="d")]
    rows = []
    for arm in arms:
        secs = [
            float(np.mean(arm.secs_at(alpha))) if arm.alpha in (None, alpha) and arm.mode != Mode.SYNC_GLOBAL else None
            for alpha in ALPHAS
        ]
        examples = [float(np.mean(arm.examples)), standard_error(arm.examples)]
        rows.append([arm.mode, arm.n, arm.alpha, arm.rate, *examples, *secs, arm.num_lost, len(arm.examples)])
    return Table(title=title, level=Level.VIRTUAL.value, columns=columns, rows=rows)
