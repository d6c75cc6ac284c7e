"""The TFRecord file format.

A file consists of records with nothing between them, plain or compressed as a whole with gzip:

    8 bytes        length of the record, little-endian
    4 bytes        masked CRC-32C of these 8 bytes
    length bytes   the record, most often a serialized `tf.train.Example`
    4 bytes        masked CRC-32C of the record

where masked(crc) = ((crc >> 15 | crc << 17) + 0xa282ead8) mod 2**32.

Source: "TFRecord and tf.train.Example", "TFRecords format details", in TensorFlow's guide.
"""

from __future__ import annotations

import functools
import gzip
import io
import pathlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from google.protobuf.message import DecodeError

from ps_trainer.data.pipeline.file_source import CountedFile
from ps_trainer.errors import DataError

_HEADER = struct.Struct("<QI")
_CHECKSUM_BYTES = 4
_IMAGE_MAGIC = (b"\xff\xd8\xff", b"\x89PNG")


def record_file(path: pathlib.Path) -> CountedFile:
    """Goes through all records of a TFRecord file, plain or compressed with gzip, and checks their lengths.

    Raises:
        DataError: The file cannot be read or unpacked, ends within a record, has a length with a wrong checksum, or is
            empty. The message names the file and the offset in bytes; in a compressed file the offset counts unpacked
            bytes.
    """
    try:
        with path.open("rb") as file:
            is_packed = _is_packed(file.read(_HEADER.size))
        with (gzip.open if is_packed else open)(path, "rb") as file:
            num_records = _count_records(path, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}); download it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not num_records:
        raise DataError(f"{path}: the file is empty; remove it, or download it again")
    return CountedFile(path.resolve(), num_records, is_packed=is_packed)


def records_of(file: CountedFile) -> Iterator[bytes]:
    """Yields the records of a file whose lengths `record_file` has checked; their checksums are not checked."""
    with (gzip.open if file.is_packed else open)(file.path, "rb") as opened:
        while head := opened.read(_HEADER.size):
            yield opened.read(_HEADER.unpack(head)[0])
            opened.read(_CHECKSUM_BYTES)


def features_of(path: pathlib.Path) -> list[str] | None:
    """Describes the features of a file's first Example in the form of dataset `tfrecord`; None for other files.

    The shapes are those of the first Example. Images get the shape 224x224x3.
    """
    try:
        with path.open("rb") as file:
            is_packed = _is_packed(file.read(_HEADER.size))
        with (gzip.open if is_packed else open)(path, "rb") as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or not _is_length(*_HEADER.unpack(head)):
                return None
            features = tf.train.Example.FromString(file.read(_HEADER.unpack(head)[0])).features.feature
    except (EOFError, zlib.error, gzip.BadGzipFile, DecodeError):
        return None
    return [_describe_feature(key, features[key]) for key in sorted(features)]


def _describe_feature(key: str, feature: tf.train.Feature) -> str:
    kind = feature.WhichOneof("kind")
    values: Sequence[Any] = getattr(feature, kind).value if kind else ()
    if kind == "bytes_list":
        is_image = len(values) == 1 and values[0].startswith(_IMAGE_MAGIC)
        return (
            f"{key}:image[224x224x3]" if is_image else f"{key}:bytes" + (f"[{len(values)}]" if len(values) > 1 else "")
        )
    shape = "" if len(values) == 1 else f"[{len(values) or '*'}]"
    return f"{key}:{'int64' if kind == 'int64_list' else 'float32'}{shape}"


def _is_packed(head: bytes) -> bool:
    """Returns whether a file is compressed: it begins with gzip's magic, and not with a record of that length."""
    return head[:2] == b"\x1f\x8b" and not (len(head) == _HEADER.size and _is_length(*_HEADER.unpack(head)))


def _count_records(path: pathlib.Path, file: io.BufferedIOBase) -> int:
    num_records, begin = 0, 0
    while head := file.read(_HEADER.size):
        where = f"{path}: byte {begin}: record {num_records + 1}"
        if len(head) < _HEADER.size:
            raise DataError(f"{where}: the file ends within its length; it is truncated: download it again")
        length, checksum = _HEADER.unpack(head)
        if not _is_length(length, checksum):
            raise DataError(f"{where}: the checksum of its length is wrong; it is damaged, or not a TFRecord file")
        # A file can be positioned beyond its end; only reading the last byte shows that the record is complete.
        file.seek(length + _CHECKSUM_BYTES - 1, 1)
        if not file.read(1):
            raise DataError(f"{where}: the file ends within its {length} bytes; it is truncated: download it again")
        num_records += 1
        begin += _HEADER.size + length + _CHECKSUM_BYTES
    return num_records


@functools.lru_cache(maxsize=2**16)  # records often have equal lengths, and a checksum takes long in Python
def _is_length(length: int, checksum: int) -> bool:
    """Returns whether `checksum` is the masked CRC-32C of a record's length."""
    crc = 0xFFFFFFFF
    for byte in length.to_bytes(8, "little"):
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF == checksum


def _crc_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # Castagnoli's polynomial, reflected
    return byte


_CRC_TABLE = [_crc_of_byte(byte) for byte in range(256)]
