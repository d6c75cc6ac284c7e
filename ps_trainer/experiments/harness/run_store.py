"""Files of finished runs, with which an interrupted experiment resumes.

    <out_dir>/<experiment>/runs/<key>/result.json   written last and atomically; marks the run as finished
    <out_dir>/<experiment>/runs/<key>/steps.jsonl   the step records, if any
    <out_dir>/<experiment>/runs/<key>/…             logs, and whatever else the run leaves

`<key>` names the run within its experiment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import pathlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ps_trainer.checkpoints import durable_files
from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness.cpu import CpuUse
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Run, RunResult

_FORMAT = 1
_KEY = re.compile(r"[A-Za-z0-9._=-]+")


class StoredResult(NamedTuple):
    """The stored result of a run, or the reason why it does not count."""

    result: RunResult | None  # finished run; None where no run counts
    why_not: str = ""  # reason why an existing run does not count; empty without one
    version: str = ""  # code version that measured the result; empty without one


@dataclasses.dataclass(frozen=True)
class RunStore:
    """The runs of one experiment."""

    folder: pathlib.Path  # folder of the experiment
    versions: Mapping[Level, str]  # digest of the code on which runs of a level depend
    read_figures: Callable[[Run[Any], Mapping[str, Any]], Record]  # makes the figures of a run of their JSON
    keeps_versions: bool = False  # whether runs of other code versions count too
    commit: str = ""  # commit whose code makes the runs; empty where it is unknown

    def find(self, run: Run[Any]) -> StoredResult:
        """Returns the finished run with these settings and this code version."""
        path = self._folder_of(run) / "result.json"
        if not path.exists():
            return StoredResult(None)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return StoredResult(None, "result.json is broken")
        if record.get("format") != _FORMAT:
            return StoredResult(None, "result.json has another format")
        if record["run"] != run.identity():
            return StoredResult(None, f"other settings: {_difference(record['run'], run.identity())}")
        version = self.versions[run.level]
        if record["version"] != version and not self.keeps_versions:
            return StoredResult(None, f"measured by other code ({record['version']}, now {version})")
        try:
            result = self._result(run, record)
        except ValueError as error:
            return StoredResult(None, f"result.json is of other code: {error}")
        return StoredResult(result, version=record["version"])

    def begin(self, run: Run[Any]) -> pathlib.Path:
        """Makes an empty folder for the run, without the files of an earlier attempt."""
        folder = self._folder_of(run)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def finish(
        self, run: Run[Any], measured: Measured[Any], wall_secs: float, cpu: CpuUse | None, num_attempts: int = 1
    ) -> RunResult:
        """Stores the result of a run and so marks the run as finished."""
        folder = self._folder_of(run)
        steps = iter(measured.steps)
        if (first := next(steps, None)) is not None:
            with (folder / "steps.jsonl").open("w", encoding="utf-8") as file:
                for step in (first, *steps):
                    file.write(json.dumps(step) + "\n")
        record = {
            "format": _FORMAT,
            "run": run.identity(),
            "version": self.versions[run.level],
            "commit": self.commit,
            "figures": measured.figures.as_json(),
            "wall_secs": wall_secs,
            "cpu": cpu._asdict() if cpu is not None else None,
            "num_attempts": num_attempts,
        }
        durable_files.replace_text(folder / "result.json", json.dumps(record, indent=1) + "\n")
        return self._result(run, json.loads(json.dumps(record)))

    def _folder_of(self, run: Run[Any]) -> pathlib.Path:
        if not _KEY.fullmatch(run.key) or run.key.startswith("."):
            raise ValueError(f"run key {run.key!r} is not a file name of letters, digits, '.', '_', '=', '-'")
        return self.folder / "runs" / run.key

    def _result(self, run: Run[Any], record: Mapping[str, Any]) -> RunResult:
        return to_result(run, record, self.read_figures, self._folder_of(run))


def to_result(
    run: Run[Any],
    record: Mapping[str, Any],
    read_figures: Callable[[Run[Any], Mapping[str, Any]], Record],
    folder: pathlib.Path,
) -> RunResult:
    """Returns the result of a run from the JSON of its `result.json`.

    Raises:
        ValueError: A figure is missing.
    """
    cpu = CpuUse(**record["cpu"]) if record["cpu"] is not None else None
    figures, num_attempts = read_figures(run, record["figures"]), record.get("num_attempts", 1)
    return RunResult(run, figures, record["wall_secs"], cpu, folder, num_attempts, record.get("commit", ""))


@contextlib.contextmanager
def lock_folder(folder: pathlib.Path) -> Iterator[None]:
    """Makes a folder and locks it against other `experiment` commands.

    Raises:
        UsageError: The folder cannot be made, or another process has locked it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"--out_dir={folder}: cannot write there ({error}); name another folder") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"--out_dir={folder}: another `experiment` is at work there; wait for it, or name another folder"
            ) from error
        yield


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Returns the settings in which two identities differ, in words."""
    flat = [{**record["settings"], "level": record["level"], "seed": record["seed"]} for record in (before, now)]
    names = [name for name in flat[0] | flat[1] if flat[0].get(name) != flat[1].get(name)]
    return ", ".join(f"{name} was {flat[0].get(name)!r}, now {flat[1].get(name)!r}" for name in names)
