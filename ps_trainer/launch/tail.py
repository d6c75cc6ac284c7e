"""Reads files that another process is still writing: growing metrics, and the end of a log."""

from __future__ import annotations

import json
import pathlib
from typing import Any


class JsonLinesTail:
    """Returns each JSON object that is appended to a file once.

    The file may appear late, and its last line may be incomplete. Lines that exist when the tail is made are ignored. A
    line that is not a JSON object is skipped. The numbers are for display, and a task that was killed during a write
    leaves such a line behind.

    Args:
        path: Path of the file; its folder need not exist yet.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._offset = size_of(path)

    def read(self) -> list[dict[str, Any]]:
        """Returns the objects of the lines that were completed since the last call; never blocks."""
        if size_of(self._path) < self._offset:
            self._offset = 0  # the file was replaced by a new one
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [record for line in complete.splitlines() if (record := _parse(line)) is not None]


def size_of(path: pathlib.Path) -> int:
    """Returns the size in bytes; 0 for a file that does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def last_lines(path: pathlib.Path, num_lines: int, start: int = 0, max_bytes: int = 65536) -> list[str]:
    """Returns the last lines of a text file, without line ends.

    Args:
        path: Path of the file; a missing file has no lines.
        num_lines: Maximum number of lines.
        start: Offset in bytes of the first text to show.
        max_bytes: Maximum number of bytes to read, so that a huge log costs little.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(start, size_of(path) - max_bytes))
            # Reading may begin inside of a character, and a crashing program may write bytes that are not text.
            text = file.read().decode("utf-8", errors="backslashreplace")
    except FileNotFoundError:
        return []
    return text.rstrip().splitlines()[-num_lines:]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
