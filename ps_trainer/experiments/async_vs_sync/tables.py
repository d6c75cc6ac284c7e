"""The tables and the explanations of the experiment on asynchronous and synchronous SGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.harness.targets import target_columns
from ps_trainer.experiments.toolkit import real_clusters

from . import cases as measured
from .cases import Mode, RealTraining, Throughput, TrainedArm, measured_ratio, predicted_ratio, simulated_ratio


def of_throughput(cases: Sequence[Throughput]) -> list[Table]:
    """Makes the table of the throughputs of both modes and of their ratio."""
    columns = (
        *numbers("d", "n"),
        *numbers("g", "α"),
        *numbers(".2f", "asynchronous", "synchronous", unit="gradients/s"),
        *numbers(".3f", "ratio", "E[max]/E[X]"),
        *numbers(".2f", "mean staleness"),
    )
    rows = [
        [case.n, case.alpha, case.async_rate, case.sync_rate, case.ratio.value]
        + [predicted_ratio(case.n, case.alpha), case.staleness]
        for case in cases
    ]
    return [Table("Throughput", columns, rows)]


def of_training(arms: Sequence[TrainedArm]) -> list[Table]:
    """Makes the table of examples and virtual seconds to the target."""
    columns = (
        *texts("mode"),
        *numbers("d", "n"),
        *numbers("g", "α", "lr"),
        *target_columns(",.0f", "examples"),
        *numbers(".1f", *(f"time, α = {alpha:g}" for alpha in measured.ALPHAS), unit="s"),
        *numbers("d", "not reached", "seeds"),
    )
    rows = []
    for arm in arms:
        is_timed = [arm.alpha in (None, alpha) and arm.mode != Mode.SYNC_GLOBAL for alpha in measured.ALPHAS]
        secs = [arm.mean_secs(alpha) if timed else None for alpha, timed in zip(measured.ALPHAS, is_timed, strict=True)]
        head = [arm.mode, arm.n, arm.alpha, arm.rate]
        rows.append([*head, *arm.cells("examples"), *secs, arm.num_lost, len(arm.examples)])
    title = "To the target, each at the learning rate of its pilot run; geometric mean times"
    return [Table(title, columns, rows)]


def of_real_throughput(rates: Mapping[tuple[int, float], Mapping[str, real_clusters.Pair]]) -> list[Table]:
    """Makes the tables of real throughput and of the simulator's timing; both are empty without runs."""
    columns = (
        *numbers("d", "n"),
        *numbers("g", "α"),
        *numbers(".3f", "ratio", "simulated ratio", "E[max]/E[X]"),
    )
    rows = [
        [n, alpha, measured_ratio(pairs).value, simulated_ratio(pairs), predicted_ratio(n, alpha)]
        for (n, alpha), pairs in rates.items()
        if len(pairs) > 1
    ]
    title = "Gradients per second of real clusters, asynchronous over synchronous"
    ratios = Table(title, columns, rows, real_clusters.LEVEL)
    flat = [pair for pairs in rates.values() for pair in pairs.values()]
    return [ratios, real_clusters.timing_table("throughput", "gradients per mean step", flat)]


def of_real_training(cases: Sequence[RealTraining]) -> list[Table]:
    """Makes the table of examples and time to the target; it is empty without runs."""
    columns = (
        *texts("mode"),
        *numbers("g", "α", "lr"),
        *numbers(",.0f", "examples", "examples, virtual"),
        *numbers(".1f", "time", "virtual time", unit="s"),
        *numbers("d", "not reached", "seeds"),
    )
    rows = []
    for case in cases:
        examples, secs = case.pair("examples"), case.secs
        times = [secs.measured, secs.simulated] if secs else [None, None]
        num_lost = sum(found.examples is None for found in case.runs.figures("measured"))
        rows.append([case.mode, case.alpha, case.rate, examples.measured, examples.simulated, *times])
        rows[-1] += [num_lost, len(case.runs)]
    title = f"Real trainings to a loss of {measured.TARGET_LOSS:g}, n = {measured.NUM_REAL_WORKERS}, medians"
    return [Table(title, columns, rows, real_clusters.LEVEL)]
