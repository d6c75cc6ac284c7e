"""What a worker keeps beside the checkpoints: written, taken up again, or refused with a reason."""

from __future__ import annotations

import logging as std_logging

import numpy as np
import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.store import durable
from ps_trainer.training.worker_state import WorkerState
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment


class Own:
    """A session with one variable of a worker, and its `WorkerState`."""

    def __init__(self, config, shape=(3,), name="residual", index=1):
        self.now = 0.0
        with tf.Graph().as_default():
            self.variable = tf.get_variable(name, shape, initializer=tf.zeros_initializer(), use_resource=True)
            self._value = tf.placeholder(tf.float32, shape)
            self._assign = self.variable.assign(self._value)
            self.state = WorkerState([self.variable], config, index, clock=lambda: self.now)
            self.session = tf.Session()
            self.session.run(self.variable.initializer)

    def set(self, value):
        self.session.run(self._assign, {self._value: value})

    @property
    def value(self):
        return self.session.run(self.variable).tolist()


@pytest.fixture
def config(tmp_path):
    return TrainConfig(logdir=str(tmp_path), save_checkpoint_secs=10.0, save_checkpoint_steps=5)


@pytest.fixture
def path(config):
    return config.checkpoint_dir / "worker-1.npz"


def test_a_saved_state_is_taken_up_by_a_run_that_is_not_behind_it(config):
    first = Own(config)
    first.set([1, 2, 3])
    first.state.save(first.session, 7)
    for step in (7, 9):
        again = Own(config)
        again.state.restore(again.session, step)
        assert again.value == [1, 2, 3]


def test_each_worker_has_a_file_of_its_own(config):
    first = Own(config, index=0)
    first.set([1, 2, 3])
    first.state.save(first.session, 7)
    other = Own(config, index=1)
    other.state.restore(other.session, 7)
    assert other.value == [0, 0, 0]


@pytest.mark.parametrize("step", [0, 6])
def test_a_state_that_is_newer_than_the_run_is_not_used(config, step):
    first = Own(config)
    first.set([1, 2, 3])
    first.state.save(first.session, 7)
    again = Own(config)
    again.state.restore(again.session, step)
    assert again.value == [0, 0, 0]


@pytest.mark.parametrize("other", [{"shape": (4,)}, {"name": "momentum"}])
def test_a_state_of_other_flags_is_not_used_and_that_is_said(config, other, caplog):
    first = Own(config)
    first.state.save(first.session, 7)
    again = Own(config, **other)
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        again.state.restore(again.session, 7)
    assert f"{again.variable.op.name} is missing or has another shape" in caplog.text


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_broken_file_is_not_used_and_is_named(config, path, cut, caplog):
    first = Own(config)
    first.set([1, 2, 3])
    first.state.save(first.session, 7)
    path.write_bytes(path.read_bytes()[:cut])
    again = Own(config)
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        again.state.restore(again.session, 7)
    assert again.value == [0, 0, 0]
    assert "worker-1.npz is broken" in caplog.text


def test_it_is_saved_when_seconds_or_steps_are_up(config, path):
    own = Own(config)
    own.state.restore(own.session, 0)
    own.state.save_if_due(own.session, 4)
    assert not path.exists()
    own.state.save_if_due(own.session, 5)
    assert int(np.load(path)["global_step"]) == 5
    own.now = 9.0
    own.state.save_if_due(own.session, 6)
    assert int(np.load(path)["global_step"]) == 5
    own.now = 10.0
    own.state.save_if_due(own.session, 6)
    assert int(np.load(path)["global_step"]) == 6
    assert sorted(file.name for file in path.parent.iterdir()) == ["worker-1.npz"]


def test_a_folder_that_cannot_be_written_is_a_warning(config, path, caplog):
    own = Own(config)
    path.parent.parent.mkdir(exist_ok=True)
    path.parent.write_text("a file in the way")
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        own.state.save(own.session, 5)
    assert "could not be written" in caplog.text


def test_nothing_is_written_without_a_logdir_or_without_variables(config, tmp_path):
    homeless = Own(TrainConfig())
    homeless.state.save(homeless.session, 5)
    WorkerState([], config, 0).save(homeless.session, 5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_save_leaves_the_last_good_one_and_nothing_temporary(config, path, monkeypatch, call):
    def full(*_):
        raise OSError(28, "No space left on device")

    own = Own(config)
    own.set([1, 2, 3])
    own.state.save(own.session, 7)
    own.set([4, 5, 6])
    monkeypatch.setattr(durable.os, call, full)
    own.state.save(own.session, 8)
    monkeypatch.undo()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    again = Own(config)
    again.state.restore(again.session, 8)
    assert again.value == [1, 2, 3]


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_no_flipped_byte_gives_wrong_values_or_ends_the_worker(config, path, mask):
    """Each byte in turn: the file is refused with a warning, or what it gives is right."""
    own = Own(config)
    own.set([1, 2, 3])
    own.state.save(own.session, 7)
    content = path.read_bytes()
    taken = []
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        own.set([0, 0, 0])
        own.state.restore(own.session, 7)
        taken.append(own.value)
    assert all(value in ([0, 0, 0], [1, 2, 3]) for value in taken)
    assert taken.count([0, 0, 0]) > len(content) / 3


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04", b"\x93NUMPY\x01\x00", b"\x80\x04."])
def test_what_is_no_such_file_is_not_used(config, path, content):
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    own = Own(config)
    own.state.restore(own.session, 7)
    assert own.value == [0, 0, 0]


def test_an_array_alone_is_not_used(config, path):
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    own = Own(config)
    own.state.restore(own.session, 7)
    assert own.value == [0, 0, 0]
