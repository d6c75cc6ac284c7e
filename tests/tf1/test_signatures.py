"""The drop-in names have TensorFlow's signatures, and every other name is TensorFlow's own."""

from __future__ import annotations

import inspect

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import tf1 as train

METHODS = [
    ("SyncReplicasOptimizer", "apply_gradients"),
    ("SyncReplicasOptimizer", "make_session_run_hook"),
    ("SyncReplicasOptimizer", "get_init_tokens_op"),
    ("SyncReplicasOptimizer", "get_chief_queue_runner"),
    ("Supervisor", "prepare_or_wait_for_session"),
    ("Supervisor", "managed_session"),
    ("Supervisor", "stop"),
    ("Server", "join"),
    ("Server", "create_local_server"),
]


def parameters(function):
    """Names, kinds and defaults; annotations may differ."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(
    "name",
    [
        "ChiefSessionCreator",
        "MonitoredSession",
        "MonitoredTrainingSession",
        "Server",
        "SingularMonitoredSession",
        "Supervisor",
        "SyncReplicasOptimizer",
        "WorkerSessionCreator",
        "replica_device_setter",
    ],
)
def test_function_or_constructor(name):
    assert parameters(getattr(train, name)) == parameters(getattr(tf.train, name))


@pytest.mark.parametrize(("name", "method"), METHODS)
def test_method(name, method):
    assert parameters(getattr(getattr(train, name), method)) == parameters(getattr(getattr(tf.train, name), method))


@pytest.mark.parametrize("name", ["Server", "SyncReplicasOptimizer", "Supervisor"])
def test_every_public_member_is_there(name):
    missing = {m for m in dir(getattr(tf.train, name)) if not m.startswith("_")} - set(dir(getattr(train, name)))
    assert not missing


def test_the_first_names_of_a_supervisors_methods_are_those_of_ours():
    assert train.Supervisor.PrepareSession is train.Supervisor.prepare_or_wait_for_session
    assert train.Supervisor.Stop is train.Supervisor.stop


def test_every_other_name_is_tensorflows():
    own = set(train.__all__)
    for name in set(dir(tf.train)) - own:
        if not name.startswith("_"):
            assert getattr(train, name) is getattr(tf.train, name), name
    assert set(dir(tf.train)) <= set(dir(train))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NoSuchOptimizer"):
        train.NoSuchOptimizer  # noqa: B018


def test_scripts_recognise_the_classes_by_tensorflows_own():
    for name in ("Server", "SyncReplicasOptimizer", "Supervisor", "MonitoredSession", "CheckpointSaverHook"):
        assert issubclass(getattr(train, name), getattr(tf.train, name))
