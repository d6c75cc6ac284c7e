"""A worker's own state beside the checkpoints: it is written, and then loaded or rejected with a reason."""

from __future__ import annotations

import dataclasses
import logging as std_logging

import numpy as np
import pytest

from ps_trainer.checkpoints import durable_files
from ps_trainer.config import TrainConfig
from ps_trainer.training.graph_parts.after_pushes import AfterPushes
from ps_trainer.training.graph_parts.push_counts import PushMark
from ps_trainer.training.graph_parts.worker_state_saver import OwnVariables, WorkerStateSaver
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment


LINEAGE = 17


class FakePushCounts:
    """Stands for the push counts and tells which push the run has reached."""

    is_in_lockstep = False

    def __init__(self, pushes=0, lineage=LINEAGE):
        self.pushes, self.lineage = pushes, lineage

    def mark(self, session, global_step):
        return PushMark(self.lineage, self.pushes)

    def now(self, pushes, global_step):
        return pushes


class Own:
    """A session with one variable of a worker, and its `WorkerStateSaver`."""

    def __init__(self, config, shape=(3,), name="residual", index=1, kept=(), knows_first=True):
        self.counts = FakePushCounts()
        with tf.Graph().as_default(), tf.device("/job:localhost/replica:0/task:0/device:CPU:0"):
            self.variable = tf.get_variable(name, shape, initializer=tf.zeros_initializer(), use_resource=True)
            self._value = tf.placeholder(tf.float32, shape)
            self._assign = self.variable.assign(self._value)
            self.copies = AfterPushes([self.variable])
            own = OwnVariables([self.variable], self.counts, self.copies, knows_first)
            self.state = WorkerStateSaver(own, config, index, kept=kept)
            self._push_op = self.copies.build([self._assign])
            self.session = tf.Session()
            self.session.run([self.variable.initializer, tf.local_variables_initializer()])

    def set(self, value):
        self.session.run(self._assign, {self._value: value})

    def push(self, value, pushes, saved):
        """Makes a step after which the worker has made `pushes` pushes, of which `saved` are in the last checkpoint."""
        self.session.run([self._assign, self._push_op], {self._value: value})
        self.state.after_step(self.session, pushes, [np.array([pushes, saved])])

    def save(self, pushes, step=None):
        self.counts.pushes = pushes
        self.state.save(self.session, step or pushes)

    def restore(self, pushes, step=None, lineage=LINEAGE):
        """The worker's values after it joined a run that holds that number of its pushes."""
        self.counts.pushes, self.counts.lineage = pushes, lineage
        self.state.restore(self.session, step or pushes)
        return self.value

    @property
    def value(self):
        return self.session.run(self.variable).tolist()


@pytest.fixture
def config(tmp_path):
    return TrainConfig(logdir=str(tmp_path), save_checkpoint_secs=10.0, save_checkpoint_steps=5)


@pytest.fixture
def path(config):
    return config.checkpoint_dir / "worker-1-7.npz"


def saved(config, pushes, value, **fields):
    own = Own(config, **fields)
    own.set(value)
    own.save(pushes)
    return own


@pytest.mark.parametrize("step", [7, 9, 100])
def test_a_state_is_loaded_by_a_run_with_the_same_pushes_of_the_worker(config, step):
    saved(config, 7, [1, 2, 3])
    assert Own(config).restore(7, step) == [1, 2, 3]


@pytest.mark.parametrize("pushes", [6, 8, 9])
def test_an_older_or_newer_state_is_not_used_and_a_message_says_so(config, path, pushes, caplog):
    saved(config, 7, [1, 2, 3])
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        assert Own(config).restore(pushes) == [0, 0, 0]
    assert (
        f"starts without its own state (residual): the run continues at its push {pushes}, and no saved state belongs"
        in caplog.text
    )
    assert f"{path}: after push 7" in caplog.text


def test_a_state_of_another_run_is_not_used(config, caplog):
    saved(config, 7, [1, 2, 3])
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        assert Own(config).restore(7, lineage=LINEAGE + 1) == [0, 0, 0]
    assert "worker-1-7.npz: from another run" in caplog.text


def test_a_worker_without_a_saved_state_logs_it_unless_the_worker_is_new(config, caplog):
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        assert Own(config).restore(0, step=50) == [0, 0, 0]
        assert caplog.text == ""
        assert Own(config).restore(7) == [0, 0, 0]
    assert "belongs to that push; no file of this worker was found" in caplog.text


def test_a_file_of_an_older_version_is_reported_in_one_line(config, caplog):
    config.checkpoint_dir.mkdir(parents=True)
    np.savez(config.checkpoint_dir / "worker-1.npz", residual=np.ones(3, np.float32), global_step=np.int64(7))
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        assert Own(config).restore(0, step=7) == [0, 0, 0]
    assert "worker-1.npz: from an older version, which did not record the number of pushes" in caplog.text
    saved(config, 7, [1, 2, 3])
    assert Own(config).restore(7) == [1, 2, 3]
    assert (config.checkpoint_dir / "worker-1.npz").exists()


def test_the_matching_one_of_several_states_is_loaded_and_one_more_than_checkpoints_is_kept(config):
    config = dataclasses.replace(config, keep_checkpoints=2)
    for pushes in (5, 10, 15, 20):
        saved(config, pushes, [pushes] * 3)
    assert len(list(config.checkpoint_dir.iterdir())) == 3
    assert [Own(config).restore(pushes)[0] for pushes in (20, 15, 10, 5)] == [20, 15, 10, 0]


def names(config):
    return {path.name for path in config.checkpoint_dir.iterdir()}


class TestCheckpointsOfTheChief:
    """Checkpoints of the chief, of which a worker learns with its next push."""

    @pytest.fixture
    def own(self, config):
        own = Own(config)
        own.restore(4)
        own.push([5, 5, 5], pushes=5, saved=0)
        assert not config.checkpoint_dir.exists()
        return own

    @pytest.mark.parametrize("saved", [5, 6])
    def test_the_state_for_a_checkpoint_is_written_with_the_next_push(self, config, own, saved):
        own.push([6, 6, 6], pushes=6, saved=saved)
        assert names(config) == {f"worker-1-{saved}.npz"}
        assert Own(config).restore(saved) == [saved] * 3

    def test_each_is_written_once(self, config, own):
        own.push([6, 6, 6], pushes=6, saved=6)
        (config.checkpoint_dir / "worker-1-6.npz").unlink()
        own.push([7, 7, 7], pushes=7, saved=6)
        own.push([8, 8, 8], pushes=8, saved=6)
        assert names(config) == set()

    def test_a_worker_that_saved_at_its_own_end_writes_none(self, config, own):
        own.set([5, 6, 7])
        own.save(5)
        own.push([6, 6, 6], pushes=6, saved=5)
        assert Own(config).restore(5) == [5, 6, 7]

    def test_a_workers_state_at_its_join_belongs_to_the_push_before(self, config):
        own = Own(config)
        own.restore(4)
        own.push([5, 5, 5], pushes=5, saved=4)
        assert Own(config).restore(4) == [0, 0, 0]
        assert names(config) == {"worker-1-4.npz"}

    def test_a_phase_without_a_push_learns_of_no_checkpoint(self, config, own):
        own.state.after_step(own.session, 5, [])
        assert not config.checkpoint_dir.exists()

    def test_states_of_rolled_back_pushes_are_discarded(self, config):
        for pushes in (4, 6, 8):
            saved(config, pushes, [pushes] * 3)
        saved(config, 9, [9, 9, 9], index=0)
        other_run = Own(config)
        other_run.restore(7, lineage=LINEAGE + 1)
        other_run.save(7)
        assert Own(config).restore(6) == [6, 6, 6]
        assert names(config) == {"worker-1-4.npz", "worker-1-6.npz", "worker-1-7.npz", "worker-0-9.npz"}


class TestStepsThatFailed:
    def keep(self, own, num_sent, in_flight):
        read = lambda variables: own.session.run(list(variables))  # noqa: E731 - in the session of the steps
        return own.state.keep(read, num_sent=num_sent, global_step=9, in_flight=in_flight)

    @pytest.fixture
    def own(self, config):
        """A worker that joined at its push 4 and made three more."""
        own = Own(config)
        own.restore(4)
        own.push([1, 2, 3], pushes=7, saved=0)
        own.set([4, 5, 6])
        return own

    @pytest.mark.parametrize(
        ("in_flight", "knows_first", "fits"),
        [
            (False, True, {7: [4, 5, 6]}),
            (True, True, {7: [1, 2, 3], 8: [4, 5, 6]}),
            (True, False, {7: [1, 2, 3]}),
            (False, False, {7: [4, 5, 6]}),
        ],
    )
    def test_the_last_known_state_is_kept_in_memory_and_on_disk(self, config, own, in_flight, knows_first, fits):
        own.state._knows_first = knows_first
        kept = self.keep(own, 3, in_flight)
        for homeless in (False, True):
            where = {"kept": kept} if homeless else {}
            one = dataclasses.replace(config, logdir=None) if homeless else config
            taken = {pushes: Own(one, **where).restore(pushes) for pushes in range(10, 4, -1)}
            assert {pushes: value for pushes, value in taken.items() if value != [0, 0, 0]} == fits

    def test_a_failed_join_loses_nothing(self, config, own):
        kept = self.keep(own, 3, in_flight=False)
        assert self.keep(Own(config, kept=kept), 0, in_flight=False) == kept


def test_each_worker_has_a_file_of_its_own(config):
    saved(config, 7, [1, 2, 3], index=0)
    assert Own(config, index=1).restore(7) == [0, 0, 0]
    assert Own(config, index=0).restore(7) == [1, 2, 3]


@pytest.mark.parametrize("other", [{"shape": (4,)}, {"name": "momentum"}])
def test_a_state_of_other_flags_is_not_used_and_a_message_says_so(config, other, caplog):
    first = Own(config)
    first.save(7)
    again = Own(config, **other)
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        again.restore(7)
    assert f"{again.variable.op.name} is missing or has another shape" in caplog.text


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_broken_file_is_not_used_and_is_named(config, path, cut, caplog):
    first = Own(config)
    first.set([1, 2, 3])
    first.save(7)
    path.write_bytes(path.read_bytes()[:cut])
    again = Own(config)
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        again.restore(7)
    assert again.value == [0, 0, 0]
    assert "worker-1-7.npz is damaged" in caplog.text


def test_a_folder_that_cannot_be_written_causes_a_warning(config, path, caplog):
    own = Own(config)
    path.parent.parent.mkdir(exist_ok=True)
    path.parent.write_text("a file in the way")
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        own.save(5)
    assert "could not be written" in caplog.text


def test_nothing_is_written_without_a_logdir_or_without_variables(config, tmp_path):
    homeless = Own(TrainConfig())
    homeless.save(5)
    WorkerStateSaver(None, config, 0).save(homeless.session, 5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_save_leaves_the_last_good_one_and_nothing_temporary(config, path, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    own = Own(config)
    own.set([1, 2, 3])
    own.save(7)
    own.set([4, 5, 6])
    monkeypatch.setattr(durable_files.os, call, full)
    own.save(7, step=8)
    monkeypatch.undo()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    again = Own(config)
    again.restore(7)
    assert again.value == [1, 2, 3]


@pytest.mark.parametrize(("mask", "first"), [(0x01, 0), (0xFF, 1)])
def test_no_flipped_byte_gives_wrong_values_or_ends_the_worker(config, path, mask, first):
    """Changes each byte in turn, by one of the masks: the file is rejected with a warning, or its values are right."""
    own = Own(config)
    own.set([1, 2, 3])
    own.save(7)
    content = path.read_bytes()
    taken = []
    for position in repetitions(range(len(content)), first=first):
        damaged = bytearray(content)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        own.set([0, 0, 0])
        own.restore(7)
        taken.append(own.value)
    assert all(value in ([0, 0, 0], [1, 2, 3]) for value in taken)
    assert taken.count([0, 0, 0]) > len(taken) / 3


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x80\x04."])
def test_a_file_of_another_kind_is_not_used(config, path, content):
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    own = Own(config)
    own.restore(7)
    assert own.value == [0, 0, 0]


def test_a_bare_array_file_is_not_used(config, path):
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    own = Own(config)
    own.restore(7)
    assert own.value == [0, 0, 0]


def test_a_state_of_varying_length_is_loaded(config):
    def held():
        """A variable that is empty at first, like the places of batches that are not pushed yet."""
        with tf.Graph().as_default():
            value = tf.placeholder(tf.int64, [None, 1])
            variable = tf.Variable(
                tf.zeros([0, 1], tf.int64), name="held", shape=[None, 1], trainable=False, use_resource=True
            )
            own = OwnVariables([variable], FakePushCounts(5), AfterPushes([variable]))
            state, session = WorkerStateSaver(own, config, 1), tf.Session()
            session.run(variable.initializer)
            return state, session, variable, (variable.assign(value), value)

    state, session, _, (assign_op, value) = held()
    session.run(assign_op, {value: [[3], [4]]})
    state.save(session, 5)
    state, session, variable, _ = held()
    state.restore(session, 5)
    assert session.run(variable).tolist() == [[3], [4]]
