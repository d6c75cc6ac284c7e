"""Experiment: bulk synchronous, stale synchronous, and asynchronous workers."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence

from ps_trainer.experiments import bounded_plots, bounded_training, virtual
from ps_trainer.experiments.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.bounded_cases import (
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
from ps_trainer.experiments.claims import Claim, Limit, Measure
from ps_trainer.experiments.plots import Plot
from ps_trainer.experiments.published import Published, Tag
from ps_trainer.experiments.tables import Column, Table

_NUM_LOGGED_STEPS = 300
_SECS_PER_STEP = 1e-5
_FEW = 3  # a small bound that takes most of the waiting away
_CLUSTERS = ((EXPONENTIAL, 4, False), (EXPONENTIAL, 8, False), (MODERATE, 8, False), (SHIFTED, 8, False),
             (MODERATE, 4, True))  # fmt: skip
_PS14 = "Li et al. 2014 (OSDI), section 5"
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


class BoundedStaleness(Experiment):
    """What a bound on the lead buys: waiting and clock rates from bulk synchronous to asynchronous workers."""

    name = "bounded_staleness"
    source = "Ho et al. 2013 (stale synchronous parallel); Li et al. 2014 (OSDI), section 5 (bounded delay)"
    scale_down = (
        "In virtual time nothing but the drawn step times takes time. What a step is worth is measured in the full"
        f" form only: softmax regression on digits, {bounded_training.NUM_WORKERS} workers, batch"
        f" {bounded_training.BATCH_SIZE}, the best of {len(bounded_training.RATES)} learning rates. The sources trained"
        " far larger models on up to 1,000 machines."
    )
    published = (
        Published(what="workers' idle time without any delay", value=50, unit="%", tag=Tag.RECALLED, source=_PS14),
        Published(what="workers' idle time with a delay of 16", value=2, unit="%", tag=Tag.RECALLED, source=_PS14),
    )
    claims = (
        Claim(
            key="wait",
            sentence="Workers wait as long as the model of clocks (A17) says",
            measures="|measured − predicted share of the workers' time that they wait|",
            limit=Limit(high=0.08),
            expected=Limit(high=0.03),
        ),
        Claim(
            key="falls",
            sentence="The larger the bound, the less they wait",
            measures="share of time waited minus that under the next smaller bound, no slow worker",
            limit=Limit(high=0.01),
        ),
        Claim(
            key="few",
            sentence=f"A bound of {_FEW} clocks takes most of the waiting away where delays are transient",
            measures=f"share of time waited under s = {_FEW} over that under s = 0",
            limit=Limit(high=0.5),
        ),
        Claim(
            key="barrier",
            sentence="A bound of 0 is a barrier: a clock takes as long as the slowest worker's step",
            measures="clock rate under s = 0 times the mean of the slowest step",
            limit=Limit(low=0.95, high=1.05),
        ),
        Claim(
            key="free",
            sentence="Without a bound workers make steps as fast as they can",
            measures="clock rate over that of workers that wait for nobody",
            limit=Limit(low=0.95, high=1.05),
        ),
        Claim(
            key="permanent",
            sentence="With one worker that stays slow, all make steps at its rate, whatever the finite bound",
            measures="clock rate over the slow worker's own",
            limit=Limit(low=0.93, high=1.07),
        ),
        Claim(
            key="bound",
            sentence="Who begins a step has completed at most s more than the slowest worker, s + 1 while it waits",
            measures="largest lead minus its bound, at the begin and at the end of a step",
            limit=Limit(high=0),
        ),
        Claim(
            key="staleness",
            sentence="Workers that pull afresh in each step are (n − 1)/2 updates behind if s = 0, n − 1 without one",
            measures="|mean staleness − that| / n, no slow worker",
            limit=Limit(high=0.05),
        ),
        Claim(
            key="work",
            sentence="The larger the bound, the more updates the objective takes",
            measures="updates needed without a bound over those under s = 0",
            limit=Limit(low=1.0),
        ),
        Claim(
            key="interior",
            sentence="With transient delays the objective is reached soonest under a finite bound above 0",
            measures="time to the objective without a bound over the shortest under one above 0, best learning rates",
            limit=Limit(low=1.0),
        ),
    )
    num_quick_seeds = 1
    measures_with = (
        "ps_trainer.experiments.virtual",
        "ps_trainer.experiments.virtual_training",
        "ps_trainer.experiments.bounded_cases",
        "ps_trainer.experiments.bounded_training",
        "ps_trainer.experiments.monte_carlo",
    )

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
        return timed if quick else [*timed, *bounded_training.runs(seeds)]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        settings = run.settings
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
        arms = bounded_training.arms_of(results)
        return Analysis(
            tables=[_table(cases), *([bounded_training.table_of(arms)] if arms else [])],
            measured={
                "wait": [Measure(case.name, abs(case.wait_share - case.predicted_wait_share)) for case in cases],
                "falls": [
                    Measure(case.name, case.wait_share - before.wait_share)
                    for own in transient
                    for before, case in zip(own.values(), list(own.values())[1:], strict=False)
                ],
                "few": [
                    Measure(own[_FEW].name, own[_FEW].wait_share / own[0].wait_share)
                    for own in transient
                    if _FEW in own and 0 in own
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
            },
            not_testable={} if arms else dict.fromkeys(("work", "interior"), "the quick form trains nothing"),
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
            ],
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        return bounded_plots.plots(cases_of(results), bounded_training.arms_of(results))


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
        Column(name="workers"),
        Column(name="bound"),
        Column(name="clock rate", form=".3f"),
        Column(name="clock rate, A17", form=".3f"),
        Column(name="waiting", form=".1f", unit="%"),
        Column(name="waiting, A17", form=".1f", unit="%"),
        Column(name="waits least", form=".1f", unit="%"),
        Column(name="waits most", form=".1f", unit="%"),
        Column(name="mean staleness in updates", form=".2f"),
        Column(name="largest lead at the begin", form="d"),
        Column(name="at the end", form="d"),
    )
    rows = [
        [case.cluster, bound_name(case.bound), case.rate, case.predicted, 100 * case.wait_share]
        + [100 * case.predicted_wait_share, 100 * min(case.wait_by_worker), 100 * max(case.wait_by_worker)]
        + [case.mean_staleness, case.lead_at_begin, case.lead_when_done]
        for case in cases
    ]
    return Table(title="Clock rates and waiting", level=Level.VIRTUAL.value, columns=columns, rows=rows)
