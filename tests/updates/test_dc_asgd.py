"""`dc_asgd` against its equation, gradient by gradient."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.training import components as components_lib
from ps_trainer.updates.options import DcAsgdOptions
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import repetitions, representatives
from tests.updates import scripted

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

SCRIPT = [0, 1, 1, 1, 0, 0, 1, 0]
DECAY, EPSILON = 0.95, 1e-7
LEARNING_RATES = {"sgd": 0.5, "momentum": 0.2, "adam": 0.05}
NUM_WORKERS = 2


def delay_compensated(strength, optimizer, adaptive=False):
    """The rule in NumPy, as a `scripted.Apply`."""
    numpy_optimizer = scripted.Optimizer(optimizer)
    mean_squares = {}

    def apply(arrived):
        corrected = {}
        for name, g in arrived.gradient.items():
            factor = strength
            if adaptive:
                mean_squares[name] = DECAY * mean_squares.get(name, 0.0) + (1 - DECAY) * g * g
                factor = strength / np.sqrt(mean_squares[name] + EPSILON)
            corrected[name] = g + factor * g * g * (arrived.params[name] - arrived.pulled[name])
        return numpy_optimizer.apply(arrived.params, corrected, arrived.clock, LEARNING_RATES[optimizer])

    return apply


def play(cluster, optimizer, *options, **fields):
    return scripted.play(
        cluster, SCRIPT, "dense", update="dc_asgd", update_option=options, optimizer=optimizer,
        learning_rate=LEARNING_RATES[optimizer], **fields,
    )  # fmt: skip


def largest_difference(one, other):
    return max(np.max(np.abs(one.values[-1][name] - other.values[-1][name])) for name in ("kernel", "bias"))


# SGD is in three tests below, and the conformance suite has the other layout.
@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"]))
@pytest.mark.parametrize("optimizer", representatives(LEARNING_RATES, ["momentum", "adam"]))
def test_a_gradient_is_corrected_by_its_square_times_the_move_since_its_pull(cluster, optimizer, layout):
    wanted = scripted.replay(SCRIPT, "dense", delay_compensated(20.0, optimizer))
    uncorrected = scripted.replay(SCRIPT, "dense", delay_compensated(0.0, optimizer))
    assert largest_difference(wanted, uncorrected) > 1e-3
    played = play(cluster, optimizer, "lambda=20", layout=layout)
    scripted.assert_same(played, wanted, num_ps=cluster.num_ps)


@pytest.mark.parametrize(
    ("optimizer", "layout"),
    repetitions([("sgd", "per_variable"), ("sgd", "packed"), ("momentum", "packed")], every=3),
)
def test_adaptive_divides_by_the_root_of_the_mean_square_of_all_workers_gradients(cluster, optimizer, layout):
    wanted = scripted.replay(SCRIPT, "dense", delay_compensated(2.0, optimizer, adaptive=True))
    uncorrected = scripted.replay(SCRIPT, "dense", delay_compensated(0.0, optimizer))
    assert largest_difference(wanted, uncorrected) > 1e-3
    scripted.assert_same(play(cluster, optimizer, "adaptive=true", layout=layout), wanted, num_ps=cluster.num_ps)


@pytest.mark.full  # in `test_exact.py` four free workers have no lambda
def test_without_lambda_it_is_async(cluster):
    wanted = scripted.replay(SCRIPT, "dense", delay_compensated(0.0, "sgd"))
    scripted.assert_same(play(cluster, "sgd", "lambda=0"), wanted, num_ps=cluster.num_ps)


def test_the_move_is_counted_from_the_rounded_values_that_the_worker_got(cluster):
    def rounded(params):
        return {name: value.astype(tf.bfloat16.as_numpy_dtype).astype(np.float32) for name, value in params.items()}

    wanted = scripted.replay(SCRIPT, "dense", delay_compensated(10.0, "sgd"), pull=rounded)
    played = play(cluster, "sgd", "lambda=10", pull_dtype="bfloat16")
    scripted.assert_same(played, wanted, num_ps=cluster.num_ps)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    fields = {"update": "dc_asgd", "update_option": ("adaptive=true",), "optimizer": "momentum", "learning_rate": 0.1}
    # One worker is never stale, but it receives rounded values, so that there is a difference to correct.
    fields |= {"pull_dtype": "bfloat16", "batch_size": 8}
    epoch = 240 // 8  # after an epoch the data come in the same order again
    with InProcessCluster(1, 1) as one:
        (whole,) = one.run(config_of("Dense", "Rows", max_steps=2 * epoch, logdir=str(tmp_path / "whole"), **fields))
        one.run(config_of("Dense", "Rows", max_steps=epoch, logdir=str(tmp_path / "parts"), **fields))
        (resumed,) = one.run(config_of("Dense", "Rows", max_steps=2 * epoch, logdir=str(tmp_path / "parts"), **fields))
    assert whole.losses[epoch:] == resumed.losses
    assert any(name.endswith("/DcAsgdMeanSquare") for name in whole.worker.final_values)
    for name, value in whole.worker.final_values.items():
        np.testing.assert_array_equal(resumed.worker.final_values[name], value, err_msg=name)


def test_the_usual_strength_of_each_form_is_the_default():
    assert DcAsgdOptions().strength == 0.04
    assert DcAsgdOptions(adaptive=True).strength == 2.0
    assert DcAsgdOptions(lambda_=0.5, adaptive=True).strength == 0.5


def test_embedding_tables_are_rejected():
    with pytest.raises(OptionError, match="--update=dc_asgd cannot train embedding tables.*has table"):
        components_lib.load(config_of("Embedded", "Rows", update="dc_asgd", batch_size=4), num_workers=2)
