"""The chief's checkpointer: the times of its saves, and how long training continues when saves fail."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.checkpoints.held_state import HeldSnapshot
from ps_trainer.checkpoints.save_tally import SaveTally
from ps_trainer.config import TrainConfig
from ps_trainer.errors import NanLossError, SaveError
from ps_trainer.training import checkpointer
from tests.checkpoints.checkpoint_files import values_of, write
from tests.testing.logs import log_lines
from tests.testing.processes import START_SECS, wait_until


class FakeTime:
    """Seconds that pass only when the test moves them."""

    now = 0.0

    def __call__(self):
        return self.now


class ChiefRun:
    """A chief's run that has only the values of its state.

    Attributes:
        folder: Folder of the checkpoints.
        values: Values that the next snapshot finds.
    """

    def __init__(self, logdir, **fields):
        self.folder = logdir / "checkpoints"
        self.fake_time = FakeTime()
        self.values = values_of(0)
        held_state = types.SimpleNamespace(
            num_bytes=0,
            total_bytes=0,
            logged_bytes=0,
            is_large=False,
            hold=lambda session: HeldSnapshot(int(self.values["global_step"]), [], self.values),
            read=self._read,
        )
        train = types.SimpleNamespace(
            held_state=held_state,
            step=types.SimpleNamespace(exchange=None),
            publish_counts_op=None,
        )
        config = TrainConfig(logdir=str(logdir), **fields)
        config.check()
        self.may_read = threading.Event()
        self.may_read.set()
        self.tally = SaveTally()
        self.held_state = held_state
        self.checkpointer = checkpointer.Checkpointer(train, config, None, self.tally, self.fake_time)

    def _read(self, session, moment, after_slice, folder):
        assert self.may_read.wait(60)
        after_slice()
        return moment.counts

    def begin(self, step, secs=0.0):
        """Makes a step that takes `secs`, and does not wait for the end of a save."""
        self.fake_time.now += secs
        self.values = values_of(step)
        return self.checkpointer.begin_if_due(None, step)

    def step(self, step, secs=0.0):
        """Makes a step that takes `secs`; a save that is due ends before the next step."""
        self.begin(step, secs)
        self.checkpointer.wait()
        return self.checkpointer.take_saved()

    def break_disk(self):
        """Puts a file in the folder's place, because root may write to any folder."""
        self.folder.rename(self.folder.with_name("aside"))
        self.folder.write_text("")

    def mend_disk(self):
        self.folder.unlink()
        self.folder.with_name("aside").rename(self.folder)

    @property
    def steps(self):
        return [checkpoint_lib.Checkpoint(prefix).step for prefix in checkpoint_lib.list_prefixes(self.folder)]


def test_saves_when_the_seconds_are_up(tmp_path):
    run = ChiefRun(tmp_path, save_checkpoint_secs=60.0)
    for step in range(1, 9):
        run.step(step, secs=25.0)
    assert run.steps == [3, 6]  # after 75 and 150 s


def test_saves_when_the_steps_are_up(tmp_path):
    run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=3)
    for step in (1, 2, 4, 5, 7, 10):
        run.step(step)
    assert run.steps == [4, 7, 10]


def test_steps_between_saves_count_from_0_so_that_all_tasks_save_at_the_same(tmp_path):
    run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=3)
    for step in (4, 5, 6, 8, 9):
        run.step(step)
    assert run.steps == [4, 6, 9]


class TestBesideTheSteps:
    def test_steps_are_made_while_a_save_reads_and_another_save_is_not_begun(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=60.0)
        run.may_read.clear()
        assert run.begin(1, secs=60.0)
        values = run.values
        for step in range(2, 6):
            assert not run.begin(step, secs=60.0)
            assert run.checkpointer.take_saved() is None
        run.may_read.set()
        run.checkpointer.wait()
        assert run.checkpointer.take_saved() is values
        assert run.checkpointer.take_saved() is None
        assert run.steps == [1]
        assert not run.begin(6, secs=59.0)  # the interval begins at the end of the save
        assert run.begin(7, secs=1.0)
        run.checkpointer.wait()
        assert run.steps == [1, 7]

    def test_a_save_that_is_due_during_a_large_one_begins_after_it_and_no_step_waits(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=2)
        run.held_state.is_large = True
        run.may_read.clear()
        assert run.begin(2)
        with log_lines() as lines:
            for step in range(3, 8):
                assert not run.begin(step)
        assert lines == ["the save of step 2 is still in progress, so the one that is due at step 4 begins after it"]
        run.may_read.set()
        run.checkpointer.wait()
        assert run.begin(8)
        run.checkpointer.wait()
        assert run.steps == [2, 8]

    def test_a_large_save_that_has_ended_does_not_put_off_the_next_one(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=2)
        run.held_state.is_large = True
        assert run.begin(2)
        for thread in threading.enumerate():
            if thread.name == "save":
                thread.join(60)
        assert run.checkpointer.is_due(3)
        assert run.begin(4)
        run.checkpointer.wait()
        assert run.steps == [2, 4]

    def test_a_disk_that_does_not_answer_ends_the_wait_with_an_error(self, tmp_path, monkeypatch):
        monkeypatch.setattr(checkpointer, "_WRITE_SECS", 0.05)
        may_write = threading.Event()
        monkeypatch.setattr(checkpointer.writer, "write", lambda *_: may_write.wait(60))
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1)
        run.begin(1)
        with log_lines() as lines:
            wait_until(lambda: run.checkpointer.take_saved() or lines, START_SECS, "no warning")
            assert run.checkpointer.take_saved() is None
        (line,) = lines
        assert "step 1 has been writing for 0 s: the disk of" in line and "Training continues" in line
        with pytest.raises(SaveError, match="step 1 has not ended 0 s after .*checkpoints does not answer"):
            run.checkpointer.wait()
        may_write.set()
        run.checkpointer.wait()
        may_write.clear()
        run.values = values_of(3)
        with pytest.raises(SaveError, match="the save of step 3 has not ended"):
            run.checkpointer.save(None)
        may_write.set()

    def test_ps_tasks_that_do_not_answer_end_the_wait_with_an_error(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1, heartbeat_timeout_secs=0.05)
        run.may_read.clear()
        run.begin(1)
        with pytest.raises(SaveError, match="0 s for the save of step 1 to read the rest .* from the ps tasks"):
            run.checkpointer.wait()
        run.may_read.set()
        run.checkpointer.wait()
        assert run.steps == [1]

    def test_a_small_save_that_is_due_by_its_step_waits_for_the_one_before(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=2)
        run.may_read.clear()
        assert run.begin(2)
        assert not run.begin(3)
        threading.Timer(0.05, run.may_read.set).start()
        assert run.begin(4)
        run.checkpointer.wait()
        assert run.steps == [2, 4]

    def test_an_abandoned_save_that_still_reads_writes_nothing(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1)
        run.step(1)
        run.may_read.clear()
        run.begin(2)
        threading.Timer(0.05, run.may_read.set).start()
        run.checkpointer.abandon()
        assert run.steps == [1]
        assert run.checkpointer.take_saved() is None

    def test_the_tally_has_time_size_and_memory(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1)
        run.step(1)
        run.checkpointer.save(None)  # the same step, which is saved already
        run.values = values_of(3)
        run.checkpointer.save(None)
        found = run.tally.as_json()
        assert (found["completed"], found["failed"]) == (2, 0)
        assert found["bytes"] == sum(value.nbytes for value in values_of(3).values())
        assert found["mean_secs"] is not None and found["chief_memory_bytes"] > found["bytes"]


class TestFailedSaves:
    def test_a_ps_task_that_does_not_answer_is_a_failed_save(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1, max_failed_saves=2)

        def fail(*_):
            raise tf.errors.DeadlineExceededError(None, None, "no answer")

        run.checkpointer._held_state.read = fail
        with log_lines() as lines:
            run.step(1)
        assert "state of step 1 could not be read from the ps tasks: no answer" in lines[0]
        with pytest.raises(SaveError, match=r"2 consecutive saves .* there is no checkpoint yet"):
            run.step(2)
        assert run.tally.failed == 2

    def test_training_continues_with_a_warning_until_the_limit_and_then_ends(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1, max_failed_saves=3)
        run.step(1)
        run.break_disk()
        with log_lines() as lines:
            run.step(2)
            run.step(3)
        assert [f"save {count} of --max_failed_saves=3" in line for line, count in zip(lines, (1, 2), strict=True)] == [
            True,
            True,
        ]
        assert "model.ckpt-2 could not be written" in lines[0] and "Training continues" in lines[0]
        with pytest.raises(SaveError, match=r"3 consecutive saves have failed \(--max_failed_saves\)") as caught:
            run.step(4)
        assert caught.value.exit_code == 1
        run.mend_disk()
        assert run.steps == [1]

    def test_a_save_that_succeeds_restarts_the_count(self, tmp_path):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1, max_failed_saves=2)
        for step in (1, 3, 5):
            run.step(step)
            run.break_disk()
            run.step(step + 1)
            run.mend_disk()
        assert run.steps == [1, 3, 5]

    def test_the_next_try_comes_after_the_usual_time_not_at_every_step(self, tmp_path):
        for fields, secs in (({"save_checkpoint_secs": 60.0}, 61.0), ({"save_checkpoint_steps": 10}, 0.0)):
            logdir = tmp_path / str(secs)
            logdir.mkdir()
            run = ChiefRun(logdir, **fields)
            (logdir / "checkpoints").write_text("")
            with log_lines() as lines:
                run.step(10, secs=secs)
                for step in range(11, 20):
                    run.step(step)
            assert len(lines) == 1

    def test_the_error_at_the_end_names_the_newest_checkpoint(self, tmp_path, monkeypatch):
        run = ChiefRun(tmp_path, save_checkpoint_secs=0.0, save_checkpoint_steps=1, max_failed_saves=1)
        run.step(1)

        def full(*_):
            raise SaveError("the disk is full")

        monkeypatch.setattr(checkpointer.writer, "write", full)
        with pytest.raises(SaveError, match=r"the disk is full; the newest checkpoint is .*model.ckpt-1$"):
            run.step(2)

    def test_a_failed_last_save_is_not_a_success(self, tmp_path):
        run = ChiefRun(tmp_path)
        (tmp_path / "checkpoints").write_text("")
        with pytest.raises(SaveError, match="could not be written"):
            run.checkpointer.save(None)

    def test_values_that_are_not_finite_end_the_run_at_once_and_are_not_saved(self, tmp_path):
        run = ChiefRun(tmp_path)
        run.values = values_of(3) | {"dense/b": np.full([3], np.nan, np.float32)}
        with pytest.raises(NanLossError, match="dense/b contains NaN or infinity at step 3"):
            run.checkpointer.save(None)
        assert run.steps == []


def test_the_chiefs_start_repairs_the_folder(tmp_path):
    write(tmp_path / "checkpoints", 1)
    (tmp_path / "checkpoints" / "checkpoint").unlink()
    checkpointer.check_checkpoints(TrainConfig(logdir=str(tmp_path)))
    assert (tmp_path / "checkpoints" / "checkpoint").read_text().startswith('model_checkpoint_path: "model.ckpt-1"')
