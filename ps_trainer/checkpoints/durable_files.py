"""Writes files so that after a crash or a power cut they hold the old content or the new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import BinaryIO


def sync(path: str | os.PathLike[str]) -> None:
    """Waits until a file's content, or a folder's list of names, is on the disk.

    Raises:
        OSError: The path does not exist, or the disk failed.
    """
    # Read-only suffices for fsync, and a folder cannot be opened in another way.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(directory: pathlib.Path) -> None:
    """Creates a folder and its parents durably.

    Raises:
        OSError: The folder cannot be created.
    """
    if directory.is_dir():
        return
    make_folder(directory.parent)
    directory.mkdir(exist_ok=True)
    # A new name is only durable once the folder that holds it is on the disk.
    sync(directory.parent)


@contextlib.contextmanager
def new_folder(directory: pathlib.Path) -> Iterator[None]:
    """Creates a folder and its parents durably; if the body fails, removes the empty ones among those that it created.

    Raises:
        OSError: The folder cannot be created.
    """
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    try:
        make_folder(directory)
        yield
    except BaseException:
        for folder in missing:
            with contextlib.suppress(OSError):  # it has content of others
                folder.rmdir()
        raise


def replace(path: pathlib.Path, write: Callable[[BinaryIO], object], temporary: pathlib.Path) -> None:
    """Replaces a file's content atomically by what `write` writes.

    Args:
        path: The file; it need not exist.
        write: Called with the open file.
        temporary: Path in the same folder for the unfinished file. Nothing is left there.

    Raises:
        OSError: The disk is full or not writable; the old content is unchanged.
    """
    try:
        with temporary.open("wb") as file:
            write(file)
        # The content is on the disk before the name points to it; otherwise a power cut could leave an empty file.
        sync(temporary)
        os.replace(temporary, path)
    # Also on KeyboardInterrupt: an unfinished file must not stay behind.
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    # Without this, a power cut could undo the rename although the caller counts on it.
    sync(path.parent)


def replace_text(path: pathlib.Path, text: str, temporary: pathlib.Path | None = None) -> None:
    """Replaces a file's content atomically by `text`, encoded as UTF-8.

    Args:
        path: The file; it need not exist.
        text: New content.
        temporary: Path in the same folder for the unfinished file; None = the path with the suffix ".tmp".

    Raises:
        OSError: The disk is full or not writable; the old content is unchanged.
    """
    replace(path, lambda file: file.write(text.encode("utf-8")), temporary or path.with_suffix(".tmp"))
