"""Executes an experiment's runs, one after the other; finished runs are not repeated."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.errors import Interrupted, PsTrainerError
from ps_trainer.experiments.harness.base import Experiment, Level, Results, Run, RunResult
from ps_trainer.experiments.harness.cpu import CONTENDED_SHARE, CpuWatch
from ps_trainer.experiments.harness.dependencies import code_version
from ps_trainer.experiments.harness.progress import Progress
from ps_trainer.experiments.harness.store import RunStore

_ERROR_LINES = 40


class Failure(NamedTuple):
    """A run that failed."""

    key: str  # key of the run
    reason: str  # error, with the end of the log


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """An experiment with its planned runs and its finished runs."""

    experiment: Experiment
    quick: bool  # whether it is the quick form
    seeds: Sequence[int]  # seeds of the repetitions
    folder: pathlib.Path  # folder of its files
    store: RunStore  # files of its runs
    runs: Sequence[Run[Any]]  # all of them, in order
    finished: Mapping[str, RunResult]  # key -> result of the runs that are not repeated
    old_versions: Sequence[str]  # other code versions that measured some of these
    remarks: Sequence[str]  # reasons why finished runs are repeated

    @property
    def missing(self) -> list[Run[Any]]:
        """The runs that have not finished."""
        return [run for run in self.runs if run.key not in self.finished]


class Executed(NamedTuple):
    """Results and failures of a job."""

    results: Results  # all finished runs, earlier ones included
    failures: Sequence[Failure]  # the runs that failed


def prepare(
    experiment: Experiment, out_dir: pathlib.Path, *, quick: bool, num_seeds: int | None, keep_runs: bool
) -> Job:
    """Looks for finished runs without starting any run.

    Args:
        experiment: Experiment.
        out_dir: Folder that holds a folder per experiment.
        quick: Whether to prepare the quick form.
        num_seeds: Repetitions; None = as many as the experiment says.
        keep_runs: Whether finished runs of other code count.
    """
    seeds = range(num_seeds or (experiment.num_quick_seeds if quick else experiment.num_seeds))
    runs = experiment.runs(seeds, quick=quick)
    keys = [run.key for run in runs]
    if len(set(keys)) < len(keys):
        raise ValueError(f"{experiment.name}: more than one run has a key of {sorted(keys)}")
    folder = out_dir / experiment.name
    levels = dict.fromkeys(run.level for run in runs)
    versions = {level: code_version(type(experiment), level) for level in levels}
    store = RunStore(folder, versions, experiment.read_figures, keep_runs)
    found = {run.key: store.find(run) for run in runs}
    return Job(
        experiment=experiment,
        quick=quick,
        seeds=seeds,
        folder=folder,
        store=store,
        runs=runs,
        finished={key: there.result for key, there in found.items() if there.result is not None},
        old_versions=sorted({there.version for there in found.values() if there.version} - {*store.versions.values()}),
        remarks=[f"{key} is done again: {there.why_not}" for key, there in found.items() if there.why_not],
    )


def execute(job: Job, progress: Progress) -> Executed:
    """Executes the missing runs; after a failed run, it goes on with the other runs.

    Raises:
        Interrupted, KeyboardInterrupt: A signal came; finished runs are kept.
    """
    results = dict(job.finished)
    failures = []
    for run in job.missing:
        progress.begin(job.experiment.name, run)
        try:
            result = _one(job, run)
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 - any error fails only this run; it is shown and kept
            failures.append(_failure(job, run, error))
            progress.end(job.experiment.name, run, "failed")
            progress.note(f"{job.experiment.name} {run.key} failed: {failures[-1].reason}", style="bold red")
            continue
        results[run.key] = result
        remark = f"CPU-contended, {100 * result.cpu.share:.0f} % busy" if result.is_contended and result.cpu else ""
        progress.end(job.experiment.name, run, remark)
    return Executed(Results(results[run.key] for run in job.runs if run.key in results), failures)


def contended_sentence(results: Results) -> str:
    """A sentence that names the CPU-contended runs; empty without any."""
    keys = [result.run.key for result in results if result.is_contended]
    if not keys:
        return ""
    return (
        f"{len(keys)} of {len(results)} runs kept more than {100 * CONTENDED_SHARE:.0f} % of the cores busy"
        f" (CPU-contended): {', '.join(keys)}."
    )


def others_sentence(results: Results) -> str:
    """A sentence on the share of the cores that other processes used during real runs; empty where it is unknown."""
    used = [r.cpu for r in results if r.run.level is not Level.VIRTUAL and r.cpu is not None]
    shares = [100 * cpu.share * cpu.others_secs / max(cpu.tasks_secs + cpu.others_secs, 1e-9) for cpu in used]
    if not shares:
        return ""
    low, middle, high = (np.percentile(shares, percent) for percent in (10, 50, 90))
    return (
        f"While the {len(shares)} real runs were made, others had {middle:.0f} % of the cores at the median ({low:.0f}"
        f" % to {high:.0f} %, 10th to 90th percentile): other processes, and other machines of this host."
    )


def _one(job: Job, run: Run[Any]) -> RunResult:
    folder = job.store.begin(run)
    started, started_at = time.monotonic(), time.time()
    with CpuWatch() as cpu:
        measured = job.experiment.execute(run, folder)
    wall_secs = time.monotonic() - started
    start, end = measured.window or (started_at, started_at + wall_secs)
    return job.store.finish(run, measured, wall_secs, cpu.between(start, end))


def _failure(job: Job, run: Run[Any], error: Exception) -> Failure:
    folder = job.store.folder / "runs" / run.key
    text = "".join(traceback.format_exception(error))
    (folder / "error.txt").write_text(text, encoding="utf-8")
    # An error of this package explains itself; of any other, the end of the traceback does.
    said = str(error) if isinstance(error, PsTrainerError) else "\n".join(text.splitlines()[-_ERROR_LINES:])
    return Failure(run.key, f"{said}\n(all of it in {folder})")
