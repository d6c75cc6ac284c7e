"""Bounded staleness on real clusters: where the time of processes that sleep goes, and how far they drift apart."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ps_trainer.experiments.bounded_staleness.cases import (
    EXPONENTIAL,
    SHAPES,
    bound_name,
    figures_of,
    largest_leads,
    rule_of,
)
from ps_trainer.experiments.frame.base import Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.lab import real, virtual
from ps_trainer.experiments.lab.clusters import Training
from ps_trainer.experiments.lab.statistics import spread
from ps_trainer.experiments.lab.step_times import with_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL = "real"  # what a run is of
NUM_WORKERS = 4
MEAN_MS = 100.0
BOUNDS = (0, 1, 3, 10, None)

_NUM_CLOCKS = 100
_QUICK_BOUND = 1


def runs(quick: bool, seeds: Sequence[int]) -> list[Run]:
    """Exponential steps under every bound; one of them in the quick form."""
    return [
        Run(
            key=f"L2-n={NUM_WORKERS}-{EXPONENTIAL}-s={bound}-seed={seed}",
            level=real.LEVEL,
            settings={
                "what": REAL,
                "shape": EXPONENTIAL,
                "n": NUM_WORKERS,
                "is_slow": False,
                "bound": bound,
                "num_clocks": _NUM_CLOCKS,
                "mean_ms": MEAN_MS,
            },
            seed=seed,
            expected_secs=real.expected_secs(NUM_WORKERS, 2 * _NUM_CLOCKS * MEAN_MS / 1000),
        )
        for bound in ((_QUICK_BOUND,) if quick else BOUNDS)
        for seed in seeds
    ]


def carry_out(run: Run, folder: pathlib.Path) -> Measured:
    """Trains on a cluster, and simulates the same delays."""
    settings = run.settings
    n, mean_ms = settings["n"], settings["mean_ms"]
    setup = {"num_workers": n, "num_updates": n * settings["num_clocks"]}
    update, options = rule_of(settings["bound"])
    shape = SHAPES[settings["shape"]]
    training = real.train(run, folder, update=update, options=options, compute=[with_mean(shape, mean_ms)], **setup)
    schedule = virtual.run(update, options, compute=[shape], seed=run.seed, **setup).schedule
    simulated = figures_of(schedule)
    measured = figures_of_training(training, n, settings["bound"], mean_ms / 1000)
    figures = real.both(training, measured, simulated | {"waits": float(np.mean(simulated["wait_by_worker"]))})
    return Measured(figures, training.steps if run.seed == 0 else (), training.window)


def figures_of_training(training: Training, num_workers: int, bound: int | None, mean_secs: float) -> dict[str, Any]:
    """What a cluster's run gives, after warm-up but for the lead.

    Returns:
        rate, in clocks per mean step; the shares of a worker's time in which it computes, communicates and waits;
        and the largest lead at the begin of a step.
    """
    own = list(training.by_worker().values())
    periods = [(steps[-1]["t_end"] - steps[0]["t_end"]) / (len(steps) - 1) for steps in own]
    computes = np.array([np.mean([step["injected_delay"] for step in steps[1:]]) for steps in own]) / periods
    # Between two steps a worker does not wait, but it does what belongs to neither computing nor waiting.
    rest = 1.0 - computes
    communicates = rest if bound is None else np.minimum(rest, real.overhead_secs(training) / np.array(periods))
    return {
        "rate": float(np.mean(1 / np.array(periods))) * mean_secs,
        "computes": float(np.mean(computes)),
        "communicates": float(np.mean(communicates)),
        "waits": float(np.mean(rest - communicates)),
        "lead_at_begin": largest_leads(real.as_schedule(training, num_workers))[0],
    }


class Case(NamedTuple):
    """A bound on real clusters, the runs of all seeds.

    Attributes:
        bound: s; None = nobody waits.
        runs: all of them.
    """

    bound: int | None
    runs: Results

    @property
    def name(self) -> str:
        """For tables and claims."""
        return f"L2, n = {NUM_WORKERS}, {EXPONENTIAL}, {bound_name(self.bound)}"

    @property
    def largest_lead(self) -> int:
        """Completed steps by which a worker was ahead of the slowest when it began one; of all runs."""
        return max(one["lead_at_begin"] for one in self.runs.figures("measured"))

    def timed(self) -> Results:
        """The runs whose times count."""
        return self.runs.uncontended()

    def pair(self, name: str) -> real.Pair:
        """A figure of the cluster and of the simulator, of the runs whose times count."""
        return real.pair(self.name, self.timed(), name)

    def median(self, name: str) -> float:
        """A figure of the cluster alone, of the runs whose times count."""
        return spread([one[name] for one in self.timed().figures("measured")]).median


def cases_of(results: Results) -> list[Case]:
    """The cases, in the order of the runs."""
    return [Case(bound, group) for (bound,), group in results.where(what=REAL).by("bound").items()]


def measures(cases: Sequence[Case]) -> dict[str, list[Measure]]:
    """Of the claims about real clusters; leads are of all runs, times of those that had the cores to themselves."""
    timed = [case for case in cases if case.timed()]
    return {
        "real_rate": [Measure(case.name, case.pair("rate").ratio) for case in timed],
        "real_wait": [
            Measure(case.name, abs(waits.measured - waits.simulated))
            for case in timed
            for waits in [case.pair("waits")]
            if case.bound is not None
        ],
        "real_bound": [Measure(case.name, case.largest_lead - case.bound) for case in cases if case.bound is not None],
    }


def tables(cases: Sequence[Case]) -> list[Table]:
    """Clock rates beside the simulator's, and where the time goes; without cases none."""
    if not cases:
        return []
    timed = [case for case in cases if case.timed()]
    columns = (
        Column(name="bound"),
        *numbers(".1f", "computing", "communicating", "waiting", "waiting, simulated", unit="%"),
        *numbers("d", "largest lead at the begin", "runs"),
    )
    rows = []
    for case in cases:
        shares = [None] * 4
        if case in timed:
            names = ("computes", "communicates", "waits")
            shares = [100 * share for share in (*map(case.median, names), case.pair("waits").simulated)]
        rows.append([bound_name(case.bound), *shares, case.largest_lead, len(case.runs)])
    title = f"Real clusters, n = {NUM_WORKERS}, {EXPONENTIAL} steps of {MEAN_MS:g} ms"
    shares_table = Table(title=title, level=real.LEVEL.value, columns=columns, rows=rows)
    rates = [case.pair("rate") for case in timed]
    return [shares_table, *([real.timing_table("clock rate", "clocks per mean step", rates)] if rates else ())]


def plots(cases: Sequence[Case]) -> list[Plot]:
    """Where the time goes; none without runs whose times count."""
    timed = [case for case in cases if case.timed()]
    plot = Plot(
        key="real_shares",
        title="Where the workers' time goes on a real cluster, by the bound on their lead",
        level=real.LEVEL.value,
        draw=lambda figure: _draw(figure, timed),
    )
    return [plot] if timed else []


def _draw(figure: Figure, cases: Sequence[Case]) -> None:
    axis = figure.add_subplot()
    places, bottom = range(len(cases)), np.zeros(len(cases))
    for name, colour in (("computes", "tab:blue"), ("communicates", "tab:orange"), ("waits", "tab:red")):
        shares = np.array([case.median(name) for case in cases])
        axis.bar(places, shares, bottom=bottom, color=colour, alpha=0.8, label=name)
        bottom += shares
    axis.plot(places, [1 - case.pair("waits").simulated for case in cases], "k_", ms=20, label="waits above, simulated")
    axis.set_xticks(places, ["∞" if case.bound is None else str(case.bound) for case in cases])
    axis.set_xlabel("bound s on the lead, in clocks")
    axis.set_ylabel("share of the workers' time")
    axis.legend(loc="lower right", frameon=True)
