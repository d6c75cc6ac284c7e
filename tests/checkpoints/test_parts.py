"""Checkpoints with large tensors: several data files, written, read, repaired and removed like one."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import parts, writer
from ps_trainer.checkpoints.reader import Checkpoint, latest
from ps_trainer.errors import CheckpointError
from tests.checkpoints.checkpoint_files import names

LIMIT = 64


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", LIMIT)


def large_values(step=1):
    """A table of 10 rows of 16 bytes, a vector of 20 numbers, and small values, one of which is as large as a part."""
    return {
        "table": np.arange(40, dtype=np.float32).reshape(10, 4) + step,
        "vector": np.arange(20, dtype=np.float64) * step,
        "whole": np.full([4, 4], step, np.float32),
        "global_step": np.int64(step),
    }


def assert_holds(prefix, wanted):
    found = Checkpoint(prefix)
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


def files_of(*steps):
    # The vector has 160 bytes in three parts of at most 64, the table 160 bytes in three parts of whole rows.
    return sorted(
        f"model.ckpt-{step}.{end}"
        for step in steps
        for end in ("index", *(f"data-{index:05d}-of-00007" for index in range(7)))
    )


def test_large_tensors_lie_in_parts_and_plain_tensorflow_reads_them(tmp_path):
    prefix = writer.write(tmp_path, 1, large_values())
    assert names(tmp_path) == sorted(["checkpoint", *files_of(1)])
    assert_holds(prefix, large_values())
    plain = tf.train.load_checkpoint(prefix)
    assert {name: plain.get_tensor(name).tolist() for name in large_values()} == {
        name: value.tolist() for name, value in large_values().items()
    }


def test_a_save_may_pause_between_two_data_files(tmp_path):
    written = []
    count = lambda: written.append(sum("data" in name for name in names(tmp_path)))  # noqa: E731
    writer.write(tmp_path, 1, large_values(), between_files=count)
    assert written == [1, 2, 3, 4, 5, 6]


def test_no_piece_that_is_read_is_larger_than_a_part(tmp_path):
    found = Checkpoint(writer.write(tmp_path, 1, large_values()))
    largest = max(os.path.getsize(path) for path in found.files if "data" in path.name)
    for name, value in large_values().items():
        pieces = list(found.chunks(name))
        assert max(piece.nbytes for _, piece in pieces) <= max(LIMIT, largest)
        assert len(pieces) > 1 or value.nbytes <= largest
        if value.ndim:
            np.testing.assert_array_equal(np.concatenate([piece for _, piece in pieces]), value)
    pieces = list(found.chunks("table", 3, 9))
    assert [first for first, _ in pieces] == [3, 4, 8]
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in pieces]), large_values()["table"][3:9])


def test_a_tensor_that_was_saved_as_a_whole_is_read_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 2**20)
    found = Checkpoint(writer.write(tmp_path, 1, large_values()))
    monkeypatch.setattr(parts, "PART_BYTES", LIMIT)
    assert [piece.shape for _, piece in found.chunks("table")] == [(10, 4)]
    ((first, rows),) = found.chunks("table", 3, 9)
    assert first == 3
    np.testing.assert_array_equal(rows, large_values()["table"][3:9])


def test_older_ones_are_removed_and_a_users_stay(tmp_path):
    users = ["model.ckpt-1.index", "model.ckpt-1.data-00000-of-00002", "model.ckpt-1.data-00001-of-00002"]
    for name in users:
        (tmp_path / name).write_text("mine")
    for step in (2, 3, 4):
        writer.write(tmp_path, step, large_values(step), keep=2)
    assert names(tmp_path) == sorted(["checkpoint", *users, *files_of(3, 4)])


def test_other_values_replace_those_of_the_step_whatever_the_number_of_files(tmp_path, monkeypatch):
    writer.write(tmp_path, 1, large_values())
    monkeypatch.setattr(parts, "PART_BYTES", 2**20)
    writer.write(tmp_path, 1, large_values(5) | {"global_step": np.int64(1)})
    assert len(names(tmp_path)) == 3
    assert_holds(tmp_path / "model.ckpt-1", large_values(5) | {"global_step": np.int64(1)})


def test_equal_values_are_not_written_again(tmp_path):
    writer.write(tmp_path, 1, large_values())
    before = {name: (tmp_path / name).stat().st_ino for name in files_of(1)}
    writer.write(tmp_path, 1, large_values())
    assert {name: (tmp_path / name).stat().st_ino for name in files_of(1)} == before


class Killed(BaseException):
    """Ends a save as a kill would: nothing cleans up."""


@pytest.mark.parametrize("call", range(9))
@pytest.mark.parametrize("before", ["nothing", "the same step", "the same step in one file"])
def test_a_save_that_was_killed_between_its_renames_is_completed(tmp_path, monkeypatch, before, call):
    """It removes the old data file where there is another number, then renames seven data files and the index."""
    if before != "nothing":
        with monkeypatch.context() as patch:
            patch.setattr(parts, "PART_BYTES", LIMIT if before == "the same step" else 2**20)
            writer.write(tmp_path, 2, large_values(9) | {"global_step": np.int64(2)})
    calls = []

    def counted(function):
        def call_or_die(*args, **options):
            calls.append(function)
            if len(calls) > call:
                raise Killed
            return function(*args, **options)

        return call_or_die

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(os, "unlink", counted(os.unlink))
        with pytest.raises(Killed):
            writer.write(tmp_path, 2, large_values(2))
    writer.repair(tmp_path)
    assert latest(tmp_path).step == 2
    assert_holds(tmp_path / "model.ckpt-2", large_values(2))
    assert names(tmp_path) == sorted(["checkpoint", *files_of(2)])


def test_a_save_that_was_killed_while_it_wrote_parts_leaves_nothing(tmp_path, monkeypatch):
    writer.write(tmp_path, 1, large_values())
    saved = []

    def save_two(prefix, part):
        if len(saved) == 2:
            raise KeyboardInterrupt
        saved.append(prefix)
        save(prefix, part)

    save = writer._save
    monkeypatch.setattr(writer, "_save", save_two)
    with pytest.raises(KeyboardInterrupt):
        writer.write(tmp_path, 2, large_values(2))
    assert any("part" in name for name in names(tmp_path))
    writer.repair(tmp_path)
    assert names(tmp_path) == sorted(["checkpoint", *files_of(1)])


def test_a_damaged_part_is_noticed(tmp_path):
    prefix = writer.write(tmp_path, 1, large_values())
    path = pathlib.Path(f"{prefix}.data-00003-of-00007")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint(prefix).verify()
