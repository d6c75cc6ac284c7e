"""The tables and the explanations of the experiment on bounded staleness."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import real
from ps_trainer.experiments.toolkit.step_times import Shape

from . import cases as measured
from .cases import RealBound, TimedBound, TrainedBound, bound_name

ON_TIMING = (
    "A clock is a step of one worker, of which each is an update. Rates are in clocks per mean step.",
    "A worker that begins a step is at most s completed steps ahead of the slowest. When it has completed that step it"
    " is s + 1 ahead for a moment, and then waits; both are counted.",
    "Slow for good and slow now and then are different things: a lead that the bound allows is used up once, so that"
    " it hides delays that come and go, and none that stay.",
    "With a permanently slow worker the rate without a bound is a mean over workers that drift apart for ever; its"
    " largest lead grows with the length of the run.",
    "The first 20 % of each run are left out of rates and waiting, of the leads nothing is; medians over the seeds.",
)
ON_TRAINING = (
    "Why a bound helps little here: in Ho et al.'s system (as we recall it) a worker may go on with cached parameters"
    " that are s clocks old. Here it pulls the newest ones in each step, so that its gradient is as stale as the"
    " others are fast: n − 1 updates on average at most, whatever s, and already (n − 1)/2 behind a barrier, where"
    " each gradient is an update of its own. The clock rate meanwhile grows by E[max]/E[X], 2.7 for 8 exponential"
    " workers.",
    "At the smallest learning rate a larger bound takes a few more updates, as the sources say. With the best one of"
    " each it takes fewer: behind a barrier n gradients are of the same parameters, so that together they are one step"
    " n times as long, which is too long at a learning rate that workers without a bound still bear (the last"
    " columns).",
)
ON_REAL_CLUSTERS = (
    "Of a real cluster a step's wait is not logged. Of four workers one waits for nobody: what such steps take beside"
    " their delay, the 5th percentile over all, counts as communicating in every step, and what is left beside"
    " computing as waiting.",
    "A real worker's lead is that over what the others may have completed at most: their steps count as completed when"
    " the delay is over. So what is above the bound is a violation, whatever the messages take.",
    "The simulator is given a real run's delays, and nothing of what its steps take beside them, which is one reason"
    " for a real cluster to fall behind it. Cores that others take are another.",
)


def of_timing(cases: Sequence[TimedBound]) -> list[Table]:
    """Clock rates and waiting of each cluster under each bound."""
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
    """What each bound took; none without trainings."""
    columns = (
        *texts("bound"),
        *numbers("g", "best learning rate"),
        *numbers(".0f", "updates"),
        *numbers(".1f", "time", unit="mean steps"),
        *numbers(".0f", *(f"updates, learning rate {rate:g}" for rate in measured.RATES)),
    )
    rows = [
        [
            bound_name(case.bound),
            case.rate,
            case.updates,
            case.time,
            *(case.updates_by_rate.get(r) for r in measured.RATES),
        ]
        for case in cases
    ]
    title = f"To a test loss of {measured.TARGET_LOSS:g}, n = {measured.NUM_TRAINED_WORKERS}, exponential steps"
    return [Table(title, columns, rows)]


def of_real_clusters(cases: Sequence[RealBound]) -> list[Table]:
    """Clock rates beside the simulator's, and where the time goes; without cases none."""
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
    title = f"Real clusters, n = {measured.NUM_REAL_WORKERS}, {Shape.EXPONENTIAL} steps of {measured.REAL_MEAN_MS:g} ms"
    rates = [case.pair("rate") for case in timed]
    return [
        Table(title, columns, rows, real.LEVEL),
        real.timing_table("clock rate", "clocks per mean step", rates),
    ]
