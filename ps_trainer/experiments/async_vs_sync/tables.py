"""The tables and the explanations of the experiment on asynchronous and synchronous SGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import real
from ps_trainer.experiments.toolkit.statistics import standard_error

from . import cases as measured
from .cases import Mode, RealTraining, Throughput, TrainedArm, predicted_ratio, ratio_of, tuned

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
        *numbers("d", "n"),
        *numbers("g", "α"),
        *numbers(".2f", "asynchronous", "synchronous", unit="gradients/s"),
        *numbers(".3f", "ratio", "E[max]/E[X]"),
        *numbers(".2f", "mean staleness"),
    )
    rows = [
        [case.n, case.alpha, case.async_rate, case.sync_rate, case.async_rate / case.sync_rate]
        + [predicted_ratio(case.n, case.alpha), case.staleness]
        for case in cases
    ]
    return [Table("Throughput", columns, rows)]


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
        *numbers("d", "n"),
        *numbers("g", "α"),
        *numbers(".3f", "ratio", "simulated ratio", "E[max]/E[X]"),
    )
    rows = [
        [n, alpha, ratio_of(pairs, "measured"), ratio_of(pairs, "simulated"), predicted_ratio(n, alpha)]
        for (n, alpha), pairs in rates.items()
        if len(pairs) > 1
    ]
    title = "Gradients per second of real clusters, asynchronous over synchronous"
    ratios = Table(title, columns, rows, real.LEVEL)
    flat = [pair for pairs in rates.values() for pair in pairs.values()]
    return [ratios, real.timing_table("throughput", "gradients per mean step", flat)]


def of_real_training(cases: Sequence[RealTraining]) -> list[Table]:
    """Examples and time to the target; none without runs."""
    columns = (
        *texts("mode"),
        *numbers("g", "α", "lr"),
        *numbers(",.0f", "examples", "examples, virtual"),
        *numbers(".1f", "time", "virtual time", unit="s"),
    )
    rows = []
    for case in cases:
        examples, secs = case.pair("examples"), case.secs
        times = [secs.measured, secs.simulated] if secs else [None, None]
        rows.append([case.mode, case.alpha, case.rate, examples.measured, examples.simulated, *times])
    title = f"Real trainings to a loss of {measured.TARGET_LOSS:g}, n = {measured.NUM_REAL_WORKERS}, one seed"
    return [Table(title, columns, rows, real.LEVEL)]


def _arms_table(title: str, arms: Sequence[TrainedArm]) -> Table:
    """Examples and virtual seconds to the target."""
    columns = (
        *texts("mode"),
        *numbers("d", "n"),
        *numbers("g", "α", "lr"),
        *numbers(",.0f", "examples", "± SE"),
        *numbers(".1f", *(f"time, α = {alpha:g}" for alpha in measured.ALPHAS), unit="s"),
        *numbers("d", "not reached", "seeds"),
    )
    rows = []
    for arm in arms:
        secs = [
            float(np.mean(arm.secs_at(alpha))) if arm.alpha in (None, alpha) and arm.mode != Mode.SYNC_GLOBAL else None
            for alpha in measured.ALPHAS
        ]
        examples = [float(np.mean(arm.examples)), standard_error(arm.examples)]
        rows.append([arm.mode, arm.n, arm.alpha, arm.rate, *examples, *secs, arm.num_lost, len(arm.examples)])
    return Table(title, columns, rows)
