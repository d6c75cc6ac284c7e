"""The tables and the explanations of the experiment on backup workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import real_clusters, virtual_training
from ps_trainer.experiments.toolkit.statistics import standard_error
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import RealBarrier, Sweep, Timings, TrainedRule, real_speedups
from .records import NUM_NEEDED, SLOW_WORKER, Rule


def of_timings(timings: Timings) -> list[Table]:
    """Makes a table of step times per number of workers, and a table of contributions by worker."""
    sizes = dict.fromkeys(sweep.size for sweep in timings.sweeps)
    tables = [_steps_table(size, timings.where(sizes=[size])) for size in sizes]
    rows = [
        [sweep.shape, sweep.rule.words, case.num_backups]
        + _contributions(case.share_by_worker, has_slow_worker=sweep.shape == Shape.PERSISTENT)
        for sweep in timings.where(sizes=["N = 8"])
        for case in sweep.cases
        if case.num_backups in (1, 2)
    ]
    return [*tables, _contributions_table("N = 8", Level.VIRTUAL, rows)]


def of_training(cases: Sequence[TrainedRule]) -> list[Table]:
    """Makes the table of updates to the target; it is empty without trainings."""
    columns = (
        *texts("step times", "rule"),
        *numbers("d", "b"),
        *numbers(".1f", "updates", "± SE"),
        *numbers("d", "seeds"),
    )
    rows = [
        [case.shape, case.rule.words, case.num_backups, case.mean]
        + [standard_error(case.updates) if math.isfinite(case.mean) else None, len(case.updates)]
        for case in cases
    ]
    title = f"Updates to a training accuracy of {virtual_training.TARGET_ACCURACY:.0%}, N = {NUM_NEEDED}"
    return [Table(title, columns, rows)]


def of_real_clusters(cases: Sequence[RealBarrier]) -> list[Table]:
    """Makes the tables of real and simulated times, of all figures, and of contributions by worker."""
    rows = [
        [case.shape, case.rule.words, case.num_backups]
        + _contributions(case.share_by_worker, has_slow_worker=case.shape == Shape.PERSISTENT)
        for case in cases
        if case.num_backups
    ]
    return [
        real_clusters.timing_table("mean time per update", "mean steps", [case.pair("step") for case in cases]),
        _figures_table(cases),
        _contributions_table("real clusters", real_clusters.LEVEL, rows),
    ]


def _steps_table(size: str, sweeps: Sequence[Sweep]) -> Table:
    columns = (
        *texts("step times"),
        *texts("rule"),
        *numbers("d", "b"),
        *numbers(".3f", "time per update"),
        *numbers(".2f", "p10", "p50", "p90"),
        *numbers(".3f", "predicted", "order statistic", "normalised speed-up"),
        *numbers(".2f", "dropped", "dropped, predicted", "b/(N + b)", "b/(b + Nτ)", unit="%"),
        *numbers(".2f", "τ of the dropped"),
    )
    rows = [
        [sweep.shape, sweep.rule.words, case.num_backups, case.step, case.p10, case.p50, case.p90]
        + [case.predicted, case.cancelled, sweep.speedup(case), 100 * case.dropped_share]
        + [_percent(case.predicted_dropped_share), 100 * case.token_drop_share]
        + [_percent(case.barrier_drop_share if sweep.rule == Rule.BARRIER else None), case.dropped_staleness]
        for sweep in sweeps
        for case in sweep.cases
    ]
    return Table(f"Backup workers, {size}", columns, rows)


def _figures_table(cases: Sequence[RealBarrier]) -> Table:
    columns = (
        *texts("step times", "rule"),
        *numbers("d", "N", "b"),
        *numbers(".2f", "p10", "p50", "p50, simulated", "p90"),
        *numbers(".3f", "time per update", "simulated", "order statistic", "rule's model"),
        *numbers(".3f", "normalised speed-up", "simulated speed-up"),
        *numbers(".2f", "dropped", "dropped, simulated", "b/(N + b)", unit="%"),
    )
    rows = []
    for case in cases:
        step, median, dropped = (case.pair(name) for name in ("step", "p50", "dropped_share"))
        kind = (case.shape, case.rule, case.num_needed)
        speedups = [real_speedups(cases, *kind, of).get(case.num_backups) for of in ("measured", "simulated")]
        rows.append(
            [case.shape, case.rule.words, case.num_needed, case.num_backups]
            + [case.pair("p10").measured, median.measured, median.simulated, case.pair("p90").measured]
            + [step.measured, step.simulated, case.cancelled, case.predicted, *speedups]
            + [100 * dropped.measured, 100 * dropped.simulated]
            + [100 * case.num_backups / (case.num_needed + case.num_backups)]
        )
    title = "Backup workers on real clusters, times in mean steps"
    return Table(title, columns, rows, real_clusters.LEVEL)


def _contributions_table(what: str, level: str, rows: Sequence[Sequence[Any]]) -> Table:
    """Makes a table of used gradients by worker; equal contributions would make every number 1."""
    columns = (
        *texts("step times", "rule"),
        *numbers("d", "b"),
        *numbers(".2f", "slow worker's share", "smallest of the others", "largest"),
    )
    title = f"Gradients used by worker, as a multiple of a fair share, {what}"
    return Table(title, columns, rows, level)


def _contributions(share_by_worker: Sequence[float], *, has_slow_worker: bool) -> list[float | None]:
    """Returns the shares of the slow worker (None without one) and the extremes of the others, over a fair share."""
    shares = [share * len(share_by_worker) for share in share_by_worker]
    others = shares[:SLOW_WORKER] + shares[SLOW_WORKER + 1 :] if has_slow_worker else shares
    return [shares[SLOW_WORKER] if has_slow_worker else None, min(others), max(others)]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
