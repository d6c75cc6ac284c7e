"""IDX files: the error for each way in which a file can be broken names the file and the byte."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from ps_trainer.data.formats import idx
from ps_trainer.errors import DataError

ITEMS = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
HEADER = b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4)
GOOD = HEADER + ITEMS.tobytes()


def _error(path, num_dims=3):
    with pytest.raises(DataError) as info:
        idx.read_idx(path, num_dims=num_dims)
    return str(info.value)


def test_reads_plain_file(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(GOOD)
    np.testing.assert_array_equal(idx.read_idx(path, num_dims=3), ITEMS)


def test_reads_gzip_file(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(GOOD))
    np.testing.assert_array_equal(idx.read_idx(str(path), num_dims=3), ITEMS)


def test_reads_one_dimension(tmp_path):
    path = tmp_path / "labels"
    path.write_bytes(b"\0\0\x08\x01" + struct.pack(">I", 3) + bytes([7, 8, 9]))
    np.testing.assert_array_equal(idx.read_idx(path, num_dims=1), [7, 8, 9])


@pytest.mark.parametrize(
    ("data", "offset", "problem"),
    [
        (b"", 0, "empty or truncated"),
        (b"\0\0\x08", 3, "inside the 4 bytes of the magic"),
        (b"\x01" + GOOD[1:], 0, "magic is 0x01000803"),
        (b"\0\x02" + GOOD[2:], 0, "magic is 0x00020803"),
        (b"<html>", 0, "not an IDX file"),
        (b"\0\0\x0d" + GOOD[3:], 2, r"the type code is 0x0d \(float32\)"),
        (b"\0\0\x77" + GOOD[3:], 2, r"the type code is 0x77 \(unknown\)"),
        (b"\0\0\x08\x01" + GOOD[4:], 3, "1 dimensions, expected 3"),
        (HEADER[:9], 9, "inside its header of 16 bytes"),
        (HEADER[:8] + struct.pack(">2I", 0, 4) + GOOD[16:], 8, "dimension 1 is empty"),
        (HEADER, 16, "24 bytes before the 40 bytes"),
        (GOOD[:-1], 39, "1 bytes before the 40 bytes"),
        (GOOD + b"\0\0", 40, "2 bytes follow after the end"),
        (b"\0\0\x08\x03" + b"\xff" * 12 + GOOD[16:], 40, "the file ends here"),
        (gzip.compress(GOOD, mtime=0), 0, "add .gz to its name"),
    ],
)
def test_broken_file_names_file_and_byte(tmp_path, data, offset, problem):
    path = tmp_path / "broken"
    path.write_bytes(data)
    message = _error(path)
    assert message.startswith(f"{path}: byte {offset}: ")
    with pytest.raises(DataError, match=problem):
        idx.read_idx(path, num_dims=3)


def test_plain_file_with_the_name_of_a_gzip_file_is_an_error_that_says_so(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(GOOD)
    message = _error(path)
    assert message.startswith(f"{path}: byte 0: not valid gzip")
    assert "remove .gz from its name" in message


def test_gzip_cut_short_names_the_unpacked_byte(tmp_path):
    path = tmp_path / "images.gz"
    # Level 0 stores the bytes unchanged; the trailer has 8 bytes, so one item is cut off too.
    path.write_bytes(gzip.compress(GOOD, compresslevel=0)[: -8 - 1])
    assert _error(path).startswith(f"{path}: byte {len(GOOD) - 1}: cannot be unpacked further")


def test_gzip_with_a_wrong_checksum_is_rejected(tmp_path):
    packed = bytearray(gzip.compress(GOOD))
    packed[-8] ^= 1
    path = tmp_path / "images.gz"
    path.write_bytes(packed)
    assert _error(path).startswith(f"{path}: byte {len(GOOD)}: not valid gzip (CRC check failed")


def test_damaged_gzip_stream_is_rejected(tmp_path):
    packed = bytearray(gzip.compress(GOOD))
    packed[10] = 0xFF  # block type 3 does not exist
    path = tmp_path / "images.gz"
    path.write_bytes(packed)
    assert _error(path).startswith(f"{path}: byte 0: cannot be unpacked further")


def test_truncated_content_in_whole_gzip_counts_unpacked_bytes(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(GOOD[:-5]))
    assert _error(path).startswith(f"{path}: byte {len(GOOD) - 5}: the file ends here, 5 bytes before")


def test_missing_file_and_folder_are_data_errors(tmp_path):
    assert "No such file" in _error(tmp_path / "absent")
    assert "directory" in _error(tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_random_arrays_are_read_back_and_every_damage_to_their_size_is_noticed(tmp_path, seed):
    random = np.random.RandomState(seed)
    array = random.randint(0, 256, random.randint(1, 7, random.randint(1, 5)), np.uint8)
    path = tmp_path / "array"
    idx.write_idx(path, array)
    np.testing.assert_array_equal(idx.read_idx(path, num_dims=array.ndim), array)
    whole = path.read_bytes()
    path.write_bytes(whole[: random.randint(0, len(whole))])
    assert _error(path, array.ndim).startswith(f"{path}: byte ")
    damaged = bytearray(whole)
    damaged[random.randint(0, idx.header_bytes(array.ndim))] ^= random.randint(1, 256)
    path.write_bytes(damaged)
    assert _error(path, array.ndim).startswith(f"{path}: byte ")
