"""Experiment: the synchronous null step, a microbenchmark of what a step costs beside its computation."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.lab import goodput, shaped, virtual
from ps_trainer.experiments.lab.clusters import Cluster, Training
from ps_trainer.experiments.lab.context_switches import SwitchWatch
from ps_trainer.experiments.lab.local_control import QUIET, flags_of
from ps_trainer.experiments.lab.shaped import ShapedCluster
from ps_trainer.experiments.lab.sized_settings import (
    DIM,
    LEARNING_RATE,
    MEGABYTE,
    PAPER_BYTES_PER_SEC,
    PAPER_PS,
    PAPER_STEP_SECS,
    ROWS_PER_STEP,
    Curve,
)
from ps_trainer.experiments.lab.statistics import without_warmup
from ps_trainer.experiments.null_step import plans as null_plans
from ps_trainer.experiments.null_step import plots as null_plots
from ps_trainer.experiments.null_step import tables as null_tables
from ps_trainer.experiments.null_step.captions import CAPTIONS
from ps_trainer.experiments.null_step.cases import (
    Case,
    cases_of,
    link_bytes_per_sec,
    loss_error,
    num_values,
    skew_ms,
    step_ms,
)
from ps_trainer.experiments.null_step.claims import CLAIMS, PUBLISHED

RATE = "200mbit"

_MODULE = "ps_trainer.experiments.lab.sized_models"
_NUM_VIRTUAL_UPDATES = 200
_TABLE_RATIO = 16
_ON_ANY_LEVEL = ("table_size", "sparse_dense", "scalar")  # claims that need no shaped hosts


class NullStep(Experiment):
    """Synchronous steps that compute nothing: scalar, dense and sparse parameters against the number of workers."""

    name = "null_step"
    source = "Abadi et al. 2016 (OSDI), section 6.2, Fig. 7"
    scale_down = (
        "Tasks are processes of one machine (L2), or each in a network namespace behind a link of 200 mbit/s (L3);"
        " 1 to 8 workers and 1 to 4 ps tasks, parameters of 1 to 64 MB, tables of 16 and 256 MB. Where workers would"
        " wait for a core they sleep 50 to 400 ms between pull and push, which is taken off again. The source has 16 ps"
        " tasks, up to 100 workers, and a machine for each: these numbers are run in virtual time (L0), at 10 Gbit/s"
        " per task, which is an assumption; steps there have an exponential part with the source's median of one"
        " worker for scalar and sparse."
    )
    published = PUBLISHED
    captions = CAPTIONS
    claims = CLAIMS
    num_quick_seeds = 2

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`; without runs on shaped hosts where there can be none."""
        return null_plans.runs(quick, seeds, has_links=not shaped.why_not())

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        settings = run.settings
        curve = Curve(settings["curve"])
        if run.level is Level.VIRTUAL:
            return Measured({"step_ms": _virtual_step_ms(curve, settings["megabytes"], settings["n"], run.seed)})
        if curve is Curve.GOODPUT:
            return Measured({"bytes_per_sec": goodput.measure(RATE, settings["updates"])})
        with SwitchWatch() as switches:
            training, moved_bytes = _train(run, folder)
        num_switches, num_updates = switches.between(*training.window), len(training.warm_steps) / settings["n"]
        figures = {
            "step_ms": step_ms(training),
            "skew_ms": skew_ms(training),
            "bytes_per_step": moved_bytes,
            "loss_error": loss_error(training, curve, num_values(settings)),
            "switches_per_step": None if num_switches is None else num_switches / num_updates,
        }
        return Measured(figures, training.steps if run.seed == 0 else (), training.window)

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        cases = cases_of(results)
        timed = [case for case in cases if not case.is_contended]
        bandwidth = link_bytes_per_sec(results)
        on_links = [case for case in timed if case.level is Level.SHAPED and case.curve is Curve.DENSE]
        measured = {
            "applied": [Measure(case.name, case.loss_error) for case in cases if case.loss_error is not None],
            "table_size": list(_table_sizes(timed)),
            "rows_only": [
                Measure(case.name, case.bytes_per_step / case.payload_bytes)
                for case in cases
                if case.curve is Curve.SPARSE and case.bytes_per_step is not None
            ],
            "sparse_dense": list(_sparse_over_dense(timed)),
            "scalar": list(_growth([case for case in timed if case.curve is Curve.SCALAR])),
            "dense_bytes": [
                Measure(case.name, case.bytes_per_step / case.payload_bytes)
                for case in cases
                if case.level is Level.SHAPED and case.curve is Curve.DENSE
            ],
            "bandwidth": [
                Measure(case.name, case.step_ms.median / case.predicted_ms(bandwidth)) for case in on_links if bandwidth
            ],
            "linear": list(_linear(on_links)),
            "phases": [
                Measure(case.name, 1000 * PAPER_STEP_SECS[case.curve, case.megabytes][case.n] / case.step_ms.median)
                for case in cases
                if case.level is Level.VIRTUAL and case.curve is Curve.DENSE and case.n in (1, 100)
            ],
        }
        contended = "every such run was CPU-contended"
        why_not = shaped.why_not() or contended
        return Analysis(
            tables=null_tables.tables(cases, bandwidth),
            measured=measured,
            not_testable={
                key: contended if key in _ON_ANY_LEVEL else why_not for key, values in measured.items() if not values
            },
            notes=null_tables.notes(cases, bandwidth),
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        return null_plots.plots(cases_of(results), link_bytes_per_sec(results))


def _virtual_step_ms(curve: Curve, megabytes: int, n: int, seed: int) -> list[float]:
    """Times between updates at the source's scale, ms, without warm-up."""
    alone_ms = 1000 * PAPER_STEP_SECS[(Curve.SCALAR, 0) if curve is Curve.DENSE else (curve, megabytes)][1]
    model_bytes = {
        Curve.SCALAR: 4 * PAPER_PS,
        Curve.DENSE: megabytes * MEGABYTE,
        Curve.SPARSE: ROWS_PER_STEP * DIM * 4,
    }[curve]
    done = virtual.run(
        "sync",
        num_workers=n,
        num_ps=PAPER_PS,
        # ln 2 of the mean is the median of one worker's exponential step.
        compute=[f"exp:mean_ms={alone_ms / np.log(2):.6g}"],
        num_updates=_NUM_VIRTUAL_UPDATES,
        seed=seed,
        model_bytes=model_bytes,
        worker_bytes_per_sec=PAPER_BYTES_PER_SEC,
        ps_bytes_per_sec=PAPER_BYTES_PER_SEC,
    )
    return without_warmup((1000 * np.diff(done.schedule.update_secs)).tolist())[0]


def _train(run: Run, folder: pathlib.Path) -> tuple[Training, float]:
    """The training, and the bytes that its last worker received and sent in a step."""
    n, p = run.settings["n"], run.settings["p"]
    fields = _training_settings(run)
    if run.level is Level.SHAPED:
        done = ShapedCluster(num_workers=n, num_ps=p, rate=RATE, settings=fields).train(folder)
        return done.training, sum(done.bytes_per_round[f"worker-{n - 1}"])
    flags = flags_of({**QUIET, **fields})
    training = Cluster(num_workers=n, num_ps=p, flags=flags, deadline_secs=10 * run.expected_secs).train(folder)
    last = training.summary["workers"][str(n - 1)]  # the chief also reads what it saves
    return training, last["push_bytes_per_step"] + last["pull_bytes_per_step"]


def _training_settings(run: Run) -> dict[str, Any]:
    settings = run.settings
    is_table = settings["curve"] == Curve.SPARSE
    option = "num_rows" if is_table else "num_values"
    delay = {"straggler": (f"det:jitter=0,mean_ms={settings['delay_ms']}",)} if settings["delay_ms"] else {}
    return {
        "model": f"{_MODULE}:{'Sparse' if is_table else 'Dense'}",
        "model_option": (f"{option}={num_values(settings)}",),
        "dataset": f"{_MODULE}:RandomIds",
        "dataset_option": (),
        "batch_size": ROWS_PER_STEP,
        "learning_rate": LEARNING_RATE,
        "update": "sync",
        "max_steps": settings["updates"],
        "seed": run.seed,
        **delay,
    }


def _table_sizes(cases: Sequence[Case]) -> Iterator[Measure]:
    tables = [case for case in cases if case.curve is Curve.SPARSE and case.level is not Level.VIRTUAL]
    for small in tables:
        for large in tables:
            if large.place == small.place and large.megabytes == _TABLE_RATIO * small.megabytes:
                yield Measure(large.name, abs(large.step_ms.median / small.step_ms.median - 1))


def _sparse_over_dense(cases: Sequence[Case]) -> Iterator[Measure]:
    dense = {(case.place, case.megabytes): case for case in cases if case.curve is Curve.DENSE}
    for case in cases:
        other = dense.get((case.place, case.megabytes))
        if case.curve is Curve.SPARSE and other and case.level is not Level.VIRTUAL:
            yield Measure(case.name, case.step_ms.median / other.step_ms.median)


def _growth(cases: Sequence[Case]) -> Iterator[Measure]:
    for level, p in dict.fromkeys((case.level, case.p) for case in cases):
        own = sorted((case for case in cases if (case.level, case.p) == (level, p)), key=lambda case: case.n)
        alone, most = own[0], own[-1]
        if alone.n == 1 < most.n:
            yield Measure(most.name, most.step_ms.median / alone.step_ms.median / most.n)


def _linear(cases: Sequence[Case]) -> Iterator[Measure]:
    places = {case.place for case in cases}
    for place in sorted(places, key=lambda place: place[1:]):
        sizes = sorted((case for case in cases if case.place == place), key=lambda case: case.megabytes)
        for small, large in pairwise(sizes):
            growth = large.step_ms.median / small.step_ms.median
            yield Measure(large.name, growth / (large.megabytes / small.megabytes))
