"""Executes an experiment's runs, one after the other; finished runs are not repeated."""

from __future__ import annotations

import dataclasses
import pathlib
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.errors import Interrupted, PsTrainerError, RunError
from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.cpu import MAX_DELAYED_SHARE, MAX_OTHERS_SHARE, CpuWatch
from ps_trainer.experiments.harness.dependencies import code_version
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.progress import Progress
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.run_store import RunStore
from ps_trainer.experiments.harness.runs import Results, Run, RunResult

_ERROR_LINES = 40
_MAX_REPETITIONS = 3  # of a run whose times are not comparable


class Failure(NamedTuple):
    """A run that failed."""

    key: str  # key of the run
    reason: str  # error, with the end of the log


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedExperiment:
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


class ExecutionResult(NamedTuple):
    """Results and failures of an experiment."""

    results: Results  # all finished runs, earlier ones included
    failures: Sequence[Failure]  # the runs that failed


def prepare(
    experiment: Experiment,
    out_dir: pathlib.Path,
    *,
    quick: bool,
    num_seeds: int | None,
    keep_runs: bool,
    commit: str = "",
) -> PlannedExperiment:
    """Looks for finished runs without starting any run.

    Args:
        experiment: Experiment.
        out_dir: Folder that holds a folder per experiment.
        quick: Whether to prepare the quick form.
        num_seeds: Repetitions; None = as many as the experiment says.
        keep_runs: Whether finished runs of other code count.
        commit: Commit whose code makes the runs; empty where it is unknown.
    """
    seeds = range(num_seeds or (experiment.num_quick_seeds if quick else experiment.num_seeds))
    runs = experiment.runs(seeds, quick=quick)
    keys = [run.key for run in runs]
    if len(set(keys)) < len(keys):
        raise ValueError(f"{experiment.name}: more than one run has a key of {sorted(keys)}")
    folder = out_dir / experiment.name
    levels = dict.fromkeys(run.level for run in runs)
    versions = {level: code_version(type(experiment), level) for level in levels}
    store = RunStore(folder, versions, experiment.read_figures, keep_runs, commit)
    found = {run.key: store.find(run) for run in runs}
    return PlannedExperiment(
        experiment=experiment,
        quick=quick,
        seeds=seeds,
        folder=folder,
        store=store,
        runs=runs,
        finished={key: search.result for key, search in found.items() if search.result is not None},
        old_versions=sorted(
            {search.version for search in found.values() if search.version} - {*store.versions.values()}
        ),
        remarks=[f"{key} is done again: {search.why_not}" for key, search in found.items() if search.why_not],
    )


def execute(planned: PlannedExperiment, progress: Progress) -> ExecutionResult:
    """Executes the missing runs; after a failed run, it continues with the other runs.

    Raises:
        Interrupted, KeyboardInterrupt: A signal came; finished runs are kept.
    """
    results = dict(planned.finished)
    failures = []
    for run in planned.missing:
        progress.begin(planned.experiment.name, run)
        try:
            repetitions = 0 if _waits_always(run, results) else _MAX_REPETITIONS
            result = _make_comparable(planned, run, _needed_by(planned, run, results), progress, repetitions)
        except Interrupted:
            raise
        except Exception as error:  # noqa: BLE001 - any error fails only this run; it is shown and kept
            failures.append(_record_failure(planned, run, error))
            progress.end(planned.experiment.name, run, "failed")
            progress.note(f"{planned.experiment.name} {run.key} failed: {failures[-1].reason}", style="bold red")
            continue
        results[run.key] = result
        progress.end(
            planned.experiment.name, run, f"not comparable: {_describe_waits(result)}" if result.is_contended else ""
        )
    return ExecutionResult(Results(results[run.key] for run in planned.runs if run.key in results), failures)


def contended_sentence(results: Results) -> str:
    """Returns a sentence that names the runs whose times are not comparable; empty without any."""
    found = [f"{result.run.key} ({_describe_waits(result)})" for result in results if result.is_contended]
    if not found:
        return ""
    return (
        f"The times of {len(found)} of {len(results)} runs are not comparable. Tasks that sleep may wait for a core for"
        f" {100 * MAX_DELAYED_SHARE:g} % of a step, and beside tasks that compute others may use"
        f" {100 * MAX_OTHERS_SHARE:g} % of the cores. Each such run was made up to {1 + _MAX_REPETITIONS} times:"
        f" {', '.join(found)}."
    )


def waits_sentence(results: Results) -> str:
    """Returns a sentence on the waits for cores of the real runs whose tasks sleep; empty without such runs."""
    paced = [result for result in results if result.run.level is not Level.VIRTUAL and result.run.is_paced]
    known = [100 * one.delayed_share for one in paced if one.cpu and one.cpu.delayed_share is not None]
    sentences = []
    if known:
        sentences.append(
            f"In {len(known)} runs whose tasks sleep, they waited for cores for {np.median(known):.1f} % of a step at"
            " the median."
        )
    if len(known) < len(paced):
        sentences.append(f"For how long those of {len(paced) - len(known)} runs waited is not known, so they count.")
    return " ".join(sentences)


def others_sentence(results: Results) -> str:
    """Returns a sentence on the share of the cores that other processes used in real runs; empty if it is unknown."""
    used = [r.cpu for r in results if r.run.level is not Level.VIRTUAL and r.cpu is not None]
    shares = [100 * cpu.others_share for cpu in used]
    if not shares:
        return ""
    low, middle, high = (np.percentile(shares, percent) for percent in (10, 50, 90))
    return (
        f"While the {len(shares)} real runs were made, others had {middle:.0f} % of the cores at the median ({low:.0f}"
        f" % to {high:.0f} %, 10th to 90th percentile): other processes, and other machines of this host."
    )


def _needed_by(planned: PlannedExperiment, run: Run[Any], results: Mapping[str, RunResult]) -> Record | None:
    """Returns the figures of the run that a run needs; None if it needs none.

    Raises:
        RunError: That run failed.
    """
    needed = planned.experiment.needed_by(run)
    if needed is None:
        return None
    if needed.key not in results:
        raise RunError(f"it needs the figures of {needed.key}, which failed")
    figures: Record = results[needed.key].figures
    return figures


def _waits_always(run: Run[Any], results: Mapping[str, RunResult]) -> bool:
    """Returns whether no attempt at the same settings with another seed was comparable, so that more are in vain."""
    return any(
        one.is_contended and one.num_attempts > _MAX_REPETITIONS and one.run.settings == run.settings
        for one in results.values()
    )


def _make_comparable(
    planned: PlannedExperiment, run: Run[Any], needed: Record | None, progress: Progress, repetitions: int
) -> RunResult:
    """Makes a run, again while its times are not comparable; the last attempt counts."""
    for attempt in range(1, 1 + repetitions):
        result = _attempt(planned, run, needed, attempt)
        if not result.is_contended:
            return result
        progress.note(f"{planned.experiment.name} {run.key} is made again: {_describe_waits(result)}", style="yellow")
    return _attempt(planned, run, needed, 1 + repetitions)


def _attempt(planned: PlannedExperiment, run: Run[Any], needed: Record | None, attempt: int) -> RunResult:
    folder = planned.store.begin(run)
    started, started_at = time.monotonic(), time.time()
    # Steps that compute all the time may take a second in all; the run delay, which costs more to read, is not judged.
    with CpuWatch(sample_secs=1.0 if run.is_paced else 0.2, has_delays=run.is_paced) as cpu:
        measured = planned.experiment.execute(run, folder, needed)
    wall_secs = time.monotonic() - started
    start, end = measured.window or (started_at, started_at + wall_secs)
    return planned.store.finish(run, measured, wall_secs, cpu.between(start, end, measured.num_workers), attempt)


def _describe_waits(result: RunResult) -> str:
    """Returns the time for which the tasks of a real run waited for cores, in words."""
    if result.cpu is None:
        return "unknown"
    if not result.run.is_paced:
        return f"others used {100 * result.cpu.others_share:.1f} % of the cores"
    return f"tasks waited for cores for {100 * result.delayed_share:.2f} % of their steps"


def _record_failure(planned: PlannedExperiment, run: Run[Any], error: Exception) -> Failure:
    folder = planned.store.folder / "runs" / run.key
    folder.mkdir(parents=True, exist_ok=True)  # the run may have failed before it began
    text = "".join(traceback.format_exception(error))
    (folder / "error.txt").write_text(text, encoding="utf-8")
    # An error of this package explains itself; of any other, the end of the traceback does.
    reason = str(error) if isinstance(error, PsTrainerError) else "\n".join(text.splitlines()[-_ERROR_LINES:])
    return Failure(run.key, f"{reason}\n(all of it in {folder})")
