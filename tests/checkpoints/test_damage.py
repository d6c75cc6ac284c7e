"""Damaged checkpoints are never loaded, silently skipped, or taken for step 0; the message names the cause."""

from __future__ import annotations

import os
import re
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.errors import CheckpointError
from tests.checkpoints.checkpoint_files import DATA, INDEX, values_of, write
from tests.testing.logs import log_lines

NEWEST = "model.ckpt-2"


def cut(suffix, size):
    """Truncates to `size` bytes, or by `-size` bytes if `size` is negative."""

    def damage(folder):
        path = folder / f"{NEWEST}{suffix}"
        os.truncate(path, size if size >= 0 else path.stat().st_size + size)

    return damage


def flip(suffix, position, mask=0x01):
    def damage(folder):
        path = folder / f"{NEWEST}{suffix}"
        content = bytearray(path.read_bytes())
        content[position] ^= mask
        path.write_bytes(content)

    return damage


def overwrite(suffix, content):
    return lambda folder: (folder / f"{NEWEST}{suffix}").write_bytes(content)


def delete(suffix):
    return lambda folder: (folder / f"{NEWEST}{suffix}").unlink()


def become_folder(suffix):
    def damage(folder):
        (folder / f"{NEWEST}{suffix}").unlink()
        (folder / f"{NEWEST}{suffix}").mkdir()

    return damage


def link_nowhere(suffix):
    def damage(folder):
        (folder / f"{NEWEST}{suffix}").unlink()
        (folder / f"{NEWEST}{suffix}").symlink_to("/nowhere/at/all")

    return damage


def take_from_the_one_before(suffix):
    return lambda folder: shutil.copyfile(folder / f"model.ckpt-1{suffix}", folder / f"{NEWEST}{suffix}")


def rename(suffix, to):
    return lambda folder: (folder / f"{NEWEST}{suffix}").rename(folder / f"{NEWEST}{to}")


def zero_out(suffix):
    def damage(folder):
        path = folder / f"{NEWEST}{suffix}"
        path.write_bytes(bytes(path.stat().st_size))

    return damage


def save_instead(values):
    """Replaces the newest checkpoint by a valid one with other tensors."""

    def damage(folder):
        with tf.Graph().as_default(), tf.Session() as session:
            save_op = tf.raw_ops.SaveV2(
                prefix=str(folder / NEWEST),
                tensor_names=list(values),
                shape_and_slices=[""] * len(values),
                tensors=list(values.values()),
            )
            session.run(save_op)

    return damage


def another_step(folder):
    for suffix in (INDEX, DATA):
        shutil.copyfile(folder / f"model.ckpt-1{suffix}", folder / f"{NEWEST}{suffix}")


def second_set_of_data(folder):
    shutil.copyfile(folder / f"{NEWEST}{DATA}", folder / f"{NEWEST}.data-00000-of-00002")


DAMAGES = {
    "index cut to 0 bytes": (cut(INDEX, 0), "model.ckpt-2.index is empty"),
    "index cut to 1 byte": (cut(INDEX, 1), "index is damaged"),
    "index cut to 47 bytes, less than its footer": (cut(INDEX, 47), "index is damaged"),
    "index cut to 100 bytes": (cut(INDEX, 100), "index is damaged"),
    "index without its last byte": (cut(INDEX, -1), "index is damaged"),
    "index with its first byte flipped": (flip(INDEX, 0), "index is damaged"),
    "index with a name flipped": (flip(INDEX, 30), "index is damaged"),
    "index with its checksum flipped": (flip(INDEX, 60, 0xFF), "index is damaged"),
    "index with its magic number flipped": (flip(INDEX, -1), "index is damaged"),
    "index overwritten with text": (overwrite(INDEX, b"garbage"), "index is damaged"),
    "index overwritten with long text": (overwrite(INDEX, b"garbage " * 100), "index is damaged"),
    "index of zeros": (zero_out(INDEX), "index is damaged"),
    "index deleted": (delete(INDEX), "model.ckpt-2 has no .index"),
    "index a folder": (become_folder(INDEX), "model.ckpt-2.index is not a file"),
    "index a link to nowhere": (link_nowhere(INDEX), "model.ckpt-2.index is missing"),
    "index of another checkpoint": (take_from_the_one_before(INDEX), "global_step cannot be read: its file is damaged"),
    "data cut to 0 bytes": (cut(DATA, 0), "its data file is truncated"),
    "data cut to 1 byte": (cut(DATA, 1), "its data file is truncated"),
    "data cut to half": (cut(DATA, 30), "its data file is truncated"),
    "data without its last byte": (cut(DATA, -1), "its data file is truncated"),
    "data with its first byte flipped": (flip(DATA, 0), "dense/b cannot be read: its file is damaged"),
    "data with a middle byte flipped": (flip(DATA, 20), "dense/w cannot be read: its file is damaged"),
    "data with a slot's byte flipped": (flip(DATA, 40), "dense/w/Momentum cannot be read: its file is damaged"),
    "data with its last byte flipped": (flip(DATA, -1), "global_step cannot be read: its file is damaged"),
    "data of zeros": (zero_out(DATA), "its file is damaged"),
    "data overwritten with text": (overwrite(DATA, b"garbage " * 100), "its file is damaged"),
    "data deleted": (delete(DATA), r"model.ckpt-2.data-\* is missing"),
    "data a folder": (become_folder(DATA), "model.ckpt-2.data-00000-of-00001 is not a file"),
    "data a link to nowhere": (link_nowhere(DATA), "model.ckpt-2.data-00000-of-00001 is not a file"),
    "data of another checkpoint": (take_from_the_one_before(DATA), "global_step cannot be read: its file is damaged"),
    "data called part 1 of 2": (rename(DATA, ".data-00000-of-00002"), "data-00001-of-00002 is missing"),
    "data called part 2 of 2": (rename(DATA, ".data-00001-of-00002"), "data-00000-of-00002 is missing"),
    "data called part 2 of 1": (rename(DATA, ".data-00001-of-00001"), "data-00000-of-00001 is missing"),
    "data in two sets of parts": (second_set_of_data, "data files belong to several checkpoints"),
    "files of step 1 called step 2": (another_step, "holds global_step 1: it was renamed"),
    "no global_step": (save_instead({"dense/w": np.ones(3)}), "holds no global_step"),
    "no tensor": (save_instead({"_CHECKPOINTABLE_OBJECT_GRAPH": np.array(b"")}), "tf.train.Checkpoint"),
    "global_step negative": (save_instead({"global_step": np.int64(-2)}), "must be a whole number"),
    "global_step a fraction": (save_instead({"global_step": np.float32(2.0)}), "must be a whole number"),
    "global_step a vector": (save_instead({"global_step": np.array([2, 2])}), "must be a whole number"),
    "global_step a text": (save_instead({"global_step": np.array(b"2")}), "must be a whole number"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with the checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("whole")
    write(folder, 1, 2)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "checkpoints")


@pytest.mark.parametrize(("damage", "cause"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_newest_is_named_with_its_cause_and_the_previous_one_is_used(folder, damage, cause):
    damage(folder)
    with log_lines() as lines:
        checkpoint = checkpoint_lib.latest(folder)
    assert checkpoint.prefix == str(folder / "model.ckpt-1")
    np.testing.assert_array_equal(checkpoint["dense/w"], values_of(1)["dense/w"])
    (warning,) = lines
    assert NEWEST in warning and re.search(cause, warning), warning


@pytest.mark.parametrize(("damage", "cause"), DAMAGES.values(), ids=DAMAGES)
def test_if_none_loads_it_is_an_error_and_not_step_0(folder, damage, cause):
    damage(folder)
    for path in folder.glob("model.ckpt-1.*"):
        path.unlink()
    with pytest.raises(CheckpointError, match=r"none can be loaded.*--logdir") as caught:
        checkpoint_lib.latest(folder)
    assert NEWEST in str(caught.value)


@pytest.mark.parametrize("suffix", [INDEX, DATA])
@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_no_flipped_bit_gives_wrong_values(folder, suffix, mask):
    """Flips a bit of each byte in turn: the checkpoint is rejected or its values are right; some bytes are unused."""
    path = folder / f"{NEWEST}{suffix}"
    content = path.read_bytes()
    refused = 0
    for position in range(len(content)):
        flip(suffix, position, mask)(folder)
        try:
            checkpoint = checkpoint_lib.Checkpoint(folder / NEWEST)
            checkpoint.verify()
        except CheckpointError:
            refused += 1
        else:
            assert suffix == INDEX
            _assert_holds(checkpoint, values_of(2))
        path.write_bytes(content)
    assert refused == len(content) if suffix == DATA else refused > len(content) / 2


@pytest.mark.parametrize("suffix", [INDEX, DATA])
def test_no_length_but_the_whole_is_accepted(folder, suffix):
    path = folder / f"{NEWEST}{suffix}"
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(CheckpointError):
            checkpoint_lib.Checkpoint(folder / NEWEST).verify()
    path.write_bytes(content)
    checkpoint_lib.Checkpoint(folder / NEWEST).verify()


STATE_FILES = {
    "missing": None,
    "empty": b"",
    "blank": b"\n \n",
    "garbage": b"garbage \x00",
    "not text": b"\xff\xfe\x00",
    "cut": b'model_checkpoint_path: "model.ck',
    "an empty name": b'model_checkpoint_path: ""\n',
    "an older one": b'model_checkpoint_path: "model.ckpt-1"\n',
    "a folder that no longer exists": b'model_checkpoint_path: "/old/place/model.ckpt-2"\n',
}


@pytest.mark.parametrize("content", STATE_FILES.values(), ids=STATE_FILES)
def test_the_newest_is_found_whatever_the_state_file_says(folder, content):
    (folder / "checkpoint").unlink()
    if content is not None:
        (folder / "checkpoint").write_bytes(content)
    assert checkpoint_lib.latest(folder).prefix == str(folder / NEWEST)


def test_a_state_file_that_names_a_newer_missing_checkpoint_is_reported(folder):
    (folder / "checkpoint").write_text('model_checkpoint_path: "/old/place/model.ckpt-300"\n')
    with log_lines() as lines:
        assert checkpoint_lib.latest(folder).prefix == str(folder / NEWEST)
    assert "model.ckpt-300 has no .index (the state file names it)" in lines[0]


def test_no_state_file_of_random_bytes_hides_a_checkpoint(folder):
    """Half of the random bytes begin like a valid state file; the seed is fixed."""
    rng = np.random.default_rng(0)
    for trial in range(300):
        start = b'model_checkpoint_path: "model.ckpt-1"\n'[: rng.integers(40)] if trial % 2 else b""
        (folder / "checkpoint").write_bytes(start + rng.bytes(rng.integers(60)))
        with log_lines():
            assert checkpoint_lib.latest(folder).prefix == str(folder / NEWEST)


class TestFoldersWithoutALoadableOne:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "a state file that is empty"),
            (b"garbage", "a state file that names no checkpoint"),
            (b"\xff", "a state file that is not text"),
            (b'model_checkpoint_path: "/old/model.ckpt-7"', "a state file that names /old/model.ckpt-7"),
        ],
    )
    def test_a_lone_state_file_is_an_error(self, tmp_path, content, said):
        (tmp_path / "checkpoint").write_bytes(content)
        with pytest.raises(CheckpointError, match=said):
            checkpoint_lib.latest(tmp_path)

    @pytest.mark.parametrize("name", ["best-300", "model.ckpt", "model.ckpt-007", "model.ckpt-best", "my.model.ckpt-3"])
    def test_a_checkpoint_of_another_name_is_an_error(self, whole, tmp_path, name):
        for suffix in (INDEX, DATA):
            shutil.copyfile(whole / f"{NEWEST}{suffix}", tmp_path / f"{name}{suffix}")
        with pytest.raises(CheckpointError, match=f"{name}, a checkpoint of another name"):
            checkpoint_lib.latest(tmp_path)

    def test_data_alone_is_an_error(self, whole, tmp_path):
        shutil.copyfile(whole / f"{NEWEST}{DATA}", tmp_path / f"{NEWEST}{DATA}")
        with pytest.raises(CheckpointError, match="model.ckpt-2 without its .index"):
            checkpoint_lib.latest(tmp_path)

    def test_a_file_in_the_folders_place_is_an_error(self, tmp_path):
        (tmp_path / "checkpoints").write_text("")
        with pytest.raises(CheckpointError, match="is not a folder"):
            checkpoint_lib.latest(tmp_path / "checkpoints")

    def test_a_link_to_a_disk_that_is_not_mounted_is_an_error(self, tmp_path):
        (tmp_path / "checkpoints").symlink_to(tmp_path / "disk")
        with pytest.raises(CheckpointError, match="is its disk mounted"):
            checkpoint_lib.latest(tmp_path / "checkpoints")

    def test_a_folder_that_may_not_be_read_is_an_error(self, tmp_path, monkeypatch):
        def refuse(path):
            raise PermissionError(13, "Permission denied", str(path))  # root may read everything

        monkeypatch.setattr(os, "listdir", refuse)
        with pytest.raises(CheckpointError, match="Permission denied; change its owner or mode"):
            checkpoint_lib.latest(tmp_path)

    @pytest.mark.parametrize("name", ["worker-0.npz", "notes.txt", "writing-model.ckpt-1.index", "model.index.html"])
    def test_a_folder_without_any_checkpoint_file_means_step_0(self, tmp_path, name):
        (tmp_path / name).write_text("x")
        assert checkpoint_lib.latest(tmp_path) is None

    def test_a_missing_folder_means_step_0(self, tmp_path):
        assert checkpoint_lib.latest(tmp_path / "absent") is None


def test_a_sharded_checkpoint_of_a_stock_saver_is_read(tmp_path):
    """The checkpoint has two data files and the name `model.ckpt-3`, as `MonitoredTrainingSession` writes it."""
    with tf.Graph().as_default(), tf.Session() as session:
        first = tf.get_variable("first", initializer=np.float32(1.0))
        with tf.device("/cpu:0"):
            step = tf.get_variable("global_step", initializer=np.int64(3), trainable=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver([first, step], sharded=True).save(session, str(tmp_path / "model.ckpt"), global_step=3)
    assert checkpoint_lib.latest(tmp_path)["first"] == 1.0


def _assert_holds(checkpoint, values):
    assert set(checkpoint) == set(values)
    for name, value in values.items():
        np.testing.assert_array_equal(checkpoint[name], value, err_msg=name)
