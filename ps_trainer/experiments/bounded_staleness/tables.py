"""The tables and the explanations of the experiment on bounded staleness."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.step_times import Shape

from . import records
from .cases import RealBound, TimedBound, TrainedBound, bound_name


def of_timing(cases: Sequence[TimedBound]) -> list[Table]:
    """Makes the table of clock rates and waiting of each cluster under each bound."""
    columns = (
        *texts("workers", "bound"),
        *numbers(".3f", "clock rate", "clock rate, model"),
        *numbers(".1f", "waiting", "waiting, model", "waits least", "waits most", unit="%"),
        *numbers(".2f", "mean staleness in updates"),
        *numbers("d", "largest lead at the begin", "at the end"),
    )
    rows = [
        [case.cluster, bound_name(case.bound), case.rate, case.predicted, 100 * case.wait_share]
        + [100 * case.predicted_wait_share, 100 * min(case.wait_by_worker), 100 * max(case.wait_by_worker)]
        + [case.mean_staleness, case.lead_at_begin, case.lead_when_done]
        for case in cases
    ]
    return [Table("Clock rates and waiting", columns, rows)]


def of_training(cases: Sequence[TrainedBound]) -> list[Table]:
    """Makes the table of updates and time to the target by bound; it is empty without trainings."""
    columns = (
        *texts("bound"),
        *numbers("g", "best learning rate"),
        *numbers(".0f", "updates"),
        *numbers(".1f", "time", unit="mean steps"),
        *numbers(".0f", *(f"updates, learning rate {rate:g}" for rate in records.RATES)),
    )
    rows = [
        [
            bound_name(case.bound),
            case.rate,
            case.updates,
            case.time,
            *(case.updates_by_rate.get(r) for r in records.RATES),
        ]
        for case in cases
    ]
    title = f"To a test loss of {records.TARGET_LOSS:g}, n = {records.NUM_TRAINED_WORKERS}, exponential steps"
    return [Table(title, columns, rows)]


def of_real_clusters(cases: Sequence[RealBound]) -> list[Table]:
    """Makes the tables of time shares and of real and simulated clock rates; both are empty without cases."""
    timed = [case for case in cases if case.timed()]
    columns = (
        *texts("bound"),
        *numbers(".1f", "computing", "communicating", "waiting", "waiting, simulated", unit="%"),
        *numbers("d", "largest lead at the begin", "runs"),
    )
    rows = []
    for case in cases:
        shares: list[float | None] = [None] * 4
        if case in timed:
            names = ("computes", "communicates", "waits")
            shares = [100 * share for share in (*map(case.median, names), case.pair("waits").simulated)]
        rows.append([bound_name(case.bound), *shares, case.largest_lead, len(case.runs)])
    title = f"Real clusters, n = {records.NUM_REAL_WORKERS}, {Shape.EXPONENTIAL} steps of {records.REAL_MEAN_MS:g} ms"
    rates = [case.pair("rate") for case in timed]
    return [
        Table(title, columns, rows, real_clusters.LEVEL),
        real_clusters.timing_table("clock rate", "clocks per mean step", rates),
    ]
