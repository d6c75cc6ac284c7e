"""Runs of the experiment on the synchronous null step."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Run, runs_of_seeds
from ps_trainer.experiments.toolkit import goodput, shaped_clusters, virtual_run
from ps_trainer.experiments.toolkit.clusters import QUIET, Cluster, Training, flags_of
from ps_trainer.experiments.toolkit.context_switches import SwitchWatch
from ps_trainer.experiments.toolkit.shaped_clusters import ShapedCluster
from ps_trainer.experiments.toolkit.sized_settings import DIM
from ps_trainer.experiments.toolkit.statistics import without_warmup

from . import claims, plots, tables
from .cases import (
    BLOCK_STEPS,
    LEARNING_RATE,
    MEGABYTE,
    PAPER_BYTES_PER_SEC,
    PAPER_PS,
    PAPER_STEP_SECS,
    ROWS_PER_STEP,
    Curve,
    NullStepFigures,
    NullSteps,
    RealStepSettings,
    StepSettings,
    TableFigures,
    TransferFigures,
    loss_error,
    null_steps_of,
    num_values,
    skew_ms,
    step_ms,
    step_ms_by_table,
)
from .texts import TEXTS

RATE = "50mbit"

_MODULE = "ps_trainer.experiments.toolkit.sized_models"
_NUM_VIRTUAL_UPDATES = 200

_START_SECS = 4.0
_START_SECS_PER_TASK = 0.5
_VIRTUAL_SECS_PER_WORKER = 0.01
_PAPER_COUNTS = (1, 2, 5, 10, 25, 50, 100)
_QUICK_PAPER_COUNTS = (1, 10, 100)
_BYTES_PER_SEC = 5.97e6  # approximate rate of a shaped link, only for the estimate of the remaining time


class _StepPlan(NamedTuple):
    """Runs of one case."""

    curve: Curve
    megabytes: int  # size of all parameters
    n: int  # number of workers
    p: int  # number of ps tasks
    updates: int  # number of updates
    delay_ms: int = 0  # sleep of each worker between pull and push, so that processes find the cores idle


def _paced(curve: Curve, megabytes: int, n: int, p: int, updates: int) -> _StepPlan:
    """Returns a plan whose workers sleep so long that tasks wait for two cores for less than 2 % of a step.

    Threads that wake each other wait for cores, whatever the sleep. On an idle machine they waited for 5 ms of a step
    of one worker and one ps task, for 12 ms with 4 workers, and for more than 50 ms with 4 workers and 4 ps tasks. So
    the sleep grows with both numbers. It also grows with the bytes of dense models: with 16 MB, tasks of one worker
    waited for 34 ms.
    """
    more = 1 + megabytes // 3 if curve is Curve.DENSE else 1
    return _StepPlan(curve, megabytes, n, p, updates, 200 * (n + 1) * p * more)


_SCALAR, _DENSE, _SPARSE, _GOODPUT = Curve.SCALAR, Curve.DENSE, Curve.SPARSE, Curve.GOODPUT
_TABLES = Curve.TABLES
_PAIR_UPDATES = 2 * BLOCK_STEPS  # a block of each table; a fifth of the pairs of blocks is warm-up
_LOCAL = (
    *(_paced(_SCALAR, 0, n, 1, updates) for n, updates in ((1, 25), (2, 12), (4, 12), (8, 15))),
    *(_paced(_SCALAR, 0, 1, p, 10) for p in (2, 4)),
    *(_paced(_SPARSE, size, 1, 1, 25) for size in (16, 256)),
    *(_paced(_SPARSE, size, 4, 1, 10) for size in (16, 256)),
    # For their bytes: during a sleep, processes exchange bytes that belong to no step.
    *(_StepPlan(_SPARSE, size, 4, 4, 25) for size in (16, 256)),
    *(_paced(_DENSE, size, 1, 1, updates) for size, updates in ((1, 10), (4, 10), (16, 7), (64, 5))),
    *(_paced(_DENSE, 4, n, 1, 10) for n in (2, 4)),
    _paced(_TABLES, 16, 1, 1, 12 * _PAIR_UPDATES),
    _paced(_TABLES, 16, 4, 1, 8 * _PAIR_UPDATES),
)
_SHAPED = (
    _StepPlan(_GOODPUT, 0, 1, 1, 3),
    *(_paced(_SCALAR, 0, n, 1, 12) for n in (1, 4)),
    *(_paced(_SPARSE, size, 2, 1, 12) for size in (16, 256)),
    _paced(_TABLES, 16, 2, 1, 8 * _PAIR_UPDATES),
    _StepPlan(_DENSE, 1, 2, 1, 30),
    _StepPlan(_DENSE, 4, 2, 1, 15),
    _StepPlan(_DENSE, 16, 2, 1, 8),
    *(_StepPlan(_DENSE, 4, n, 1, 8) for n in (1, 4, 8)),
)
_QUICK_LOCAL = (
    _paced(_SCALAR, 0, 1, 1, 12),
    _paced(_SCALAR, 0, 4, 1, 10),
    _paced(_SPARSE, 16, 1, 1, 12),
    _paced(_TABLES, 1, 1, 1, 4 * _PAIR_UPDATES),
    _paced(_DENSE, 16, 1, 1, 5),
)
_QUICK_SHAPED = (_StepPlan(_GOODPUT, 0, 1, 1, 2), _StepPlan(_DENSE, 1, 2, 1, 8), _StepPlan(_DENSE, 4, 2, 1, 4))


class SourceScale(Part[StepSettings, NullStepFigures]):
    """The source's numbers of workers and ps tasks in virtual time."""

    figures_type = NullStepFigures
    selects = {"level": Level.VIRTUAL}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[StepSettings]]:
        counts = _QUICK_PAPER_COUNTS if quick else _PAPER_COUNTS
        return [run for place in PAPER_STEP_SECS for n in counts for run in _virtual_runs(seeds[:1], *place, n)]

    def execute(self, run: Run[StepSettings], folder: pathlib.Path) -> Measured[NullStepFigures]:
        return Measured(NullStepFigures(step_ms=_virtual_step_ms(run.settings, run.seed)))


class PlainTransfers(Part[RealStepSettings, TransferFigures]):
    """TCP transfers over a shaped link; no runs on machines that cannot shape hosts."""

    figures_type = TransferFigures
    selects = {"curve": Curve.GOODPUT}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealStepSettings]]:
        return [run for run in _shaped_runs(seeds, quick=quick) if self.owns(run)]

    def execute(self, run: Run[RealStepSettings], folder: pathlib.Path) -> Measured[TransferFigures]:
        return Measured(TransferFigures(bytes_per_sec=goodput.measure(RATE, run.settings.updates)))


class TablesByTurns(Part[RealStepSettings, TableFigures]):
    """Sparse steps that read a small and a large table by turns, so that a change of the machine affects both."""

    figures_type = TableFigures
    selects = {"curve": Curve.TABLES}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealStepSettings]]:
        return [run for run in _real_runs(seeds, quick=quick) if self.owns(run)]

    def execute(self, run: Run[RealStepSettings], folder: pathlib.Path) -> Measured[TableFigures]:
        training = _train(run, folder).training
        small_ms, large_ms = step_ms_by_table(training)
        steps = training.steps_as_json() if run.seed == 0 else ()
        return Measured(TableFigures(small_ms=small_ms, large_ms=large_ms), steps, training.window, run.settings.n)


class RealSteps(Part[RealStepSettings, NullStepFigures]):
    """Processes on one machine and on shaped hosts, and the claims over all parts."""

    figures_type = NullStepFigures
    claims = claims.CLAIMS
    sees_all = True

    def runs(self, seeds: Sequence[int], *, quick: bool) -> list[Run[RealStepSettings]]:
        others = (Curve.GOODPUT, Curve.TABLES)
        return [run for run in _real_runs(seeds, quick=quick) if run.settings.curve not in others]

    def execute(self, run: Run[RealStepSettings], folder: pathlib.Path) -> Measured[NullStepFigures]:
        with SwitchWatch() as switches:
            training, moved_bytes, sent_again, dropped = _train(run, folder)
        num_switches, num_updates = switches.between(*training.window), len(training.warm_steps) / run.settings.n
        figures = NullStepFigures(
            step_ms=step_ms(training),
            skew_ms=skew_ms(training),
            bytes_per_step=moved_bytes,
            loss_error=loss_error(training, run.settings.curve, num_values(run.settings)),
            switches_per_step=None if num_switches is None else num_switches / num_updates,
            sent_again_per_step=sent_again,
            dropped_per_step=dropped,
        )
        return Measured(figures, training.steps_as_json() if run.seed == 0 else (), training.window, run.settings.n)

    cases = staticmethod(null_steps_of)

    def why_none(self, cases: NullSteps) -> str:
        return shaped_clusters.why_not() or claims.CONTENDED

    notes = staticmethod(tables.notes)
    tables = staticmethod(tables.tables)
    plots = plots.PLOTS


class NullStep(Experiment):
    """Synchronous steps that compute nothing: scalar, dense and sparse parameters against the number of workers."""

    name = "null_step"
    source = "Abadi et al. 2016 (OSDI), section 6.2, Fig. 7"
    texts = TEXTS
    published = claims.PUBLISHED
    parts = (SourceScale(), PlainTransfers(), TablesByTurns(), RealSteps())
    num_quick_seeds = 1


def _real_runs(seeds: Sequence[int], *, quick: bool) -> list[Run[RealStepSettings]]:
    """Plans the runs of processes, and those on shaped hosts where there are any."""
    local = [run for plan in (_QUICK_LOCAL if quick else _LOCAL) for run in _runs_of(plan, Level.PROCESSES, seeds)]
    return local + _shaped_runs(seeds, quick=quick)


def _shaped_runs(seeds: Sequence[int], *, quick: bool) -> list[Run[RealStepSettings]]:
    """Plans the runs on shaped hosts; none on machines that cannot shape hosts."""
    plans = () if shaped_clusters.why_not() else (_QUICK_SHAPED if quick else _SHAPED)
    return [run for plan in plans for run in _runs_of(plan, Level.SHAPED, seeds)]


def _runs_of(plan: _StepPlan, level: Level, seeds: Sequence[int]) -> list[Run[RealStepSettings]]:
    settings = RealStepSettings(
        curve=plan.curve, megabytes=plan.megabytes, n=plan.n, p=plan.p, updates=plan.updates, delay_ms=plan.delay_ms
    )
    steps_secs = plan.updates * (_step_secs(plan, level) + plan.delay_ms / 1000)
    return runs_of_seeds(
        seeds,
        f"{level.value[:2]}-{plan.curve}-{plan.megabytes:g}MB-n={plan.n}-p={plan.p}",
        settings,
        _START_SECS + _START_SECS_PER_TASK * (plan.n + plan.p) + steps_secs,
        level,
        # On shaped hosts tasks that do not sleep wait for their links.
        is_paced=bool(plan.delay_ms) or level is Level.SHAPED,
    )


def _step_secs(plan: _StepPlan, level: Level) -> float:
    """Returns the approximate duration of a step without its sleep, or of a transfer."""
    if plan.curve is Curve.GOODPUT:
        return 1.0
    if plan.curve is not Curve.DENSE:
        return 0.01
    if level is Level.SHAPED:
        return 2 * plan.megabytes * MEGABYTE * max(1, plan.n / plan.p) / _BYTES_PER_SEC
    return 0.01 + 0.002 * plan.megabytes


def _virtual_runs(seeds: Sequence[int], curve: Curve, megabytes: int, n: int) -> list[Run[StepSettings]]:
    settings = StepSettings(curve=curve, megabytes=megabytes, n=n, p=PAPER_PS)
    return runs_of_seeds(seeds, f"L0-{curve}-{megabytes}MB-n={n}", settings, _VIRTUAL_SECS_PER_WORKER * n)


def _virtual_step_ms(settings: StepSettings, seed: int) -> list[float]:
    """Returns the times between updates at the source's scale, in ms, without warm-up."""
    curve, megabytes = settings.curve, settings.megabytes
    alone_ms = 1000 * PAPER_STEP_SECS[(Curve.SCALAR, 0) if curve is Curve.DENSE else (curve, megabytes)][1]
    model_bytes = {
        Curve.SCALAR: 4 * PAPER_PS,
        Curve.DENSE: megabytes * MEGABYTE,
        Curve.SPARSE: ROWS_PER_STEP * DIM * 4,
    }[curve]
    done = virtual_run.run(
        "sync",
        num_workers=settings.n,
        num_ps=PAPER_PS,
        # The median of an exponential step is its mean times ln 2.
        compute=[f"exp:mean_ms={alone_ms / np.log(2):.6g}"],
        num_updates=_NUM_VIRTUAL_UPDATES,
        seed=seed,
        model_bytes=model_bytes,
        worker_bytes_per_sec=PAPER_BYTES_PER_SEC,
        ps_bytes_per_sec=PAPER_BYTES_PER_SEC,
    )
    return without_warmup((1000 * np.diff(done.schedule.update_secs)).tolist())[0]


class _Trained(NamedTuple):
    """A training, with figures per step."""

    training: Training
    moved_bytes: float  # that its last worker received and sent
    sent_again: float | None = None  # TCP segments of all hosts; None without shaped hosts
    dropped: float | None = None  # packets to all hosts that found a queue full; None without shaped hosts


def _train(run: Run[RealStepSettings], folder: pathlib.Path) -> _Trained:
    n, p = run.settings.n, run.settings.p
    fields = _training_settings(run)
    if run.level is Level.SHAPED:
        done = ShapedCluster(num_workers=n, num_ps=p, rate=RATE, settings=fields).train(folder)
        lost = (done.num_retransmitted / run.settings.updates, done.num_dropped / run.settings.updates)
        return _Trained(done.training, sum(done.bytes_per_round[f"worker-{n - 1}"]), *lost)
    flags = flags_of({**QUIET, **fields})
    training = Cluster(num_workers=n, num_ps=p, flags=flags, deadline_secs=10 * run.expected_secs).train(folder)
    last = training.summary["workers"][str(n - 1)]  # not the chief, which also reads the parameters that it saves
    return _Trained(training, last["push_bytes_per_step"] + last["pull_bytes_per_step"])


def _training_settings(run: Run[RealStepSettings]) -> dict[str, Any]:
    settings = run.settings
    is_pair = settings.curve is Curve.TABLES
    is_table = settings.curve is Curve.SPARSE or is_pair
    option = "num_rows" if is_table else "num_values"
    blocks = (f"block_examples={BLOCK_STEPS * ROWS_PER_STEP}", f"num_workers={settings.n}")
    delay = {"straggler": (f"det:jitter=0,mean_ms={settings.delay_ms}",)} if settings.delay_ms else {}
    return {
        "model": f"{_MODULE}:{'TwoTables' if is_pair else 'Sparse' if is_table else 'Dense'}",
        "model_option": (f"{option}={num_values(settings)}",),
        "dataset": f"{_MODULE}:{'AlternatingIds' if is_pair else 'RandomIds'}",
        "dataset_option": blocks if is_pair else (),
        "batch_size": ROWS_PER_STEP,
        "learning_rate": LEARNING_RATE,
        "update": "sync",
        "max_steps": settings.updates,
        "seed": run.seed,
        **delay,
    }
