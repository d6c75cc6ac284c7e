"""Backup workers on real clusters: the true barrier of a few processes that sleep."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.backup_workers.cases import (
    BARRIER,
    EXPONENTIAL,
    MODERATE,
    PERSISTENT,
    RULE_NAMES,
    SHAPES,
    SHIFTED,
    figures_of,
    options_of,
    predict,
)
from ps_trainer.experiments.backup_workers.tables import contributions, contributions_table
from ps_trainer.experiments.frame.base import Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.lab import real, theory, virtual
from ps_trainer.experiments.lab.clusters import Training
from ps_trainer.experiments.lab.statistics import WARMUP_SHARE, spread
from ps_trainer.experiments.lab.step_times import with_mean

MEAN_MS = 120.0  # with up to 12 workers at most 85 gradients per second, which leave two cores mostly idle
NUM_NEEDED = 8
BACKUPS = (0, 1, 2, 4)

_NUM_UPDATES = {0: 60, 1: 60, 2: 100, 4: 100}  # by b; drops are counted to one in a hundred
_NUM_DECIDING_SEEDS = 3
_NUM_SLOW_UPDATES = 15  # with one slow worker and no backup worker, where an update takes ten mean steps
_NUM_QUICK_UPDATES = 80
_QUICK_MS = 80.0
_SHAPES = (EXPONENTIAL, MODERATE, PERSISTENT)
# Mean steps that an update takes at most, for the time left.
_LONGEST_STEPS = {EXPONENTIAL: 2.7, MODERATE: 1.9, PERSISTENT: 1.5, SHIFTED: 1.4}
_SLOWEST_STEPS = 10.0


def runs(quick: bool, seeds: Sequence[int]) -> list[Run]:
    """N = 8 workers with 0 to 4 backup workers; one short run in the quick form.

    A run and its simulation take the same delays, so that one seed decides whether they agree. Whether backup workers
    pay under lognormal steps is what the delays decide: those runs have three seeds.
    """
    if quick:
        return [_run(MODERATE, 4, 1, _NUM_QUICK_UPDATES, _QUICK_MS, seeds[0])]
    made = [_run(SHIFTED, NUM_NEEDED, 0, _NUM_UPDATES[0], MEAN_MS, seeds[0])]
    for shape, b in itertools.product(_SHAPES, BACKUPS):
        num_updates = _NUM_SLOW_UPDATES if shape == PERSISTENT and not b else _NUM_UPDATES[b]
        own = seeds[: _NUM_DECIDING_SEEDS if shape == MODERATE and b <= 1 else 1]
        made += [_run(shape, NUM_NEEDED, b, num_updates, MEAN_MS, seed) for seed in own]
    return made


def carry_out(run: Run, folder: pathlib.Path) -> Measured:
    """Trains on a cluster, and simulates the same delays; times in units of the mean step."""
    shape, n, b, rule, mean_ms = (run.settings[name] for name in ("shape", "n", "b", "rule", "mean_ms"))
    setup = {"num_workers": n, "num_updates": run.settings["num_updates"]}
    options = options_of(rule, n, b)
    training = real.train(
        run, folder, update=rule, options=options, compute=[with_mean(SHAPES[shape], mean_ms)], **setup
    )
    simulated = virtual.run(rule, options, compute=[SHAPES[shape]], seed=run.seed, **setup)
    measured = figures_of_training(training, mean_ms / 1000)
    figures = real.both(training, measured, figures_of(simulated, n - b, False))
    figures["models"] = predict(shape, n - b, b, run.settings["num_updates"], run.seed)
    return Measured(figures, training.steps if run.seed == 0 else (), training.window)


def figures_of_training(training: Training, mean_secs: float) -> dict[str, Any]:
    """What a cluster's run gives: the same figures as a simulated one, times after warm-up and in mean steps."""
    updates = real.update_secs(training)
    num_warmup = int(WARMUP_SHARE * len(updates))
    updates = updates[max(0, num_warmup - 1) :]
    secs = np.diff(updates) / mean_secs
    workers = [worker for _, worker in sorted(training.summary["workers"].items(), key=_index)]
    used = [worker["gradients_used"] for worker in workers]
    return {
        "step": float(secs.mean()),
        **dict(zip(("p50", "p10", "p90"), spread(secs), strict=True)),
        "dropped_share": 1.0 - sum(used) / sum(worker["pushes"] for worker in workers),
        "share_by_worker": (np.array(used) / sum(used)).tolist(),
    }


class Case(NamedTuple):
    """Runs that are alike but for their seed.

    Attributes:
        shape: of the step times.
        needed: N.
        backups: b.
        rule: `BARRIER`.
        runs: their results.
    """

    shape: str
    needed: int
    backups: int
    rule: str
    runs: Results

    @property
    def name(self) -> str:
        """For tables and claims."""
        return f"L2, {RULE_NAMES[self.rule]}, N = {self.needed}, {self.shape}, b = {self.backups}"

    def pair(self, name: str) -> real.Pair:
        """A figure of the cluster and of the simulator."""
        return real.pair(self.name, self.runs, name)

    def model(self, name: str) -> float:
        """What a model says of the same delays, in mean steps: "cancelled" (A3) or `BARRIER` (A4)."""
        return spread([one[name] for one in self.runs.figures("models")]).median

    @property
    def share_by_worker(self) -> list[float]:
        """Of the gradients used, each worker's; means over the seeds."""
        return np.mean([one["share_by_worker"] for one in self.runs.figures("measured")], axis=0).tolist()


def cases_of(results: Results) -> list[Case]:
    """The cases of the runs whose times count."""
    groups = results.where(level=real.LEVEL, rule=BARRIER).uncontended().by("shape", "n", "b", "rule")
    return [Case(shape, n - b, b, rule, group) for (shape, n, b, rule), group in groups.items()]


def measures(cases: Sequence[Case]) -> dict[str, list[Measure]]:
    """Of the claims about real clusters."""
    return {
        "real_time": [Measure(case.name, case.pair("step").ratio) for case in cases],
        "real_median": [
            Measure(f"L2, {RULE_NAMES[BARRIER]}", spread(ratios).median)
            for ratios in [[case.pair("p50").ratio for case in cases]]
            if ratios
        ],
        "real_barrier_drop": [
            Measure(case.name, abs(dropped.measured - dropped.simulated))
            for case in cases
            for dropped in [case.pair("dropped_share")]
        ],
        "real_pays": [
            Measure(f"{RULE_NAMES[BARRIER]}, best of b = {', '.join(map(str, best))}", max(best.values()))
            for best in [_speedups(cases, MODERATE)]
            if best
        ],
        "real_restores": list(_restored(cases)),
    }


def tables(cases: Sequence[Case]) -> list[Table]:
    """Times beside the simulator's, what was measured, and who contributes."""
    if not cases:
        return []
    timing = real.timing_table("mean time per update", "mean steps", [case.pair("step") for case in cases])
    return [timing, _figures_table(cases), _contributions_table(cases)]


def _figures_table(cases: Sequence[Case]) -> Table:
    columns = (
        *(Column(name="step times"), Column(name="rule")),
        *numbers("d", "N", "b"),
        *numbers(".2f", "p10", "p50", "p50, simulated", "p90"),
        *numbers(".3f", "time per update", "simulated", "A3", "A4"),
        *numbers(".3f", "normalised speed-up, A5", "simulated speed-up"),
        *numbers(".2f", "dropped", "dropped, simulated", "b/(N + b)", unit="%"),
    )
    rows = []
    for case in cases:
        step, median, dropped = (case.pair(name) for name in ("step", "p50", "dropped_share"))
        speedups = [_speedups(cases, case.shape, of).get(case.backups) for of in ("measured", "simulated")]
        rows.append(
            [case.shape, RULE_NAMES[case.rule], case.needed, case.backups]
            + [case.pair("p10").measured, median.measured, median.simulated, case.pair("p90").measured]
            + [step.measured, step.simulated, case.model("cancelled"), case.model(case.rule), *speedups]
            + [100 * dropped.measured, 100 * dropped.simulated]
            + [100 * case.backups / (case.needed + case.backups)]
        )
    title = "Backup workers on real clusters, times in mean steps"
    return Table(title=title, level=real.LEVEL.value, columns=columns, rows=rows)


def _contributions_table(cases: Sequence[Case]) -> Table:
    rows = [
        [case.shape, RULE_NAMES[case.rule], case.backups]
        + contributions(case.share_by_worker, case.shape == PERSISTENT)
        for case in cases
        if case.backups
    ]
    return contributions_table("real clusters", real.LEVEL.value, rows)


def _speedups(cases: Sequence[Case], shape: str, of: str = "measured") -> Mapping[int, float]:
    """A5 by number of backup workers, those of the mean time per update, without b = 0; empty if that was not run."""
    own = {case.backups: case for case in cases if case.shape == shape}
    if 0 not in own:
        return {}
    times = {b: getattr(case.pair("step"), of) for b, case in own.items()}
    return {b: theory.normalised_speedup(times[0], time, own[b].needed, b) for b, time in times.items() if b}


def _restored(cases: Sequence[Case]) -> Iterator[Measure]:
    without = [case for case in cases if (case.shape, case.backups) == (SHIFTED, 0)]
    for case in cases:
        if without and (case.shape, case.backups) == (PERSISTENT, 1):
            yield Measure(case.name, case.pair("step").measured / without[0].pair("step").measured)


def _run(shape: str, needed: int, b: int, num_updates: int, mean_ms: float, seed: int) -> Run:
    n = needed + b
    settings = {"shape": shape, "size": f"N = {needed}", "n": n, "b": b, "rule": BARRIER}
    steps = _SLOWEST_STEPS if shape == PERSISTENT and not b else _LONGEST_STEPS[shape]
    return Run(
        key=f"L2-{BARRIER}-n={n}-b={b}-{shape.replace(' ', '_')}-seed={seed}",
        level=real.LEVEL,
        settings={**settings, "num_updates": num_updates, "mean_ms": mean_ms},
        seed=seed,
        expected_secs=real.expected_secs(n, num_updates * steps * mean_ms / 1000),
    )


def _index(item: tuple[str, Any]) -> int:
    return int(item[0])
