"""The IDX file format of MNIST and its relatives.

    byte 0   0, 0                       magic
    byte 2   type code                  0x08: unsigned bytes, the only type that this file reads
    byte 3   number of dimensions
    byte 4   sizes, 4 bytes each        big-endian, the first is the number of items
    then     the items                  row-major, and nothing after them

Source: "THE IDX FILE FORMAT", Y. LeCun, C. Cortes, C. Burges, on the page of the MNIST database.
"""

from __future__ import annotations

import gzip
import math
import pathlib
import struct
import zlib

import numpy as np

from ps_trainer.errors import DataError

UNSIGNED_BYTE = 0x08
"""Type code of unsigned bytes."""

TYPE_NAMES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
"""Names of all types of the format, by type code."""

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**20


def header_bytes(num_dims: int) -> int:
    """Returns the length of the header of a file with `num_dims` dimensions, in bytes."""
    return 4 + 4 * num_dims


def read_idx(path: str | pathlib.Path, *, num_dims: int) -> np.ndarray:
    """Reads and checks a whole IDX file.

    Args:
        path: Path of the file, which is compressed with gzip if its name ends in `.gz`.
        num_dims: Number of dimensions that the file must have: 3 for images, 1 for labels.

    Returns:
        uint8 [sizes of the header].

    Raises:
        DataError: The file cannot be read or unpacked, or is not an IDX file. It has another type or number of
            dimensions, or is shorter or longer than its header says. The message names the file and the offset in
            bytes; in a compressed file the offset counts unpacked bytes.
    """
    path = pathlib.Path(path)
    data = _read_bytes(path)
    shape = _parse_header(path, data, num_dims)
    begin = header_bytes(num_dims)
    end = begin + math.prod(shape)
    if len(data) < end:
        raise _error(
            path,
            len(data),
            f"the file ends here, {end - len(data)} bytes before the {end} bytes of sizes {shape};"
            " it is truncated: download it again",
        )
    if len(data) > end:
        raise _error(
            path,
            end,
            f"{len(data) - end} bytes follow after the end of sizes {shape};"
            " the header is damaged or something was appended: download it again",
        )
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


def write_idx(path: pathlib.Path, array: np.ndarray) -> None:
    """Writes an array, uint8 of any shape, as an IDX file."""
    header = struct.pack(f">4B{array.ndim}I", 0, 0, UNSIGNED_BYTE, array.ndim, *array.shape)
    # "equiv" fails for another type; a plain cast would wrap its values.
    path.write_bytes(header + array.astype(np.uint8, casting="equiv").tobytes())


def _read_bytes(path: pathlib.Path) -> bytes:
    try:
        if path.suffix == ".gz":
            return _unpack(path)
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error


def _unpack(path: pathlib.Path) -> bytes:
    unpacked = bytearray()
    try:
        with gzip.open(path, "rb") as file:
            # `read1` returns the bytes before a damaged part; `read` would lose them, and so the offset of the error.
            while chunk := file.read1(_CHUNK_BYTES):
                unpacked += chunk
    except gzip.BadGzipFile as error:
        cure = "remove .gz from its name if it is not compressed, or download it again"
        cure = "download it again" if unpacked else cure
        raise _error(path, len(unpacked), f"not valid gzip ({error}): {cure}") from error
    except (EOFError, zlib.error) as error:
        raise _error(path, len(unpacked), f"cannot be unpacked further ({error}): download it again") from error
    return bytes(unpacked)


def _parse_header(path: pathlib.Path, data: bytes, num_dims: int) -> tuple[int, ...]:
    """Checks everything before the items and returns the sizes."""
    if data.startswith(_GZIP_MAGIC):
        raise _error(path, 0, "this is a gzip file; add .gz to its name, or unpack it")
    if len(data) < 4:
        raise _error(path, len(data), "the file ends inside the 4 bytes of the magic: it is empty or truncated")
    if data[:2] != b"\0\0":
        raise _error(path, 0, f"the magic is 0x{data[:4].hex()}, but an IDX file starts with 0x0000: not an IDX file")
    if data[2] != UNSIGNED_BYTE:
        name = TYPE_NAMES.get(data[2], "unknown")
        raise _error(path, 2, f"the type code is 0x{data[2]:02x} ({name}); it must be 0x{UNSIGNED_BYTE:02x} (uint8)")
    if data[3] != num_dims:
        raise _error(
            path, 3, f"{data[3]} dimensions, expected {num_dims} (images have 3, labels have 1); is it the right file?"
        )
    if len(data) < header_bytes(num_dims):
        header = f"its header of {header_bytes(num_dims)} bytes"
        raise _error(path, len(data), f"the file ends inside {header}: it is truncated")
    shape = struct.unpack_from(f">{num_dims}I", data, 4)
    if 0 in shape:
        raise _error(path, 4 + 4 * shape.index(0), f"sizes {shape}: dimension {shape.index(0)} is empty")
    return shape


def _error(path: pathlib.Path, offset: int, problem: str) -> DataError:
    return DataError(f"{path}: byte {offset}: {problem}")
