"""Experiment: throughput against the number of workers, synchronous and asynchronous; its runs."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Run
from ps_trainer.experiments.toolkit import real_clusters, shaped_clusters
from ps_trainer.experiments.toolkit.calibration import Calibration, calibration_of
from ps_trainer.experiments.toolkit.shaped_hosts import SHORT_QUEUE_SECS
from ps_trainer.launch.hosts_netns import QUEUE_SECS

from . import cases, claims, plots, records, tables
from .cases import Scale
from .records import (
    ALONE_FACTOR,
    ClusterSetting,
    CurveFigures,
    CurveSettings,
    PointFigures,
    RealPointSettings,
    ScaleSettings,
    StepTimes,
)
from .texts import TEXTS

# Packets wake tasks, and each wake-up may wait for a core. On slow links with long compute times, that is a small share
# of a step. Curves bend where they do on links of 200 mbit/s with 200 ms, as TB is the same.
_RATE = "32mbit"
_MEAN_MS = 1250.0
_COUNTS = (1, 2, 4, 8, 16, 32, 64)
_FULL_REAL = (
    *((update, 1, 1, m) for m in (1, 4) for update in (records.ASYNC, records.SYNC)),
    *((update, n, 1, 4) for n in (2, 4, 8) for update in (records.ASYNC, records.SYNC)),
    *((update, 4, 4, 4) for update in (records.ASYNC, records.SYNC)),
    *((update, 8, 2, 4) for update in (records.ASYNC, records.SYNC)),
    *((update, n, 1, 1) for n in (2, 8) for update in (records.ASYNC, records.SYNC)),
    # Not synchronous: of 8 workers with 4 ps tasks, nine runs of ten waited for two cores for up to 6 % of a step.
    *((records.ASYNC, 8, 4, m) for m in (1, 4)),
)
_LONG_QUEUES = ((records.ASYNC, 2, 1, 4), (records.ASYNC, 8, 4, 4))  # repeated with the usual queues of shaped hosts
_QUICK_REAL = ((records.SYNC, 1, 1, 4), (records.SYNC, 3, 3, 4))
_START_SECS = 5.0
_START_SECS_PER_TASK = 0.5

_PAPER_COUNTS = (1, 10, 25, 50, 100, records.NUM_LARGEST)

_SHAPE_KEYS = {records.EVEN: "lognormal", records.RARE: "spike", records.FREQUENT: "frequent"}
_VIRTUAL_SECS_PER_POINT = 0.4


class _ScalePart(Part[ScaleSettings, CurveFigures]):
    """Base of the parts, one for each scale of clusters."""

    figures_type = CurveFigures
    cases = staticmethod(cases.scale_of)

    def why_none(self, cases: Scale) -> str:
        return shaped_clusters.why_not() or real_clusters.WHY_NONE


class OurScale(_ScalePart):
    """Real clusters on shaped hosts, and the same ones and larger ones in virtual time."""

    selects = {"scale": "ours"}
    claims = claims.OF_OUR_SCALE

    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[ScaleSettings]]:
        """Runs on real and virtual clusters; only virtual ones where shaped hosts are not available."""
        runs = [
            _virtual_run("ours", _ours(update, 0, p, megabytes), _COUNTS[:5] if quick else _COUNTS, seed)
            for update in (records.SYNC, records.ASYNC)
            for p in (1, 2, 4)
            for megabytes in (1, 4)
            for seed in (seeds[:1] if quick else seeds)
        ]
        if shaped_clusters.why_not():
            return runs
        real, real_seeds = (_QUICK_REAL, seeds[:1]) if quick else (_FULL_REAL, seeds[: records.NUM_REAL_SEEDS])
        rounds = records.QUICK_ROUNDS if quick else records.ROUNDS
        long_queues = () if quick else _LONG_QUEUES
        return runs + [
            _real_run(_ours(*one), rounds, seed, queue_secs)
            for seed in real_seeds
            for chosen, queue_secs in ((real, SHORT_QUEUE_SECS), (long_queues, QUEUE_SECS))
            for one in chosen
        ]

    def needed_by(self, run: Run[ScaleSettings]) -> Run[ScaleSettings] | None:
        """Returns the run of one worker with the same rule, model and seed, which calibrates the simulator."""
        settings = run.settings
        if not isinstance(settings, RealPointSettings) or settings.cluster.n == 1:
            return None
        return _real_run(settings.cluster._replace(n=1, p=1), settings.rounds, run.seed)

    def execute(self, run: Run[ScaleSettings], folder: pathlib.Path) -> Measured[CurveFigures]:
        if not isinstance(run.settings, RealPointSettings):
            return _simulate(run)
        return self._train(run, run.settings, folder, None)

    def execute_with(self, run: Run[ScaleSettings], folder: pathlib.Path, needed: CurveFigures) -> Measured[Any]:
        """Trains on shaped hosts, and simulates the cluster with the cost of a step that one worker has."""
        if not isinstance(run.settings, RealPointSettings):
            raise TypeError(f"{run.key} is not a run on shaped hosts")
        return self._train(run, run.settings, folder, needed.points["1"].calibration)

    def _train(
        self,
        run: Run[ScaleSettings],
        settings: RealPointSettings,
        folder: pathlib.Path,
        known: Calibration | None,
    ) -> Measured[CurveFigures]:
        setting = settings.cluster
        done = setting.cluster(settings.rate, settings.queue_secs, settings.rounds, run.seed).train(folder)
        times = StepTimes(done.round_secs, records.percentiles([s for secs in done.step_secs.values() for s in secs]))
        calibration = known or calibration_of(done.training, setting.transfer_secs)
        simulated = setting.simulate_long(run.seed, calibration.cost)
        lost = {"sent_again": done.num_retransmitted, "dropped": done.num_dropped}
        per_round = {name: count / settings.rounds for name, count in lost.items()}
        measured = None if known else calibration
        point = _figures(times, simulated.round_secs, **per_round, calibration=measured)
        figures = CurveFigures(points={str(setting.n): point})
        return Measured(
            figures, done.training.steps_as_json() if run.seed == 0 else (), done.training.window, setting.n
        )

    tables = staticmethod(tables.of_ours)
    plots = plots.OF_OURS


class PapersScale(_ScalePart):
    """The paper's numbers of workers and ps tasks, and its model, in virtual time."""

    selects = {"scale": "paper"}
    claims = claims.OF_THE_PAPERS

    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[ScaleSettings]]:
        counts = _PAPER_COUNTS[: 4 if quick else None]
        return [
            _virtual_run("paper", records.paper_setting(update, shape), counts, seed)
            for update in (records.SYNC, records.ASYNC)
            for shape in ((records.RARE,) if quick else records.SHAPE_NAMES)
            for seed in (seeds[:1] if quick else seeds)
        ]

    def execute(self, run: Run[ScaleSettings], folder: pathlib.Path) -> Measured[CurveFigures]:
        return _simulate(run)

    tables = staticmethod(tables.of_papers)
    plots = plots.OF_PAPERS


class ScalingCurve(Experiment):
    """Throughput against the number of workers: where the ps tasks' links end its growth, sync against async."""

    name = "scaling_curve"
    source = "Abadi et al. 2016 (OSDI), section 6.3, Fig. 8; TensorFlow's benchmarks of 2017; Géron 2017, chapter 12"
    texts = TEXTS
    published = claims.PUBLISHED
    parts = (OurScale(), PapersScale())


def _simulate(run: Run[ScaleSettings]) -> Measured[CurveFigures]:
    settings = run.settings
    if not isinstance(settings, CurveSettings):
        raise TypeError(f"{run.key} is not a curve in virtual time")
    points = {}
    for n in settings.counts:
        times = settings.cluster._replace(n=n).simulate_long(run.seed)
        points[str(n)] = _figures(times, times.round_secs)
    return Measured(CurveFigures(points=points))


def _ours(update: str, n: int, p: int, megabytes: int) -> ClusterSetting:
    return ClusterSetting(update, n, p, megabytes * 1_000_000, shaped_clusters.payload_bytes_per_sec(_RATE), _MEAN_MS)


def _virtual_run(scale: str, setting: ClusterSetting, counts: Sequence[int], seed: int) -> Run[ScaleSettings]:
    key = f"L0-{scale}-{setting.update}-p={setting.p}-bytes={setting.num_bytes}-{_SHAPE_KEYS[setting.shape]}-{seed}"
    settings = CurveSettings(cluster=setting, scale=scale, counts=counts)
    return Run(key, settings, seed, _VIRTUAL_SECS_PER_POINT * len(counts))


def _real_run(
    setting: ClusterSetting, rounds: int, seed: int, queue_secs: float = SHORT_QUEUE_SECS
) -> Run[ScaleSettings]:
    """Returns the run of a real cluster whose workers make this number of steps; one that is alone makes more."""
    rounds *= ALONE_FACTOR if setting.n == 1 else 1
    settings: ScaleSettings = RealPointSettings(
        cluster=setting, scale="ours", rate=_RATE, rounds=rounds, queue_secs=queue_secs
    )
    start_secs = _START_SECS + _START_SECS_PER_TASK * (setting.n + setting.p)
    of_queue = "" if queue_secs == SHORT_QUEUE_SECS else f"-queue={queue_secs:g}"
    key = f"L3-{setting.update}-n={setting.n}-p={setting.p}-bytes={setting.num_bytes}{of_queue}"
    secs = start_secs + rounds * setting.simulate(rounds, seed).round_secs
    return Run(f"{key}-seed={seed}", settings, seed, secs, Level.SHAPED)


def _figures(times: StepTimes, simulated_secs: float, **of_cluster: Any) -> PointFigures:
    return PointFigures(**times._asdict(), **of_cluster, simulated_secs=simulated_secs)
