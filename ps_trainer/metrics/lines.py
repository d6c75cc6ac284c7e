"""A file of JSON lines that never ends a run: what cannot be written (disk full) is lost, in whole lines."""

from __future__ import annotations

import errno
import json
import os
import pathlib
from typing import Any

from absl import logging


class LineFile:
    """Appends to a file of JSON lines. Each line can be read when `write` returns.

    Args:
        path: of the file; its folder is made.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: pathlib.Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._is_losing = False

    def write(self, record: dict[str, Any]) -> None:
        """Appends a line; warns at the first of those that are lost."""
        line = (json.dumps(record) + "\n").encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._file.truncate(size)  # no half of a line stays for its readers
            if not self._is_losing:
                logging.warning("lines of %s are lost: %s", self._file.name, error)
            self._is_losing = True
        else:
            self._is_losing = False

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
