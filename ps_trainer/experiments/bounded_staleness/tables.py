"""The tables and the explanations of the experiment on bounded staleness."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import real_clusters
from ps_trainer.experiments.toolkit.step_times import Shape

from . import records
from .cases import RealBound, TimedBound, TrainedBound, bound_name

ON_TIMING = (
    "A clock is one step of one worker, and each such step makes one update. Rates are in clocks per mean step.",
    "A worker that begins a step is at most s completed steps ahead of the slowest worker. When it completes that"
    " step, it is s + 1 ahead for a moment and then waits. The table shows both leads.",
    "A permanently slow worker differs from a worker that is slow now and then. Workers can use up the lead that the"
    " bound allows only once. The lead therefore hides delays that come and go, but no delay that stays.",
    "With a permanently slow worker and no bound, the rate is a mean over workers that drift apart for ever. Their"
    " largest lead grows with the length of the run.",
    "Rates and waiting are medians over the seeds, without the first 20 % of each run. The largest leads are maxima"
    " over all seeds and whole runs.",
)
ON_TRAINING = (
    "A bound helps little here. In Ho et al.'s system (as we recall it), a worker may continue with cached parameters"
    " that are s clocks old. Here a worker pulls the newest parameters in each step, so its staleness depends on the"
    " speed of the others. The mean staleness is at most n − 1 updates, whatever s. Behind a barrier it is already (n"
    " − 1)/2, because each gradient is an update of its own. The clock rate meanwhile grows by the factor"
    " E[max]/E[X], which is 2.7 for 8 exponential workers.",
    "At the smallest learning rate, a larger bound takes a few more updates, as the sources say. At the best learning"
    " rate of each bound, a larger bound takes fewer. Behind a barrier, n gradients belong to the same parameters, so"
    " together they make one step n times as long. That step is too long at a learning rate that workers without a"
    " bound still tolerate (last columns).",
)
ON_REAL_CLUSTERS = (
    "The log of a real cluster has no waiting time. The 5th percentile of step time minus delay, over all steps,"
    " counts as communication in every step. The slowest of the four workers does not wait, so this percentile"
    " contains no waiting. The rest beside computing counts as waiting.",
    "The lead of a real worker is a lower limit, because the steps of the others count as completed when their delay"
    " ends. A lead above the bound is therefore a violation, however long the messages take.",
    "The simulator uses the delays of a real run and nothing else of its steps. This is one reason why a real cluster"
    " can fall behind the simulator. Other programs on the same cores are another reason.",
)


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
