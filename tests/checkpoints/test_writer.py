"""Writing checkpoints: the kept ones, the leftovers of interrupted or failed saves, and their repair at a start."""

from __future__ import annotations

import errno
import os
import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import durable_files, writer
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.errors import CheckpointError, SaveError
from tests.checkpoints.checkpoint_files import DATA, INDEX, files_of, names, values_of, write
from tests.testing.logs import log_lines

USERS_FILES = ("writing-notes.txt", "writing-model.ckpt-x.index", "model.ckpt-5.txt", "worker-0.npz", "a.tmp")


def latest_step(folder):
    return checkpoint_lib.latest(folder).step


class TestKeeping:
    def test_keeps_the_newest_and_no_temporary_file(self, tmp_path):
        write(tmp_path, 1, 2, 3, 4, keep=2)
        assert names(tmp_path) == sorted(["checkpoint", *files_of(3, 4)])

    def test_the_state_file_names_the_kept_checkpoints_without_folder(self, tmp_path):
        write(tmp_path, 1, 2, 3, keep=2)
        state = tf.train.get_checkpoint_state(str(tmp_path))
        assert state.model_checkpoint_path == str(tmp_path / "model.ckpt-3")
        assert list(state.all_model_checkpoint_paths) == [str(tmp_path / f"model.ckpt-{s}") for s in (2, 3)]
        assert str(tmp_path) not in (tmp_path / "checkpoint").read_text()

    def test_a_damaged_newer_checkpoint_does_not_push_out_the_one_just_written(self, tmp_path):
        write(tmp_path, 1, 5)
        os.truncate(tmp_path / f"model.ckpt-5{DATA}", 3)
        write(tmp_path, 3, keep=1)
        assert names(tmp_path) == sorted(["checkpoint", *files_of(3, 5)])
        assert latest_step(tmp_path) == 3
        write(tmp_path, 5, keep=1)
        assert names(tmp_path) == sorted(["checkpoint", *files_of(5)])
        assert latest_step(tmp_path) == 5

    def test_data_without_index_is_removed_when_its_step_is_no_longer_kept(self, tmp_path):
        write(tmp_path, 1, 2)
        (tmp_path / f"model.ckpt-1{INDEX}").unlink()
        write(tmp_path, 3, keep=2)
        assert names(tmp_path) == sorted(["checkpoint", *files_of(2, 3)])

    def test_a_users_files_and_checkpoints_in_several_parts_stay(self, tmp_path):
        parts = ["model.ckpt-1.index", "model.ckpt-1.data-00000-of-00002", "model.ckpt-1.data-00001-of-00002"]
        for name in (*USERS_FILES, *parts, "best.index", "best.data-00000-of-00001"):
            (tmp_path / name).write_text("mine")
        write(tmp_path, 2, 3, keep=1)
        assert {name for name in names(tmp_path) if (tmp_path / name).read_bytes() == b"mine"} == {
            *USERS_FILES,
            *parts,
            "best.index",
            "best.data-00000-of-00001",
        }

    def test_the_same_values_at_the_same_step_are_not_written_again(self, tmp_path):
        write(tmp_path, 4)
        before = (tmp_path / f"model.ckpt-4{DATA}").stat()
        write(tmp_path, 4)
        assert (tmp_path / f"model.ckpt-4{DATA}").stat().st_ino == before.st_ino

    def test_other_values_at_the_same_step_replace_the_old(self, tmp_path):
        write(tmp_path, 4)
        writer.write(tmp_path, 4, values_of(4, scale=2.0))
        np.testing.assert_array_equal(
            checkpoint_lib.latest(tmp_path)["dense/w"], np.arange(6, dtype=np.float32).reshape(2, 3) * 2
        )

    def test_a_folder_that_goes_just_after_a_save_fails_the_next_one_only(self, tmp_path, monkeypatch):
        folder, aside = tmp_path / "checkpoints", tmp_path / "aside"
        write_state = writer._write_state

        def write_state_and_go(*arguments):
            write_state(*arguments)
            folder.rename(aside)
            folder.write_text("")

        monkeypatch.setattr(writer, "_write_state", write_state_and_go)
        with log_lines() as lines:
            writer.write(folder, 1, values_of(1))
        assert "older checkpoints could not be removed" in lines[-1]
        assert latest_step(aside) == 1
        with pytest.raises(SaveError, match="could not be written"):
            writer.write(folder, 2, values_of(2))

    def test_a_file_that_cannot_be_removed_does_not_fail_the_save(self, tmp_path):
        write(tmp_path, 1)
        (tmp_path / f"model.ckpt-1{INDEX}").unlink()
        (tmp_path / f"model.ckpt-1{INDEX}").mkdir()
        with log_lines() as lines:
            write(tmp_path, 2, keep=1)
        assert "could not be removed" in lines[0]
        assert latest_step(tmp_path) == 2


class TestMovedFolders:
    def test_is_read_from_its_new_place_by_plain_tensorflow_too(self, tmp_path):
        write(tmp_path / "old", 2)
        (tmp_path / "old").rename(tmp_path / "new")
        assert tf.train.latest_checkpoint(str(tmp_path / "new")) == str(tmp_path / "new" / "model.ckpt-2")
        assert checkpoint_lib.latest(tmp_path / "new").prefix == str(tmp_path / "new" / "model.ckpt-2")

    def test_a_copy_does_not_restore_from_the_old_place(self, tmp_path):
        """A stock Saver writes absolute paths if it was given one, so the copy's state file names the original."""
        write(tmp_path / "old", 1, 2)
        shutil.copytree(tmp_path / "old", tmp_path / "copy")
        (tmp_path / "copy" / "checkpoint").write_text(f'model_checkpoint_path: "{tmp_path}/old/model.ckpt-2"\n')
        write(tmp_path / "old", 3)
        writer.repair(tmp_path / "copy")
        assert tf.train.latest_checkpoint(str(tmp_path / "copy")) == str(tmp_path / "copy" / "model.ckpt-2")


class TestStateFileRepair:
    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (None, "is missing"),
            (b"", "is empty"),
            (b"garbage", "names no checkpoint"),
            (b"\xff\xfe", "is not text"),
            (b'model_checkpoint_path: "/old/model.ckpt-2"', "names /old/model.ckpt-2"),
            (b'model_checkpoint_path: "model.ckpt-1"', "names model.ckpt-1"),
        ],
    )
    def test_it_names_the_newest_loadable_checkpoint_again(self, tmp_path, content, reason):
        write(tmp_path, 1, 2)
        (tmp_path / "checkpoint").unlink()
        if content is not None:
            (tmp_path / "checkpoint").write_bytes(content)
        with log_lines() as lines:
            writer.repair(tmp_path)
        assert reason in lines[0] and "it names model.ckpt-2 now" in lines[0]
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-2")

    def test_it_does_not_name_a_damaged_one(self, tmp_path):
        write(tmp_path, 1, 2)
        os.truncate(tmp_path / f"model.ckpt-2{INDEX}", 10)
        writer.repair(tmp_path)
        assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-1")

    def test_a_correct_state_file_is_not_changed(self, tmp_path):
        write(tmp_path, 1, 2)
        before = (tmp_path / "checkpoint").stat()
        with log_lines() as lines:
            writer.repair(tmp_path)
        assert not lines and (tmp_path / "checkpoint").stat() == before

    def test_a_missing_folder_is_not_made(self, tmp_path):
        writer.repair(tmp_path / "absent")
        assert not (tmp_path / "absent").exists()

    def test_a_state_file_that_cannot_be_written_is_an_error(self, tmp_path, monkeypatch):
        write(tmp_path, 1)
        (tmp_path / "checkpoint").unlink()
        monkeypatch.setattr(durable_files.os, "replace", _failing(errno.EROFS))
        with pytest.raises(CheckpointError, match="cannot be written: Read-only file system"):
            writer.repair(tmp_path)


class TestInterruptedSaves:
    """Leftovers of a save that was killed at each of its moments; the names are those that `kill -9` really left."""

    @pytest.fixture
    def folder(self, tmp_path):
        """Step 1 is saved; the files of step 2 have their temporary names."""
        write(tmp_path, 1, 2)
        for suffix in (INDEX, DATA):
            (tmp_path / f"model.ckpt-2{suffix}").rename(tmp_path / f"writing-model.ckpt-2{suffix}")
        (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
        return tmp_path

    def test_a_save_with_all_files_written_and_none_renamed_is_completed(self, folder):
        writer.repair(folder)
        assert names(folder) == sorted(["checkpoint", *files_of(1, 2)])
        assert latest_step(folder) == 2
        assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-2")

    def test_a_save_between_its_renames_is_completed(self, folder):
        (folder / f"writing-model.ckpt-2{DATA}").rename(folder / f"model.ckpt-2{DATA}")
        writer.repair(folder)
        assert names(folder) == sorted(["checkpoint", *files_of(1, 2)])
        assert latest_step(folder) == 2

    def test_the_first_save_between_its_renames_is_completed(self, folder):
        (folder / f"writing-model.ckpt-2{DATA}").rename(folder / f"model.ckpt-2{DATA}")
        for name in ("checkpoint", *files_of(1)):
            (folder / name).unlink()
        writer.repair(folder)
        assert latest_step(folder) == 2

    @pytest.mark.parametrize("suffix", [INDEX, DATA])
    def test_half_written_files_are_removed(self, folder, suffix):
        os.truncate(folder / f"writing-model.ckpt-2{suffix}", 20)
        writer.repair(folder)
        assert names(folder) == sorted(["checkpoint", *files_of(1)])

    @pytest.mark.parametrize(
        "left",
        [
            f"writing-model.ckpt-3{DATA}",
            f"writing-model.ckpt-3{INDEX}",
            f"writing-model.ckpt-3{DATA}.tempstate1234567",
            f"writing-model.ckpt-3{INDEX}.tempstate1234567",
            "writing-checkpoint",
        ],
    )
    @pytest.mark.parametrize("by", ["the next start", "the next save"])
    def test_leftovers_are_removed_and_a_users_files_stay(self, tmp_path, left, by):
        write(tmp_path, 1)
        for name in (left, *USERS_FILES):
            (tmp_path / name).write_bytes(b"half")
        if by == "the next start":
            writer.repair(tmp_path)
        else:
            write(tmp_path, 1)
        assert names(tmp_path) == sorted(["checkpoint", *files_of(1), *USERS_FILES])

    def test_a_save_killed_before_any_checkpoint_was_whole_lets_the_run_begin(self, tmp_path):
        (tmp_path / f"writing-model.ckpt-1{DATA}").write_bytes(b"half")
        writer.repair(tmp_path)
        assert names(tmp_path) == [] and checkpoint_lib.latest(tmp_path) is None


class TestFailedSaves:
    @pytest.mark.parametrize("call", ["fsync", "replace"])
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            (errno.ENOSPC, r"is full \([\d,]+ bytes are free, 68 are needed\).*--keep_checkpoints"),
            (errno.EDQUOT, "is full"),
            (errno.EIO, "Input/output error"),
            (errno.EROFS, "Read-only file system"),
        ],
    )
    def test_gives_the_reason_and_leaves_the_last_good_checkpoint(self, tmp_path, monkeypatch, call, code, reason):
        write(tmp_path, 1)
        before = names(tmp_path)
        monkeypatch.setattr(durable_files.os, call, _failing(code))
        with pytest.raises(SaveError, match=reason) as caught:
            write(tmp_path, 2, keep=1)
        monkeypatch.undo()
        assert "model.ckpt-2" in str(caught.value)
        assert names(tmp_path) == before
        assert latest_step(tmp_path) == 1

    def test_a_file_in_the_folders_place_fails_the_save(self, tmp_path):
        (tmp_path / "checkpoints").write_text("")
        with pytest.raises(SaveError, match="could not be written: .*must be a folder"):
            write(tmp_path / "checkpoints", 1)

    def test_only_the_main_text_of_a_tensorflow_error_is_reported(self, tmp_path, monkeypatch):
        """The report has neither the traceback before that text nor the description of the node after it."""
        message = "Traceback:\n  File a.py, line 1\n\nDisk on fire; a.tmp\n\t [[node save]]\n"

        def fail(*_):
            raise tf.errors.InternalError(None, None, message)

        monkeypatch.setattr(writer, "_write_files", fail)
        with pytest.raises(SaveError, match=f"could not be written: Disk on fire; a.tmp; {tmp_path} must be a folder"):
            write(tmp_path, 1)

    def test_a_folder_in_the_files_place_fails_the_save(self, tmp_path):
        write(tmp_path, 1)
        (tmp_path / f"model.ckpt-2{INDEX}").mkdir()
        with pytest.raises(SaveError, match="could not be written"):
            write(tmp_path, 2)
        (tmp_path / f"model.ckpt-2{INDEX}").rmdir()
        assert latest_step(tmp_path) == 1

    def test_a_state_file_that_cannot_be_written_leaves_a_checkpoint_that_is_found(self, tmp_path, monkeypatch):
        write(tmp_path, 1)
        monkeypatch.setattr(writer, "_write_state", _failing(errno.ENOSPC))
        with pytest.raises(SaveError, match="is full"):
            write(tmp_path, 2)
        assert latest_step(tmp_path) == 2

    def test_everything_is_on_the_disk_before_it_is_renamed(self, tmp_path, monkeypatch):
        """The order is: files, folder, state file, and the folder again."""
        done = []
        real_sync, real_replace = durable_files.sync, os.replace
        monkeypatch.setattr(durable_files, "sync", lambda path: (done.append(f"sync {_short(path)}"), real_sync(path)))
        monkeypatch.setattr(
            durable_files.os,
            "replace",
            lambda *paths: (done.append(f"rename {_short(paths[0])}"), real_replace(*paths)),
        )
        write(tmp_path, 1)
        assert done == [
            f"sync writing-model.ckpt-1{DATA}",
            f"sync writing-model.ckpt-1{INDEX}",
            f"rename writing-model.ckpt-1{DATA}",
            f"rename writing-model.ckpt-1{INDEX}",
            f"sync {tmp_path.name}",
            "sync writing-checkpoint",
            "rename writing-checkpoint",
            f"sync {tmp_path.name}",
        ]


def _failing(code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    return fail


def _short(path):
    return os.path.basename(path)
