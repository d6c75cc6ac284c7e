"""Finds files that are not images, or were cut short, by their first and last bytes: much cheaper than to decode them.

Sources: "Portable Network Graphics (PNG) Specification", W3C, 2003, section 5; ITU-T T.81 (JPEG), annex B.
"""

from __future__ import annotations

import os
import pathlib
import struct
from collections.abc import Iterable
from typing import BinaryIO

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_STARTS = (_PNG, _JPEG, b"GIF8", b"BM")
_START_BYTES = 8
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"
_JPEG_END = b"\xff\xd9"
_CHUNK = struct.Struct(">I4s")  # length and type
_CHECKSUM_BYTES = 4


def faults_of(paths: Iterable[pathlib.Path]) -> list[str]:
    """Returns what is wrong with files that should be images, each with its path; empty if nothing is."""
    return [f"{path}: {fault}" for path in paths if (fault := fault_of(path)) is not None]


def fault_of(path: pathlib.Path) -> str | None:
    """Returns what is wrong with a file that should be an image; None if start and end are those of one.

    A file that is damaged between start and end counts as an image.
    """
    try:
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
            if not start:
                return "the file is empty"
            if not start.startswith(_STARTS):
                return f"not a JPEG, PNG, GIF or BMP file, as it begins with {start!r}"
            is_whole = _is_whole_png(file) if start == _PNG else not start.startswith(_JPEG) or _is_whole_jpeg(file)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return None if is_whole else "the image is cut short, as its end is missing"


def _is_whole_png(file: BinaryIO) -> bool:
    if _end_of(file, len(_PNG_END)) == _PNG_END:
        return True
    # Bytes may follow the end, so all chunks count.
    num_bytes, place = file.seek(0, os.SEEK_END), len(_PNG)
    while place + _CHUNK.size <= num_bytes:
        file.seek(place)
        length, kind = _CHUNK.unpack(file.read(_CHUNK.size))
        place += _CHUNK.size + length + _CHECKSUM_BYTES
        if kind == b"IEND":
            return place <= num_bytes
    return False


def _is_whole_jpeg(file: BinaryIO) -> bool:
    if _end_of(file, len(_JPEG_END)) == _JPEG_END:
        return True
    # Bytes may follow the end. The coded image itself has no such two bytes.
    file.seek(0)
    return _JPEG_END in file.read()


def _end_of(file: BinaryIO, num_bytes: int) -> bytes:
    file.seek(-min(num_bytes, file.seek(0, os.SEEK_END)), os.SEEK_END)
    return file.read()
