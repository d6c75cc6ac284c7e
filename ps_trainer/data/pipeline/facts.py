"""Facts that a dataset has learned from its files: vocabularies, columns, sizes and counts.

A run records them beside its checkpoints. Commands that use the trained model give them back to the dataset, which then
needs neither the training files nor the time to read them.
"""

from __future__ import annotations

import json
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ps_trainer.data.pipeline import facts_cache
from ps_trainer.data.pipeline.data_folder import folder_of

FOLDER = "facts"
"""Name of the folder in a run's folder in which its tasks share facts."""

_ENDS_BYTES = 2**16


class Facts:
    """Facts about the files of a dataset, each computed by one pass over files, or taken from a record.

    Args:
        recorded: `entries` of the run that trained the model; empty for a run that trains.
        run_folder: Folder in which the tasks of a run share facts, on all machines. Without it, only the processes of a
            machine share them.

    Attributes:
        entries: Each fact's "settings", "files" and "value", by name, as JSON.
    """

    def __init__(self, recorded: Mapping[str, Any] | None = None, run_folder: pathlib.Path | None = None):
        self._recorded, self._run_folder = dict(recorded or {}), run_folder
        self.entries: dict[str, Any] = {}

    @property
    def is_recorded(self) -> bool:
        """Whether a trained model has given its facts, so that files may be missing."""
        return bool(self._recorded)

    def lacks(self, name: str) -> bool:
        """Returns whether a trained model has given its facts without this one, as an older version did."""
        return self.is_recorded and name not in self._recorded

    def find(
        self,
        name: str,
        files: Sequence[pathlib.Path],
        settings: Any,
        compute: Callable[[], Any],
        *,
        follows_files: bool = False,
    ) -> Any:
        """Returns a fact: the recorded one, or one that another process has computed, or a new one.

        Args:
            name: Name of the fact.
            files: Files that `compute` reads.
            settings: All other values on which `compute` depends, as JSON.
            compute: Function that reads the files and returns JSON.
            follows_files: Whether a recorded fact is out of date if a file has changed since. A missing file does not
                count as changed. Otherwise the recorded fact always counts: a model was trained with it.

        Raises:
            DataError: `compute` has found an error in the files.
        """
        settings, entry = _as_json(settings), self._recorded.get(name)
        if entry is None or entry["settings"] != settings or (follows_files and not _are_unchanged(entry["files"])):
            marks = {str(path): mark_of(path) for path in files}
            num_bytes = sum(mark["bytes"] for mark in marks.values() if mark is not None)
            # A fact may hold the resolved paths, which two machines need not have in common.
            resolved = [str(path.resolve()) for path in files]
            value = self.once([name, settings, marks, resolved], compute, num_bytes=num_bytes)
            entry = {"settings": settings, "files": marks, "value": _as_json(value)}
        self.entries[name] = entry
        return entry["value"]

    def once(self, key: Any, compute: Callable[[], Any], *, num_bytes: int) -> Any:
        """Returns what one process computes for all that share it, and does not record it.

        Args:
            key: All values on which it depends, as JSON.
            compute: Function that returns it as JSON.
            num_bytes: Number of bytes that `compute` reads.
        """
        return facts_cache.once(key, compute, num_bytes=num_bytes, run_folder=self._run_folder)

    def remember(self, name: str, settings: Any, compute: Callable[[], Any], *, is_there: bool = False) -> Any:
        """Returns a fact that no other process computes for this one: the recorded one, or else a new one.

        Args:
            name: Name of the fact.
            settings: All values on which `compute` depends, as JSON.
            compute: Function that looks at the folder and returns JSON.
            is_there: Whether the new one counts, because what it is about exists and may have changed.
        """
        settings, entry = _as_json(settings), self._recorded.get(name)
        if is_there or entry is None or entry["settings"] != settings:
            entry = {"settings": settings, "files": {}, "value": _as_json(compute())}
        self.entries[name] = entry
        return entry["value"]

    def of_file(self, path: pathlib.Path, settings: Any, compute: Callable[[], Any]) -> Any:
        """Returns what is known of one file, which counts only as long as the file does not change."""
        return self.find(_name_of(path), [path], settings, compute, follows_files=True)

    def has_file(self, path: pathlib.Path) -> bool:
        """Returns whether a file exists, or existed when the facts were recorded."""
        return path.is_file() or _name_of(path) in self._recorded

    def folder(self, data_dir: str | None, needs: str) -> pathlib.Path:
        """Returns the folder of a dataset's files, which may be missing if the facts are recorded.

        Raises:
            DataError: `data_dir` is None, or not a folder and the facts are not recorded.
        """
        if self.is_recorded and data_dir is not None:
            return pathlib.Path(data_dir)
        return folder_of(data_dir, needs)


def mark_of(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns size, time and checksum of a file, by which a change is noticed; None if it is missing."""
    try:
        status = path.stat()
        with path.open("rb") as file:
            checksum = zlib.crc32(file.read(_ENDS_BYTES))
            file.seek(max(0, status.st_size - _ENDS_BYTES))
            checksum = zlib.crc32(file.read(_ENDS_BYTES), checksum)
    except OSError:
        return None
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "crc32": checksum}


def _as_json(value: Any) -> Any:
    """Returns the value as a record gives it back, so that it equals a recorded one."""
    return json.loads(json.dumps(value))


def _name_of(path: pathlib.Path) -> str:
    return f"file {path}"


def _are_unchanged(marks: Mapping[str, Any]) -> bool:
    return all(mark_of(pathlib.Path(path)) in (None, mark) for path, mark in marks.items())
