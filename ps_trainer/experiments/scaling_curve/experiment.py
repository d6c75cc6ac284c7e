"""Experiment: throughput against the number of workers, synchronous and asynchronous, with several ps tasks."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab import real as real_runs
from ps_trainer.experiments.lab import shaped
from ps_trainer.experiments.scaling_curve import plots as scaling_plots
from ps_trainer.experiments.scaling_curve.captions import CAPTIONS
from ps_trainer.experiments.scaling_curve.cases import (
    ASYNC,
    EVEN,
    RARE,
    SYNC,
    Curve,
    Point,
    Setting,
    StepTimes,
    curves_of,
    percentiles,
    points_of,
    setting_of,
)
from ps_trainer.experiments.scaling_curve.published import IMAGES_PER_STEP, PUBLISHED
from ps_trainer.experiments.scaling_curve.tables import curve_tables, pair_table, pairs_of, point_table

_RATE = "200mbit"
_ROUNDS = 15
_MEAN_MS = 200.0
_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_FULL_REAL = (
    *((ASYNC, 1, 1, m) for m in (1, 4)),
    *((update, n, 1, 4) for n in (2, 4, 8) for update in (ASYNC, SYNC)),
    *((update, n, 4, 4) for n in (4, 8) for update in (ASYNC, SYNC)),
    *((update, 8, 2, 4) for update in (ASYNC, SYNC)),
    *((update, n, 1, 1) for n in (2, 8) for update in (ASYNC, SYNC)),
    *((update, 8, 4, 1) for update in (ASYNC, SYNC)),
)
_QUICK_REAL = ((ASYNC, 1, 1, 4), (SYNC, 3, 3, 4))
_NUM_REAL_SEEDS = 2
_START_SECS = 5.0
_START_SECS_PER_TASK = 0.5

# The paper's cluster: Inception-v3, batches of 32 that a K40 computes in 32/28 s, links of about 10 gbit/s.
_PAPER_PS = 17
_PAPER_COUNTS = (1, 10, 25, 50, 100, 200)
_PAPER_BYTES = 23_800_000 * 4
_PAPER_BYTES_PER_SEC = 1.0e9
_PAPER_MEAN_MS = 1000 * IMAGES_PER_STEP / 28
_TAIL_WORKERS = (50, 100, 200)

_VIRTUAL_SECS_PER_POINT = 0.4
_WHY_NO_TAIL = "the quick form leaves it out"


class ScalingCurve(Experiment):
    """Throughput against the number of workers: where the ps tasks' links end its growth, sync against async."""

    name = "scaling_curve"
    source = "Abadi et al. 2016 (OSDI), section 6.3, Fig. 8; TensorFlow's benchmarks of 2017; Géron 2017, chapter 12"
    scale_down = (
        "Real clusters of up to 8 workers and 4 ps tasks in network namespaces behind links of 200 mbit/s each way,"
        " with a model of 1 or 4 MB that computes nothing: its workers sleep 200 ms (lognormal, sigma 0.2) between pull"
        " and push, and a step counts as one image. The simulator repeats these and goes on to 64 workers, and to the"
        " paper's 200 with 17 ps tasks and Inception-v3. There, bandwidth (1 GB/s) and compute time (32 images at 28"
        " per second) are derived from published figures, and the distribution of compute times is our assumption."
    )
    published = PUBLISHED
    captions = CAPTIONS
    claims = (
        Claim(
            key="concave",
            sentence="Throughput grows with the number of workers, by less and less",
            measures="throughput of the next larger number of workers over the proportional one",
            limit=Limit(low=0.4, high=1.05),
        ),
        Claim(
            key="knee",
            sentence="Growth ends at n* = p(TB/(2M) + 1) workers, asynchronous ones at twice as many",
            measures="knee over predicted knee",
            limit=Limit(low=1 / 1.5, high=1.5),
        ),
        Claim(
            key="more_ps",
            sentence="More ps tasks move the knee to the right",
            measures="throughput of 8 workers with 4 ps tasks over that with one, 4 MB",
            limit=Limit(low=1.5),
        ),
        Claim(
            key="fit_sync",
            sentence="A synchronous step takes the slowest worker's compute time and then 2nM/(pB) (A1, A10, A13)",
            measures="measured over predicted time of a step",
            limit=Limit(low=0.85, high=1.15),
        ),
        Claim(
            key="fit_async",
            sentence="An asynchronous step takes a compute time and then 2nM/(pB) (A10, A13)",
            measures="measured over predicted time of a step",
            limit=Limit(low=0.85, high=1.15),
        ),
        Claim(
            key="simulator",
            sentence="The simulator gives the real clusters' throughput",
            measures="measured over simulated time of a step",
            limit=Limit(low=0.85, high=1.15),
        ),
        Claim(
            key="median",
            sentence="At the median a synchronous step is little longer than an asynchronous one",
            measures="median step, sync over async, 50 workers, 17 ps, rare long delays (virtual time)",
            limit=Limit(high=1.5),
        ),
        Claim(
            key="tail_rare",
            sentence="Far above the median it is much longer, where long delays are rare",
            measures="99th percentile, sync over async, over the same of the median; 17 ps (virtual time)",
            limit=Limit(low=1.2),
        ),
        Claim(
            key="tail_even",
            sentence="The same where compute times are lognormal with sigma 0.2",
            measures="99th percentile, sync over async, over the same of the median; 17 ps (virtual time)",
            limit=Limit(low=1.2),
        ),
    )

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`; without shaped hosts in virtual time only."""
        counts, paper = (_COUNTS[:5], _PAPER_COUNTS[:4]) if quick else (_COUNTS, _PAPER_COUNTS)
        virtual_seeds = seeds[:1] if quick else seeds
        runs = [
            _virtual_run("ours", _ours(update, 0, p, megabytes), counts, seed)
            for update in (SYNC, ASYNC)
            for p in (1, 2, 4)
            for megabytes in (1, 4)
            for seed in virtual_seeds
        ]
        runs += [
            _virtual_run("paper", _papers(update, shape), paper, seed)
            for update in (SYNC, ASYNC)
            for shape in ((RARE,) if quick else (EVEN, RARE))
            for seed in virtual_seeds
        ]
        if shaped.why_not():
            return runs
        real, real_seeds = (_QUICK_REAL, seeds[:1]) if quick else (_FULL_REAL, seeds[:_NUM_REAL_SEEDS])
        return runs + [_real_run(_ours(*one), seed) for seed in real_seeds for one in real]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        if run.level is Level.VIRTUAL:
            points = {}
            for n in run.settings["counts"]:
                times = setting_of(run.settings, n).simulated_long(run.seed)
                points[str(n)] = _figures(times, times.round_secs)
            return Measured({"points": points})
        setting = setting_of(run.settings)
        done = setting.cluster(run.settings["rate"], run.settings["rounds"], run.seed).train(folder)
        times = StepTimes(done.round_secs, percentiles([s for secs in done.step_secs.values() for s in secs]))
        simulated = setting.simulated_long(run.seed)
        figures = {"points": {str(setting.n): _figures(times, simulated.round_secs)}}
        return Measured(figures, done.training.steps if run.seed == 0 else (), done.training.window)

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        ours, papers = points_of(results, scale="ours"), points_of(results, scale="paper")
        curves, real = curves_of(ours), [point for point in ours if point.level is Level.SHAPED]
        measured = {
            "concave": [measure for curve in curves for measure in _concave(curve)],
            "knee": [Measure(c.name, c.measured_knee() / c.first.setting.knee()) for c in _saturated(curves)],
            "more_ps": _more_ps(ours),
            "fit_sync": _over_predicted(real, SYNC),
            "fit_async": _over_predicted(real, ASYNC),
            "simulator": [Measure(p.name, p.times.round_secs / p.simulated_secs) for p in real],
            "median": [Measure(p.name, p.ratio(50)) for p in pairs_of(papers) if p.is_(RARE, 50)],
            "tail_rare": [
                Measure(p.name, p.ratio(99) / p.ratio(50))
                for p in pairs_of(papers)
                if any(p.is_(RARE, n) for n in _TAIL_WORKERS)
            ],
            "tail_even": [
                Measure(p.name, p.ratio(99) / p.ratio(50))
                for p in pairs_of(papers)
                if any(p.is_(EVEN, n) for n in _TAIL_WORKERS)
            ],
        }
        why = shaped.why_not() or real_runs.WHY_NONE
        return Analysis(
            tables=[*point_table(real), *curve_tables(curves), *pair_table(ours), *pair_table(papers)],
            measured=measured,
            not_testable={key: _WHY_NO_TAIL if key == "tail_even" else why for key, v in measured.items() if not v},
            notes=_NOTES,
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        ours, papers = points_of(results, scale="ours"), points_of(results, scale="paper")
        return scaling_plots.plots(curves_of(ours), curves_of(papers), ours, papers)


_NOTES = (
    "A step is pull, compute, push, one after the other. A ceiling of pB/(2M) steps per second holds for synchronous"
    " workers, who use one direction of a link at a time. Asynchronous ones get out of step, one's pull passes"
    " beside another's push, and the ceiling is pB/M. So A10's 2nM/(pB) is up to twice too long for them beyond the"
    " knee: the sum is refuted there, by up to 1 − 1/2; the simulator, in which pulls and pushes have a link each,"
    " is not.",
    "The closed form and the simulator share a link evenly. A real one serves its queue in order, so that of several"
    " workers that pull at once the first has its parameters long before the last and computes meanwhile. A synchronous"
    " step is shorter by that where transfers fit into the queue (half a second of data): with 8 workers and 1 MB.",
    "Fig. 8's shape, sync near async at the median and far above it in the tail, is a statement about the delays. The"
    " slowest of n is long at the median, too, when every worker's time varies a little (lognormal), and then the"
    " tail is relatively *shorter*, as the maximum of many varies less than one. It takes delays that are long and"
    " rarer than one in n steps, so that most rounds have none.",
    "In virtual time transfers and compute times do not overlap within a worker; TensorFlow begins to push the last"
    " layers' gradients while the first ones' are still computed, which hides a part of them.",
    f"Real runs have {_ROUNDS} steps per worker and {_NUM_REAL_SEEDS} seeds, virtual ones, also those that real ones"
    " are compared with, as many steps as percentiles need: in a short run of few asynchronous workers it matters how"
    " they began. The simulator does not count what a step costs on the machine beside its transfers, some 20 to 40"
    " ms.",
)


def _ours(update: str, n: int, p: int, megabytes: int) -> Setting:
    return Setting(update, n, p, megabytes * 1_000_000, shaped.payload_bytes_per_sec(_RATE), _MEAN_MS)


def _papers(update: str, shape: str) -> Setting:
    return Setting(update, 0, _PAPER_PS, _PAPER_BYTES, _PAPER_BYTES_PER_SEC, _PAPER_MEAN_MS, shape)


def _virtual_run(scale: str, setting: Setting, counts: Sequence[int], seed: int) -> Run:
    return Run(
        key=f"L0-{scale}-{setting.update}-p={setting.p}-bytes={setting.num_bytes}-{setting.shape.split(':')[0]}-{seed}",
        level=Level.VIRTUAL,
        settings={**setting._asdict(), "scale": scale, "counts": list(counts)},
        seed=seed,
        expected_secs=_VIRTUAL_SECS_PER_POINT * len(counts),
    )


def _real_run(setting: Setting, seed: int) -> Run:
    return Run(
        key=f"L3-{setting.update}-n={setting.n}-p={setting.p}-bytes={setting.num_bytes}-seed={seed}",
        level=Level.SHAPED,
        settings={**setting._asdict(), "scale": "ours", "rate": _RATE, "rounds": _ROUNDS},
        seed=seed,
        expected_secs=_START_SECS
        + _START_SECS_PER_TASK * (setting.n + setting.p)
        + _ROUNDS * setting.simulated(_ROUNDS, seed).round_secs,
    )


def _figures(times: StepTimes, simulated_secs: float) -> dict[str, Any]:
    return {**times._asdict(), "simulated_secs": simulated_secs}


def _concave(curve: Curve) -> Iterable[Measure]:
    for point, more in zip(curve.points, curve.points[1:], strict=False):
        proportional = point.rate * more.setting.n / point.setting.n
        yield Measure(f"{curve.name}, {point.setting.n} to {more.setting.n}", more.rate / proportional)


def _saturated(curves: Iterable[Curve]) -> list[Curve]:
    """Curves from one worker to twice the knee or beyond, whose largest rate is the ceiling then."""
    return [c for c in curves if c.first.setting.n == 1 and c.points[-1].setting.n >= 2 * c.first.setting.knee()]


def _more_ps(points: Sequence[Point]) -> list[Measure]:
    of_few = {(p.level, p.setting): p for p in points if p.setting.p == 1}
    found = []
    for point in points:
        one = of_few.get((point.level, point.setting._replace(p=1)))
        is_asked = (point.setting.n, point.setting.p, point.setting.num_bytes) == (8, 4, 4_000_000)
        if one and is_asked:
            found.append(Measure(point.name, point.rate / one.rate))
    return found


def _over_predicted(points: Sequence[Point], update: str) -> list[Measure]:
    own = [point for point in points if point.setting.update == update and point.setting.n > 1]
    return [Measure(point.name, point.times.round_secs / point.setting.predicted_secs()) for point in own]
