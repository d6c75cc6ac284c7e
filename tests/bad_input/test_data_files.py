"""Bad data files that a worker finds before its server starts; the message names the file and the byte."""

from __future__ import annotations

import gzip
import pathlib
import struct

import pytest

from ps_trainer.cli import task

pytestmark = pytest.mark.usefixtures("without_server")

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
COUNT, SIDE = 40, 8


def idx(*sizes, code=8, dims=None, data=None):
    """An IDX file; `dims` and `data` may contradict `sizes`."""
    total = 1
    for size in sizes:
        total *= size
    header = struct.pack(f">BBBB{len(sizes)}I", 0, 0, code, len(sizes) if dims is None else dims, *sizes)
    return header + (bytes(total) if data is None else data)


GOOD = {
    IMAGES: idx(COUNT, SIDE, SIDE),
    LABELS: idx(COUNT),
    "t10k-images-idx3-ubyte": idx(COUNT, SIDE, SIDE),
    "t10k-labels-idx1-ubyte": idx(COUNT),
}

# (file, its bytes or None if it is missing, name of the broken file if it is another one) -> words of the message
FILES = [
    (IMAGES, None, "has no train-images-idx3-ubyte; accepted names: train-images-idx3-ubyte, train-images"),
    (LABELS, None, "has no train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", None, "has no t10k-images-idx3-ubyte"),
    (IMAGES, b"", "byte 0: the file ends inside the 4 bytes of the magic: it is empty or truncated"),
    (IMAGES, b"\0\0", "byte 2: the file ends inside the 4 bytes of the magic"),
    (IMAGES, b"\0\0\x08\x03\0", "byte 5: the file ends inside its header of 16 bytes"),
    (IMAGES, b"PK\3\4" + bytes(100), "byte 0: the magic is 0x504b0304, but an IDX file starts with 0x0000"),
    (IMAGES, b"<html>not found</html>", "not an IDX file"),
    (IMAGES, gzip.compress(GOOD[IMAGES], mtime=0), "byte 0: this is a gzip file; add .gz to its name, or unpack it"),
    (IMAGES, idx(COUNT, SIDE, SIDE, code=0x0D), "byte 2: the type code is 0x0d (float32); it must be 0x08 (uint8)"),
    (IMAGES, idx(COUNT, SIDE, SIDE, code=0x77), "byte 2: the type code is 0x77 (unknown)"),
    (IMAGES, GOOD[LABELS], "byte 3: 1 dimensions, expected 3 (images have 3, labels have 1); is it the right file?"),
    (LABELS, GOOD[IMAGES], "byte 3: 3 dimensions, expected 1"),
    (IMAGES, idx(0, SIDE, SIDE), "byte 4: sizes (0, 8, 8): dimension 0 is empty"),
    (IMAGES, idx(COUNT, 0, SIDE), "byte 8: sizes (40, 0, 8): dimension 1 is empty"),
    (IMAGES, GOOD[IMAGES][:-1], "byte 2575: the file ends here, 1 bytes before the 2576 bytes"),
    (IMAGES, GOOD[IMAGES][: 16 + 100], "it is truncated: download it again"),
    (IMAGES, GOOD[IMAGES] + b"x", "byte 2576: 1 bytes follow after the end"),
    (IMAGES, idx(2**32 - 1, 2**32 - 1, 2**32 - 1, data=b"x"), "bytes before the"),
    (LABELS, idx(COUNT - 1), "40 images, but"),
    (LABELS, idx(COUNT, data=bytes(7) + b"\x0a" + bytes(32)), "byte 15: label 10 of example 7 is not in 0..9 (1 of 40"),
    (LABELS, idx(COUNT, data=b"\xff" * COUNT), "label 255 of example 0 is not in 0..9 (40 of 40 labels are not)"),
    ("t10k-images-idx3-ubyte", idx(COUNT, SIDE, SIDE + 1), "use files of the same dataset"),
    ("t10k-labels-idx1-ubyte", idx(COUNT + 1), "40 images, but"),
]


def write(folder: pathlib.Path, **changed: bytes | None) -> None:
    for name, content in (GOOD | changed).items():
        if content is not None:
            (folder / name).write_bytes(content)


def worker_args(folder):
    return ["--ps_hosts=p:1", "--worker_hosts=w:1", "--model=softmax", "--dataset=mnist", f"--data_dir={folder}"]


@pytest.mark.parametrize(("name", "content", "words"), FILES, ids=lambda value: str(value)[:40])
def test_idx_files(refuse, tmp_path, name, content, words):
    write(tmp_path, **{name: content})
    message = refuse(task.main_worker, worker_args(tmp_path), words)
    assert str(tmp_path) in message


PACKED = [
    (GOOD[IMAGES], "byte 0: not valid gzip (Not a gzipped file"),
    (b"", "byte 0: the file ends inside the 4 bytes of the magic"),
    (gzip.compress(GOOD[IMAGES], mtime=0)[:-3], "cannot be unpacked further (Compressed file ended before"),
    (gzip.compress(GOOD[IMAGES], mtime=0)[:-8] + bytes(8), "not valid gzip (CRC check failed"),
    (gzip.compress(GOOD[IMAGES], mtime=0)[:20] + b"\xff" * 30, "download it again"),
    (gzip.compress(GOOD[IMAGES][:-1], mtime=0), "1 bytes before"),
    (gzip.compress(gzip.compress(GOOD[IMAGES], mtime=0), mtime=0), "byte 0: this is a gzip file"),
]


@pytest.mark.parametrize(("content", "words"), PACKED, ids=range(len(PACKED)))
def test_packed_files(refuse, tmp_path, content, words):
    write(tmp_path, **{IMAGES: None, f"{IMAGES}.gz": content})
    message = refuse(task.main_worker, worker_args(tmp_path), words)
    assert f"{IMAGES}.gz" in message


def test_a_folder_in_the_place_of_a_file(refuse, tmp_path):
    write(tmp_path, **{IMAGES: None})
    (tmp_path / IMAGES).mkdir()
    refuse(task.main_worker, worker_args(tmp_path), f"has no {IMAGES}")


TRACES = [
    (b"", "has no step times; write one per line, in seconds"),
    (b"step,secs\n", "has no step times"),
    (b"step,secs\n0,0.1\n1,\n", "line 3, column 1: '' is not a step time"),
    (b"step,secs\n0,0.1\n1,-2\n", "line 3, column 1: '-2' is not a step time"),
    (b"step,secs\n0,nan\n", "line 2, column 1: 'nan' is not a step time"),
    (b"step,secs\n0,inf\n", "'inf' is not a step time"),
    (b"step,secs\n0\n", "line 2, column 1: '' is not a step time"),
    (b"step,ms\n0,1\n", "column=secs: unknown column; columns: step, ms"),
    (b"0,0.1\n", "column=secs: unknown column; the file has no line of column names"),
    (b"\xff\xfe0\0", "cannot be read as CSV: 'utf-8' codec"),
    (b"step,secs\n0," + b"1" * 200_000 + b"\n", "cannot be read as CSV: field larger than field limit"),
]


@pytest.mark.parametrize(("content", "words"), TRACES, ids=range(len(TRACES)))
def test_traces(refuse, tmp_path, content, words):
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    hosts = ["--ps_hosts=p:1", "--worker_hosts=w:1", "--model=softmax"]
    message = refuse(task.main_worker, [*hosts, f"--straggler=trace:file={path},column=secs"], words)
    assert str(path) in message
