"""Writing files so that after a crash or a power cut there is the old content or the new one, never half of it."""

from __future__ import annotations

import os
import pathlib


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


def replace_text(path: pathlib.Path, text: str, temporary: pathlib.Path) -> None:
    """Puts `text` in the place of a file's content, in one piece.

    Args:
        path: the file; it need not exist.
        text: written as UTF-8.
        temporary: where it is written first, in the same folder.

    Raises:
        OSError: the disk is full, or not writable; the old content is untouched.
    """
    temporary.write_text(text, encoding="utf-8")
    sync(temporary)
    os.replace(temporary, path)
    sync(path.parent)
