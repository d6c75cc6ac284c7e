"""Lines of text files as examples: counted, split, sharded and parsed; errors name broken lines."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline import line_source
from ps_trainer.data.pipeline.line_source import LineSource, text_file
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.data.pipeline.text_stream import document
from ps_trainer.errors import DataError
from tests.data.reading import read_batches, read_column
from tests.testing.repetitions import representatives


class NumberLines(LineSource):
    """A dataset with one whole number on each line."""

    def __init__(self, train, test=(), **fields):
        super().__init__(train, test, pattern=r"\d+", form="a whole number", **fields)

    def _parse(self, line_B):
        return {"number": tf.strings.to_number(line_B, tf.int64)}


def write(path, numbers, head="", end="\n"):
    text = head + "\n".join(map(str, numbers)) + end
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def train_numbers(source, num_workers=1, num_epochs=1):
    return [
        list(
            read_column(
                lambda i=i: source.train(shard=Shard(i, num_workers), batch_size=1, seed=0, num_epochs=num_epochs),
                "number",
            )
        )
        for i in range(num_workers)
    ]


@pytest.mark.parametrize(
    ("suffix", "end"),
    representatives(
        itertools.product(["", ".gz"], ["", "\n", "\n\n\n", "\r\n\r\n"]),
        [("", ""), (".gz", "\n"), ("", "\n\n\n"), (".gz", "\r\n\r\n")],
    ),
)
def test_every_line_is_an_example_for_any_line_end(tmp_path, suffix, end):
    source = NumberLines([text_file(write(tmp_path / f"a{suffix}", range(5), end=end))], test_every=3)
    assert (source.num_train_examples, source.num_test_examples) == (3, 2)
    assert sorted(train_numbers(source)[0]) == [1, 2, 4]
    np.testing.assert_array_equal(read_column(lambda: source.test(batch_size=2), "number"), [0, 3])


@pytest.mark.parametrize("num_workers", representatives((1, 2, 3, 7), (1, 7)))
def test_shards_cover_the_lines_of_all_files_once(tmp_path, num_workers):
    files = [text_file(write(tmp_path / "a", range(8))), text_file(write(tmp_path / "b.gz", range(8, 15)))]
    source = NumberLines(files, [text_file(write(tmp_path / "t", range(90, 93)))])
    shards = train_numbers(source, num_workers)
    assert sorted(sum(shards, [])) == list(range(15))
    assert [len(shard) for shard in shards] == [Shard(i, num_workers).num_examples(15) for i in range(num_workers)]
    np.testing.assert_array_equal(read_column(lambda: source.test(batch_size=2), "number"), [90, 91, 92])


def test_header_lines_are_skipped_in_each_file(tmp_path):
    files = [
        text_file(write(tmp_path / name, numbers, head="number\n"), num_header_lines=1)
        for name, numbers in (("a", [1, 2]), ("b", [3, 4]))
    ]
    source = NumberLines(files, test_every=2)
    assert sorted(train_numbers(source)[0]) == [2, 4]


def test_a_window_larger_than_the_shard_shuffles_all_of_it_and_a_smaller_one_does_not(tmp_path):
    files = [text_file(write(tmp_path / "a", range(100)))]
    source = NumberLines(files, [files[0]])
    first, second = np.split(np.array(train_numbers(source, num_epochs=2)[0]), 2)
    assert sorted(first) == sorted(second) == list(range(100))
    assert list(first) != list(second)
    source.max_shuffled = 5
    (window,) = train_numbers(source)
    assert sorted(window) == list(range(100))
    assert all(number - at < 5 for at, number in enumerate(window))
    assert window != sorted(window)


@pytest.mark.parametrize(("is_test", "first_line"), [(False, 4), (True, 1)])
def test_a_broken_line_is_named_with_file_and_number(tmp_path, is_test, first_line):
    good = text_file(write(tmp_path / "good", range(3), head="h\n"), num_header_lines=1)
    broken = text_file(write(tmp_path / "broken", [*range(first_line - 1), "x" * 200, "y"]))
    source = NumberLines([good] if is_test else [good, broken], [broken] if is_test else [good])
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        read_batches(
            (lambda: source.test(batch_size=9))
            if is_test
            else (lambda: source.train(shard=Shard(0, 1), batch_size=8, seed=0, num_epochs=1))
        )
    message = str(raised.value)
    assert f"{tmp_path / 'broken'}: line " in message
    assert ": not a whole number: " in message
    if is_test:
        assert f"line {first_line}: not a whole number: {'x' * 80}" in message
        assert "x" * 81 not in message


def test_line_numbers_count_the_header(tmp_path):
    broken = text_file(write(tmp_path / "broken", [1, "", 2], head="h\n"), num_header_lines=1)
    source = NumberLines([broken], [broken])
    with pytest.raises(tf.errors.InvalidArgumentError, match="line 3: not a whole number: "):
        read_batches(lambda: source.test(batch_size=3))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        text_file(tmp_path / "none")
    (tmp_path / "empty").write_text("\n\n")
    with pytest.raises(DataError, match="empty: the file has 0 lines and no example"):
        text_file(tmp_path / "empty")
    with pytest.raises(DataError, match="head: the file has 1 lines and no example after the header of 1"):
        text_file(write(tmp_path / "head", ["number"]), num_header_lines=1)
    packed = gzip.compress(b"1\n2\n" * 1000)
    (tmp_path / "cut.gz").write_bytes(packed[:-9])
    with pytest.raises(DataError, match="cut.gz: cannot be unpacked"):
        text_file(tmp_path / "cut.gz")


def test_a_single_line_cannot_be_both_trained_and_tested_on(tmp_path):
    with pytest.raises(DataError, match="a: its only line is a test example"):
        NumberLines([text_file(write(tmp_path / "a", [1]))])


@pytest.mark.parametrize("seed", range(40))
def test_lines_are_counted_as_in_python(seed, monkeypatch):
    """Random texts are read in chunks so small that every border occurs."""
    random = np.random.RandomState(seed)
    monkeypatch.setattr(line_source, "_CHUNK_BYTES", int(random.randint(1, 5)))
    text = bytes(random.choice(list(b'a\n"'), size=random.randint(0, 30)).tolist())
    stripped = text.rstrip(b"\n")
    num_joined = sum(text[:at].count(b'"') % 2 for at, byte in enumerate(text) if byte == ord("\n"))
    assert line_source._count_lines(io.BytesIO(text)) == (len(stripped.split(b"\n")) if stripped else 0, num_joined)


def test_another_file_is_read_whole_and_leaves_the_training_files_as_they_are(tmp_path):
    source = NumberLines([text_file(write(tmp_path / "a", range(6), "head\n"), num_header_lines=1)], test_every=3)
    other = write(tmp_path / "b.gz", range(10, 14), "head\n")
    assert list(read_column(lambda: source.read(other, 3), "number")) == [10, 11, 12, 13]
    assert sorted(train_numbers(source)[0]) == [1, 2, 4, 5]
    assert list(read_column(lambda: source.test(batch_size=3), "number")) == [0, 3]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bz2.compress(b"1\n2\n"), "compressed with bzip2; unpack it, or compress it with gzip"),
        (lzma.compress(b"1\n2\n"), "compressed with xz; unpack it"),
        (b"\x28\xb5\x2f\xfd\x04\x00\x21\x00", "compressed with zstd; unpack it"),
        ("1\n2\n".encode("utf-16"), "line 1: not UTF-8 but UTF-16; convert the file, for example with iconv -f UTF-16"),
        (gzip.compress("\ufeff1\n2\n".encode("utf-16-be")), "line 1: not UTF-8 but UTF-16"),
    ],
    ids=["bzip2", "xz", "zstd", "utf-16", "utf-16 packed"],
)
@pytest.mark.parametrize("read", [text_file, document])
def test_a_file_that_is_not_utf_8_by_its_start_is_named(tmp_path, read, content, message):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match=f"^{tmp_path}/a: {message}"):
        read(tmp_path / "a")
