"""Experiment: the distribution of gradient staleness."""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.lab import real, theory, virtual
from ps_trainer.experiments.lab.statistics import of_histogram
from ps_trainer.experiments.staleness_distribution import plots as staleness_plots
from ps_trainer.experiments.staleness_distribution.captions import CAPTIONS
from ps_trainer.experiments.staleness_distribution.cases import (
    EVEN,
    EXPONENTIAL,
    MODERATE,
    SHAPES,
    SLOW_RATES,
    Case,
    cases_of,
    compute_of,
    histograms_as_json,
    table_of,
    worker_table_of,
)

PAPER_LEARNERS = 30

_VIRTUAL_MEAN_MS = 100.0
_NUM_LOGGED_STEPS = 500
_VIRTUAL_SECS_PER_UPDATE = 1.5e-5


class StalenessDistribution(Experiment):
    """How stale gradients are: n − 1 on average, whatever the delays, with a shape that the delays decide."""

    name = "staleness_distribution"
    source = (
        "Zhang, Gupta, Lian and Liu 2016, section 2.4, Fig. 1; Hermans 2017, thesis; TensorFlow's docstring of"
        " SyncReplicasOptimizer; Mitliagkas et al. 2016"
    )
    scale_down = (
        "Asynchronous updates and n-softsync. In virtual time nothing but the drawn step times takes time, and no"
        " gradient is computed. The real clusters are processes on one machine whose workers sleep between pull and"
        " push. The papers' learners were machines."
    )
    published = (
        Published(
            what=f"largest share of gradients staler than 2n, n-softsync with {PAPER_LEARNERS} learners",
            value=1e-4,
            unit="",
            tag=Tag.READ,
            source="Zhang et al. 2016, section 2.4",
        ),
        Published(what="mean staleness of 15-softsync", value=15, unit="", tag=Tag.READ, source="Zhang et al. 2016"),
        Published(what="mean staleness of 30-softsync", value=30, unit="", tag=Tag.READ, source="Zhang et al. 2016"),
        Published(
            what="mean staleness of n asynchronous workers, n − 1, at n = 60", value=59, unit="", tag=Tag.READ,
            source="Hermans 2017",
        ),
    )  # fmt: skip
    captions = CAPTIONS
    claims = (
        Claim(
            key="mean",
            sentence="The mean staleness of n asynchronous workers is n − 1, whatever the delays and the mix of speeds",
            measures="|mean − (n − 1)| / n",
            limit=Limit(high=0.05),
        ),
        Claim(
            key="spike",
            sentence="With nearly even steps almost every gradient has the staleness n − 1",
            measures="standard deviation of the staleness / n",
            limit=Limit(high=0.1),
        ),
        Claim(
            key="geometric",
            sentence="With exponential steps the staleness is geometric",
            measures="Kolmogorov–Smirnov distance to the geometric distribution of mean n − 1",
            limit=Limit(high=0.05),
        ),
        Claim(
            key="per_worker",
            sentence="A worker's mean staleness is the others' rate over its own: slow ones carry the stale gradients",
            measures="a worker's measured over predicted mean staleness",
            limit=Limit(low=0.9, high=1.1),
        ),
        Claim(
            key="softsync",
            sentence="With c gradients to an update the mean staleness is (n − 1)/c updates",
            measures="measured over predicted mean staleness",
            limit=Limit(low=0.9, high=1.1),
        ),
        Claim(
            key="tail",
            sentence="Fewer than 1 in 10,000 gradients are staler than 2n/c updates when steps are nearly even",
            measures="share of gradients staler than 2n/c",
            limit=Limit(high=1e-4),
        ),
        Claim(
            key="heavy_tail",
            sentence="With exponential steps (1 − 1/n)^(2n+1) of the gradients are staler than 2n: up to one in eight",
            measures="|measured − predicted share| of gradients staler than 2n",
            limit=Limit(high=0.03),
        ),
    )

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`."""
        num_updates = 5_000 if quick else 20_000
        counts = (2, 4, 8) if quick else (2, 4, 8, 16)
        settings = [{"n": n, "shape": shape} for n in counts for shape in SHAPES]
        settings += [{"n": 4, "shape": shape, "is_slow": True} for shape in SHAPES]
        settings += [{"n": 8, "shape": MODERATE, "splits": 8 // c} for c in (2, 4, 8)]
        if not quick:
            settings += [{"n": n, "shape": shape} for n in (10, 20, 30, 60) for shape in (EVEN, EXPONENTIAL)]
            settings += [{"n": PAPER_LEARNERS, "shape": EVEN, "splits": splits} for splits in (1, 15)]
        runs = [_virtual_run(one, num_updates, seed) for one in settings for seed in seeds]
        if quick:
            return [*runs, _real_run({"n": 4, "shape": MODERATE}, 600, seeds[0])]
        real_settings = [{"n": n, "shape": shape} for n in counts for shape in SHAPES]
        real_settings += [{"n": 4, "shape": EXPONENTIAL, "is_slow": True}]
        real_settings += [{"n": 8, "shape": MODERATE, "splits": 8 // c} for c in (2, 4)]
        # Means and spikes need few updates. To know a distribution, exponential steps have two seeds.
        return runs + [
            _real_run(one, 3_200, seed)
            for one in real_settings
            for seed in seeds[: 2 if one["shape"] == EXPONENTIAL and "is_slow" not in one else 1]
        ]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        settings = run.settings
        splits = settings.get("splits")
        update, options = ("softsync", [f"splits={splits}"]) if splits else ("async", [])
        compute = compute_of(settings["shape"], settings.get("is_slow", False), settings["mean_ms"])
        if run.level is Level.VIRTUAL:
            done = virtual.run(
                update,
                options,
                num_workers=settings["n"],
                compute=compute,
                num_updates=settings["num_updates"],
                seed=run.seed,
            )
            steps = done.step_records(_NUM_LOGGED_STEPS) if run.seed == 0 else ()
            return Measured({"staleness": histograms_as_json(done.staleness_by_worker())}, steps)
        training = real.train(
            run,
            folder,
            update=update,
            options=options,
            num_workers=settings["n"],
            compute=compute,
            num_updates=settings["num_updates"],
        )
        by_worker = {
            worker: Counter(step["staleness"] for step in steps if step["staleness"] is not None)
            for worker, steps in training.by_worker().items()
        }
        figures = {"staleness": histograms_as_json(by_worker), "steps_per_sec": training.steps_per_sec}
        return Measured(figures, training.steps if run.seed == 0 else (), training.window)

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        cases = cases_of(results.uncontended())
        alone = [case for case in cases if case.per_update == 1]
        even, exponential = (
            [case for case in alone if case.shape == shape and not case.is_slow] for shape in (EVEN, EXPONENTIAL)
        )
        slow = [case for case in alone if case.is_slow]
        mild = [case for case in cases if case.shape == EVEN and not case.is_slow]
        tables = [table_of(group) for group in _by_level(cases)] + [worker_table_of(group) for group in _by_level(slow)]
        return Analysis(
            tables=tables,
            measured={
                "mean": [Measure(c.name, abs(c.summary.mean - c.predicted_mean) / c.n) for c in alone],
                "spike": [Measure(c.name, c.summary.sd / c.n) for c in even],
                "geometric": [Measure(c.name, c.ks_to_geometric()) for c in exponential],
                "per_worker": [one for c in slow for one in _worker_measures(c)],
                "softsync": [Measure(c.name, c.summary.mean / c.predicted_mean) for c in cases if c.per_update > 1],
                "tail": [Measure(c.name, c.share_above(2 * c.n // c.per_update)) for c in mild],
                "heavy_tail": [
                    Measure(c.name, abs(c.share_above(2 * c.n) - (1 - 1 / c.n) ** (2 * c.n + 1))) for c in exponential
                ],
            },
            notes=[
                "The mean counts gradients that are on their way, so it does not depend on the delays; only idle"
                " gaps between a push and the next pull (below n − 1) or parameters pulled ahead (above) change it.",
                "The sources' bound of 2n on the staleness is a statement about even step times: see the last claim.",
                "The first 20 % of each run are left out; seeds are pooled.",
                "Real steps that are to be even are so only while a core is free at once: what others take of the cores"
                " spreads the staleness of even steps, and makes that of exponential ones less than geometric. The mean"
                " stays n − 1.",
            ],
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        cases = cases_of(results.uncontended())
        return [plot for group in _by_level(cases) for plot in staleness_plots.plots(group)]


def _virtual_run(settings: Mapping[str, Any], num_updates: int, seed: int) -> Run:
    gradients = num_updates * settings["n"] / settings.get("splits", settings["n"])
    return Run(
        key=_key("L0", settings, seed),
        level=Level.VIRTUAL,
        settings={**settings, "mean_ms": _VIRTUAL_MEAN_MS, "num_updates": num_updates},
        seed=seed,
        expected_secs=_VIRTUAL_SECS_PER_UPDATE * gradients,
    )


def _real_run(settings: Mapping[str, Any], num_updates: int, seed: int) -> Run:
    n = settings["n"]
    mean_ms = real.mean_ms(n)
    gradients = num_updates * n / settings.get("splits", n)
    return Run(
        key=_key("L2", settings, seed),
        level=real.LEVEL,
        settings={**settings, "mean_ms": mean_ms, "num_updates": num_updates},
        seed=seed,
        expected_secs=real.expected_secs(n, gradients / n * mean_ms / 1000),
    )


def _key(level: str, settings: Mapping[str, Any], seed: int) -> str:
    return "-".join([level, *(f"{name}={value}" for name, value in settings.items()), f"seed={seed}"])


def _by_level(cases: Iterable[Case]) -> list[list[Case]]:
    groups: dict[Level, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.level, []).append(case)
    return list(groups.values())


def _worker_measures(case: Case) -> list[Measure]:
    predicted = theory.worker_staleness(SLOW_RATES)
    return [
        Measure(f"{case.name}, worker {worker}", of_histogram(counts).mean / predicted[worker])
        for worker, counts in case.by_worker.items()
    ]
