"""`LineFile`: a file of JSON lines that never ends a run; if the disk is full, whole lines are lost."""

from __future__ import annotations

import errno
import json
import os
import pathlib
from typing import Any

from absl import logging


class LineFile:
    """Appends to a file of JSON lines. Other processes can read a line when `write` returns.

    Args:
        path: Path of the file; its folder is created.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: pathlib.Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Unbuffered, so that a task that is killed leaves every line. In append mode, several starts of a task share
        # the file.
        self._file = path.open("ab", buffering=0)
        self._is_losing = False

    def write(self, record: dict[str, Any]) -> None:
        """Appends a line; warns about the first lost line of a series."""
        line = (json.dumps(record) + "\n").encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            # An unbuffered write to a disk that becomes full writes a part of the line, without an error.
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._file.truncate(size)  # readers must not find half of a line
            if not self._is_losing:
                logging.warning("lines of %s are lost: %s", self._file.name, error)
            self._is_losing = True
        else:
            self._is_losing = False

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
