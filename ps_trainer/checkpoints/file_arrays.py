"""Large arrays whose content lies in a file without a name, so that a process needs little memory for them (Linux).

The system writes the pages of such an array to the file when memory is short, and removes the file with the array.
"""

from __future__ import annotations

import errno
import mmap
import os
import pathlib
import tempfile
from typing import Any

import numpy as np

LARGE_BYTES = 64 * 2**20
"""Smaller arrays lie in memory."""


def allocate(size: int, dtype: np.dtype, folder: pathlib.Path | None) -> np.ndarray | None:
    """Returns a flat array of zeros in a file; None if it is small, or the system or the disk has no such files.

    Args:
        size: Number of elements.
        dtype: Type of the elements.
        folder: Folder on whose disk the file lies; None = no file.

    Raises:
        OSError: The disk is full.
    """
    num_bytes = size * dtype.itemsize
    if folder is None or num_bytes < LARGE_BYTES or not hasattr(os, "posix_fallocate"):
        return None
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            # Otherwise a full disk would end the process, by a signal at the first access to a page without a block.
            os.posix_fallocate(file.fileno(), 0, num_bytes)
            return np.asarray(np.memmap(file, dtype, "r+", shape=(size,)))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        return None  # a folder without write permission, or a disk without such files


def is_in_file(array: np.ndarray) -> bool:
    """Returns whether the content of an array lies in a file."""
    return _file_of(array) is not None


def release(array: np.ndarray) -> None:
    """Takes the pages of an array in a file out of this process, which keep their content; ignores other arrays."""
    if (content := _file_of(array)) is not None:
        content.madvise(mmap.MADV_DONTNEED)


def _file_of(array: np.ndarray) -> mmap.mmap | None:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return base if isinstance(base, mmap.mmap) else None
