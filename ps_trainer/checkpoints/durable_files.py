"""Writing files so that after a crash or a power cut there is the old content or the new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable
from typing import BinaryIO


def sync(path: str | os.PathLike[str]) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk.

    Raises:
        OSError: it is not there, or the disk failed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(directory: pathlib.Path) -> None:
    """Makes a folder, and those above it, durably; OSError where that fails."""
    if directory.is_dir():
        return
    make_folder(directory.parent)
    directory.mkdir(exist_ok=True)
    sync(directory.parent)


def replace(path: pathlib.Path, write: Callable[[BinaryIO], object], temporary: pathlib.Path) -> None:
    """Puts what `write` writes in the place of a file's content, in one piece.

    Args:
        path: the file; it need not exist.
        write: called with the open file.
        temporary: where it is written first, in the same folder; nothing is left there.

    Raises:
        OSError: the disk is full, or not writable; the old content is untouched.
    """
    try:
        with temporary.open("wb") as file:
            write(file)
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def replace_text(path: pathlib.Path, text: str, temporary: pathlib.Path) -> None:
    """The same with `text`, as UTF-8."""
    replace(path, lambda file: file.write(text.encode("utf-8")), temporary)
