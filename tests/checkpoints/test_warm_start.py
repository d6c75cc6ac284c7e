"""A new run can begin with the variables of another run's checkpoint that have the same names and shapes."""

from __future__ import annotations

import numpy as np
import pytest

from models.layers import ModelOutput
from ps_trainer.errors import CheckpointError
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.components import Embedded, RowOptions, Rows, plain_loop
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.checkpoints.reader import Checkpoint  # isort: skip
from ps_trainer.training.checkpointer import check_checkpoints  # isort: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The logdir of a run of `Dense` with three steps, and the run's final values."""
    logdir = tmp_path_factory.mktemp("trained")
    with InProcessCluster(1, 1) as cluster:
        config = config_of("Dense", "Rows", logdir=str(logdir), optimizer="adam", learning_rate=0.1, max_steps=3)
        (outcome,) = cluster.run(config)
    return logdir, outcome.worker.final_values


def begin(tmp_path, model, init_from, **fields):
    """The values with which a run begins."""
    with InProcessCluster(2, 1) as cluster:
        config = config_of(
            model, "Rows", logdir=str(tmp_path), init_from=str(init_from), optimizer="adam", max_steps=1, **fields
        )
        cluster.run(config)
    return Checkpoint(str(tmp_path / "checkpoints" / "model.ckpt-0"))


@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"], first=1))  # the next test has the other
def test_variables_are_taken_and_slots_and_step_are_not(tmp_path, trained, layout):
    logdir, values = trained
    first = begin(tmp_path, "Dense", logdir, layout=layout)
    assert first.step == 0
    for name in ("hidden/kernel", "hidden/bias", "logits/kernel", "logits/bias"):
        np.testing.assert_array_equal(first[name], values[name])
        assert not first[f"{name}/Adam"].any()
        assert values[f"{name}/Adam"].any()


def test_a_variable_of_another_shape_begins_as_without_a_warm_start(tmp_path, trained):
    logdir, values = trained
    first = begin(tmp_path, "Embedded", logdir / "checkpoints" / "model.ckpt-3")
    np.testing.assert_array_equal(first["logits/bias"], values["logits/bias"])
    batch = {name: array[:2] for name, array in Rows(RowOptions()).arrays.items()}
    _, usual = plain_loop(Embedded(), [batch], lambda: tf.train.GradientDescentOptimizer(0.0))
    for name in ("table", "logits/kernel"):
        np.testing.assert_array_equal(first[name], usual[name])


def test_a_resumed_run_takes_nothing(tmp_path, trained):
    logdir, _ = trained
    with InProcessCluster(1, 1) as cluster:
        fields = {"logdir": str(tmp_path), "learning_rate": 0.5}
        cluster.run(config_of("Dense", "Rows", max_steps=2, **fields))
        (outcome,) = cluster.run(config_of("Dense", "Rows", max_steps=3, init_from=str(logdir), **fields))
        (in_one_go,) = cluster.run(config_of("Dense", "Rows", max_steps=3, learning_rate=0.5))
    assert outcome.worker.final_values["global_step"] == 3
    assert outcome.losses == in_one_go.losses[2:]


def test_a_checkpoint_of_another_model_is_rejected(tmp_path, trained):
    logdir, _ = trained
    with pytest.raises(CheckpointError, match=f"--init_from={logdir}: .* has none of the model's variables"):
        begin(tmp_path, "tests.checkpoints.test_warm_start:Other", logdir)


def test_a_missing_checkpoint_is_rejected_before_the_start(tmp_path):
    config = config_of("Dense", "Rows", init_from=str(tmp_path / "none" / "model.ckpt-1"))
    with pytest.raises(CheckpointError, match="--init_from=.*model.ckpt-1.index does not exist"):
        check_checkpoints(config)
    config = config_of("Dense", "Rows", init_from=str(tmp_path))
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        check_checkpoints(config)


class Other:
    """A model with its own variable."""

    def build(self, batch, training):
        loss_B = tf.square(tf.linalg.matvec(batch["x"], tf.get_variable("weight", [6])))
        return ModelOutput(tf.reduce_mean(loss_B), loss_B, {})
