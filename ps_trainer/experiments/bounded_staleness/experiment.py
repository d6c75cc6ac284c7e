"""Experiment: bulk synchronous, stale synchronous, and asynchronous workers."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

from ps_trainer.experiments.bounded_staleness import plots as bounded_plots
from ps_trainer.experiments.bounded_staleness import real as bounded_real
from ps_trainer.experiments.bounded_staleness import training as bounded_training
from ps_trainer.experiments.bounded_staleness.captions import CAPTIONS
from ps_trainer.experiments.bounded_staleness.cases import (
    BOUNDS,
    EXPONENTIAL,
    MODEL,
    MODERATE,
    RULE,
    SHIFTED,
    SLOWNESS,
    Case,
    bound_name,
    by_cluster,
    cases_of,
    compute_of,
    figures_of,
    predict,
    rule_of,
)
from ps_trainer.experiments.bounded_staleness.claims import CLAIMS, FEW, PUBLISHED
from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.lab import real, virtual

_NUM_LOGGED_STEPS = 300
_SECS_PER_STEP = 1e-5
_CLUSTERS = ((EXPONENTIAL, 4, False), (EXPONENTIAL, 8, False), (MODERATE, 8, False), (SHIFTED, 8, False),
             (MODERATE, 4, True))  # fmt: skip
_WHY_UNBOUNDED = (
    "Why a bound helps little here: in Ho et al.'s system (as we recall it) a worker may go on with cached parameters"
    " that are s clocks old. Here it pulls the newest ones in each step, so that its gradient is as stale as the others"
    " are fast: n − 1 updates on average at most, whatever s, and already (n − 1)/2 behind a barrier, where each"
    " gradient is an update of its own. The clock rate meanwhile grows by E[max]/E[X], 2.7 for 8 exponential workers.",
    "At the smallest learning rate a larger bound takes a few more updates, as the sources say. With the best one of"
    " each it takes fewer: behind a barrier n gradients are of the same parameters, so that together they are one step"
    " n times as long, which is too long at a learning rate that workers without a bound still bear (the last"
    " columns).",
)
_ON_CLUSTERS = (
    "Of a real cluster a step's wait is not logged. Of four workers one waits for nobody: what such steps take beside"
    " their delay, the 5th percentile over all, counts as communicating in every step, and what is left beside"
    " computing as waiting.",
    "A real worker's lead is that over what the others may have completed at most: their steps count as completed when"
    " the delay is over. So what is above the bound is a violation, whatever the messages take.",
    "The simulator is given a real run's delays, and nothing of what its steps take beside them, which is one reason"
    " for a real cluster to fall behind it. Cores that others take are another.",
)


class BoundedStaleness(Experiment):
    """What a bound on the lead buys: waiting and clock rates from bulk synchronous to asynchronous workers."""

    name = "bounded_staleness"
    source = "Ho et al. 2013 (stale synchronous parallel); Li et al. 2014 (OSDI), section 5 (bounded delay)"
    scale_down = (
        "In virtual time nothing but the drawn step times takes time. What a step is worth is measured in the full"
        f" form only: softmax regression on digits, {bounded_training.NUM_WORKERS} workers, batch"
        f" {bounded_training.BATCH_SIZE}, the best of {len(bounded_training.RATES)} learning rates. The real clusters"
        f" are {bounded_real.NUM_WORKERS} processes on one machine that sleep between pull and push. The sources"
        " trained far larger models on up to 1,000 machines."
    )
    published = PUBLISHED
    captions = CAPTIONS
    claims = CLAIMS
    num_quick_seeds = 1

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`."""
        num_clocks = 500 if quick else 3000
        timed = [
            Run(
                key=f"{what}-n={n}-{shape.replace(' ', '_')}{'-slow' * is_slow}-s={bound}-seed={seed}",
                level=Level.VIRTUAL,
                settings={
                    "what": what, "shape": shape, "n": n, "is_slow": is_slow, "bound": bound, "num_clocks": num_clocks
                },
                seed=seed,
                expected_secs=_SECS_PER_STEP * n * num_clocks,
            )
            for shape, n, is_slow in _CLUSTERS
            for bound in BOUNDS
            for what in (RULE, MODEL)
            for seed in seeds
        ]  # fmt: skip
        return [*timed, *(() if quick else bounded_training.runs(seeds)), *bounded_real.runs(quick, seeds)]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        settings = run.settings
        if settings["what"] == bounded_real.REAL:
            return bounded_real.carry_out(run, folder)
        if settings["what"] == bounded_training.TRAINING:
            return bounded_training.carry_out(run)
        n, bound, num_clocks = settings["n"], settings["bound"], settings["num_clocks"]
        compute = compute_of(settings["shape"], n, settings["is_slow"])
        if settings["what"] == MODEL:
            return Measured(predict(compute, n, bound, num_clocks, run.seed))
        update, options = rule_of(bound)
        done = virtual.run(update, options, num_workers=n, compute=compute, num_updates=n * num_clocks, seed=run.seed)
        steps = done.step_records(_NUM_LOGGED_STEPS) if run.seed == 0 else ()
        return Measured(figures_of(done.schedule), steps)

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        cases = cases_of(results)
        bounded = [case for case in cases if case.bound is not None]
        transient = [own for own in by_cluster(cases).values() if not next(iter(own.values())).is_slow]
        alike = [case for case in cases if not case.is_slow]
        arms, real_cases = bounded_training.arms_of(results), bounded_real.cases_of(results)
        on_clusters = bounded_real.measures(real_cases)
        untold = {} if arms else dict.fromkeys(("work", "interior"), "the quick form trains nothing")
        return Analysis(
            tables=[
                _table(cases),
                *([bounded_training.table_of(arms)] if arms else []),
                *bounded_real.tables(real_cases),
            ],
            measured={
                "wait": [Measure(case.name, abs(case.wait_share - case.predicted_wait_share)) for case in cases],
                "falls": [
                    Measure(case.name, case.wait_share - before.wait_share)
                    for own in transient
                    for before, case in zip(own.values(), list(own.values())[1:], strict=False)
                ],
                "few": [
                    Measure(own[FEW].name, own[FEW].wait_share / own[0].wait_share)
                    for own in transient
                    if FEW in own and 0 in own
                ],
                "barrier": [Measure(case.name, case.rate / case.barrier_rate) for case in alike if case.bound == 0],
                "free": [Measure(case.name, case.rate / case.free_rate) for case in cases if case.bound is None],
                "permanent": [Measure(case.name, case.rate * SLOWNESS) for case in bounded if case.is_slow],
                "bound": [measure for case in bounded for measure in _beyond_bound(case)],
                "staleness": [
                    Measure(case.name, abs(case.mean_staleness - (case.n - 1) / (2 if case.bound == 0 else 1)) / case.n)
                    for case in alike
                    if case.bound in (0, None)
                ],
                **_worth(arms),
                **on_clusters,
            },
            not_testable=untold | {key: real.WHY_NONE for key, measured in on_clusters.items() if not measured},
            notes=[
                "A clock is a step of one worker, of which each is an update. Rates are in clocks per mean step.",
                "A worker that begins a step is at most s completed steps ahead of the slowest. When it has completed"
                " that step it is s + 1 ahead for a moment, and then waits; both are counted.",
                "Slow for good and slow now and then are different things: a lead that the bound allows is used up"
                " once, so that it hides delays that come and go, and none that stay.",
                "With a permanently slow worker the rate without a bound is a mean over workers that drift apart for"
                " ever; its largest lead grows with the length of the run.",
                "The first 20 % of each run are left out of rates and waiting, of the leads nothing is; medians over"
                " the seeds.",
                *(_WHY_UNBOUNDED if arms else ()),
                *(_ON_CLUSTERS if real_cases else ()),
            ],
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        plots = bounded_plots.plots(cases_of(results), bounded_training.arms_of(results))
        return [*plots, *bounded_real.plots(bounded_real.cases_of(results))]


def _beyond_bound(case: Case) -> Iterator[Measure]:
    yield Measure(f"{case.name}, at the begin", case.lead_at_begin - case.bound)
    yield Measure(f"{case.name}, at the end", case.lead_when_done - (case.bound + 1))


def _worth(arms: Sequence[bounded_training.Arm]) -> dict[str, list[Measure]]:
    by_bound = {arm.bound: arm for arm in arms}
    finite = [arm for arm in arms if arm.bound]
    if not finite or 0 not in by_bound or None not in by_bound:
        return {}
    best = min(finite, key=lambda arm: arm.time)
    without, rate = by_bound[None], bounded_training.SAME_RATE
    return {
        "work": [
            Measure(f"learning rate {rate}", without.updates_by_rate[rate] / by_bound[0].updates_by_rate[rate]),
            Measure("best learning rates", without.updates / by_bound[0].updates),
        ],
        "interior": [Measure(f"softmax, n = 8, {bound_name(best.bound)}", without.time / best.time)],
    }


def _table(cases: Sequence[Case]) -> Table:
    columns = (
        *(Column(name="workers"), Column(name="bound")),
        *numbers(".3f", "clock rate", "clock rate, A17"),
        *numbers(".1f", "waiting", "waiting, A17", "waits least", "waits most", unit="%"),
        *numbers(".2f", "mean staleness in updates"),
        *numbers("d", "largest lead at the begin", "at the end"),
    )
    rows = [
        [case.cluster, bound_name(case.bound), case.rate, case.predicted, 100 * case.wait_share]
        + [100 * case.predicted_wait_share, 100 * min(case.wait_by_worker), 100 * max(case.wait_by_worker)]
        + [case.mean_staleness, case.lead_at_begin, case.lead_when_done]
        for case in cases
    ]
    return Table(title="Clock rates and waiting", level=Level.VIRTUAL.value, columns=columns, rows=rows)
