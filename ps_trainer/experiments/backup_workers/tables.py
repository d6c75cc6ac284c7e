"""The tables and the explanations of the experiment on backup workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ps_trainer.experiments.harness.base import Level
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit import real, virtual_training
from ps_trainer.experiments.toolkit.statistics import standard_error
from ps_trainer.experiments.toolkit.step_times import Shape

from .cases import NUM_NEEDED, SLOW_WORKER, RealBarrier, Rule, Sweep, Timings, TrainedRule, real_speedups

NOTES = (
    "Times are in units of the mean step; a table's line and a point of a plot are medians over the seeds of a run's"
    " mean. The first 20 % of each run are left out.",
    "Why the two rules drop differently: the token queue hands out N + b tokens per update, in order, so that N + b"
    " gradients are computed for each and b of them are too late, whatever the delays. Behind a true barrier b workers"
    " are computing whenever an update is made, and what they compute will be dropped; but a step so long that τ"
    " updates pass in it is dropped once, not τ times. So b/τ gradients per update are dropped, τ being the mean"
    " staleness of the dropped ones: with even steps τ = 1, and with heavy tails or a slow worker fewer are dropped"
    " than b/(N + b).",
    "That the token queue computes more is also why it is the faster rule under exponential steps, which are"
    " memoryless: a worker that is late goes on with a token at once, and none of those that are early waits while"
    " there are tokens. With 8 workers it is the slower one when single steps are long (spikes, from b = 2 on) and"
    " with a slow worker: a token that a slow worker left is old when somebody takes it.",
    "'Each saves less than the one before' does not hold for spikes with 50 workers: 5 % of 50 steps are long, 2.5 in"
    " each update, so that a first backup worker seldom suffices, and the ones after it save more.",
    "Whether backup workers pay is a matter of the slowest of N steps, not of the tail alone: the shifted exponential"
    " steps with which none pays among 8 workers make them pay among 50.",
    "Fitted lognormal: its one fitted number is the share of steps that are over within 2 s, from the two recalled"
    " quantiles of the arrivals; sigma = 0.2 is our choice, which those quantiles leave open. The gain depends on it:"
    " see the lognormal steps with sigma = 0.5 beside it. No traffic is modelled, so a plain step time never rises"
    " with b, as the fifth backup worker's did in the published measurement.",
    "A real run and its simulation take the same delays, but from the first gradient on that comes in another order"
    " they go different ways. Simulations that differ by 4 ms per step only say how far: their means over 60 updates"
    " differ by up to 4 %, one standard deviation, and their medians by up to 6 %, so that the claim is on means in"
    " each case and on medians over the cases of a rule.",
    "On a real cluster --update=sync with replicas_to_aggregate=N is the same barrier as backup, so that the real runs"
    " are of the barrier alone: the token queue is in virtual time.",
    "The simulator's steps take their delay and nothing else. A real step takes more, and 8 to 12 workers on few cores"
    " also wait for a core.",
    "The published best number of backup workers among 100 is one of time to convergence; here it is one of examples"
    " per second, which is the same only if the updates that are needed fall as 1/N.",
)


def of_timings(timings: Timings) -> list[Table]:
    """A table of step times per number of workers, and who contributes."""
    sizes = dict.fromkeys(sweep.size for sweep in timings.sweeps)
    made = [_steps_table(size, timings.where(sizes=[size])) for size in sizes]
    rows = [
        [sweep.shape, sweep.rule.words, case.num_backups]
        + _contributions(case.share_by_worker, has_slow_worker=sweep.shape == Shape.PERSISTENT)
        for sweep in timings.where(sizes=["N = 8"])
        for case in sweep.cases
        if case.num_backups in (1, 2)
    ]
    return [*made, _contributions_table("N = 8", Level.VIRTUAL, rows)]


def of_training(cases: Sequence[TrainedRule]) -> list[Table]:
    """Updates to the target; none without trainings."""
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
    """Times beside the simulator's, what was measured, and who contributes; none without runs."""
    rows = [
        [case.shape, Rule.BARRIER.words, case.num_backups]
        + _contributions(case.share_by_worker, has_slow_worker=case.shape == Shape.PERSISTENT)
        for case in cases
        if case.num_backups
    ]
    return [
        real.timing_table("mean time per update", "mean steps", [case.pair("step") for case in cases]),
        _figures_table(cases),
        _contributions_table("real clusters", real.LEVEL, rows),
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
        *numbers(".3f", "time per update", "simulated", "order statistic", "true barrier's model"),
        *numbers(".3f", "normalised speed-up", "simulated speed-up"),
        *numbers(".2f", "dropped", "dropped, simulated", "b/(N + b)", unit="%"),
    )
    rows = []
    for case in cases:
        step, median, dropped = (case.pair(name) for name in ("step", "p50", "dropped_share"))
        speedups = [real_speedups(cases, case.shape, of).get(case.num_backups) for of in ("measured", "simulated")]
        rows.append(
            [case.shape, Rule.BARRIER.words, case.num_needed, case.num_backups]
            + [case.pair("p10").measured, median.measured, median.simulated, case.pair("p90").measured]
            + [step.measured, step.simulated, case.model("cancelled"), case.model(Rule.BARRIER), *speedups]
            + [100 * dropped.measured, 100 * dropped.simulated]
            + [100 * case.num_backups / (case.num_needed + case.num_backups)]
        )
    title = "Backup workers on real clusters, times in mean steps"
    return Table(title, columns, rows, real.LEVEL)


def _contributions_table(what: str, level: str, rows: Sequence[Sequence[Any]]) -> Table:
    """Gradients used by worker; every number would be 1 if workers contributed equally."""
    columns = (
        *texts("step times", "rule"),
        *numbers("d", "b"),
        *numbers(".2f", "slow worker's share", "smallest of the others", "largest"),
    )
    title = f"Gradients used by worker, as a multiple of a fair share, {what}"
    return Table(title, columns, rows, level)


def _contributions(share_by_worker: Sequence[float], *, has_slow_worker: bool) -> list[float | None]:
    """The slow worker's share, None without one, the smallest and the largest of the others, over a fair share."""
    shares = [share * len(share_by_worker) for share in share_by_worker]
    others = shares[:SLOW_WORKER] + shares[SLOW_WORKER + 1 :] if has_slow_worker else shares
    return [shares[SLOW_WORKER] if has_slow_worker else None, min(others), max(others)]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
