"""`layers.stage`: the stage of each variable, and the placement of ops when stages have devices."""

from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from models import layers
from models.layers import stages
from ps_trainer.store import trace as trace_lib


def build():
    tf.get_variable("first", [1])
    with layers.stage(2):
        tf.get_variable("third", [1])
        with layers.stage(1):
            tf.get_variable("second", [1])
        tf.get_variable("also_third", [1])
    tf.get_variable("also_first", [1])


def test_the_trace_knows_each_variables_stage():
    trace = trace_lib.trace(build, seed=0)
    assert {spec.name: spec.stage for spec in trace.specs} == {
        "first": 0, "third": 2, "second": 1, "also_third": 2, "also_first": 0,
    }  # fmt: skip
    assert trace.stages == {0, 1, 2}


def test_the_store_uses_the_same_names_of_collections():
    assert (stages.STAGES, stages.CURRENT_STAGE) == (trace_lib._STAGES, trace_lib._CURRENT_STAGE)
    assert stages.STAGE_DEVICES == trace_lib.STAGE_DEVICES


def test_ops_go_to_the_device_of_the_stage_and_stay_where_they_are_without_devices():
    with tf.Graph().as_default(), tf.device("/job:worker/task:5"):
        with layers.stage(1):
            unsplit = tf.constant(0)
        tf.get_collection_ref(stages.STAGE_DEVICES).extend(["/job:worker/task:5", "/job:worker/task:7"])
        with layers.stage(1):
            apart = tf.constant(0)
        with layers.stage(0):
            own = tf.constant(0)
        with pytest.raises(ValueError, match="stage 2: there are 2 stages, numbered from 0"), layers.stage(2):
            pass
    places = [tensor.device for tensor in (unsplit, apart, own)]
    assert places == ["/job:worker/task:5", "/job:worker/task:7", "/job:worker/task:5"]


def test_a_stage_is_left_when_building_fails_inside():
    with tf.Graph().as_default():
        with pytest.raises(KeyError), layers.stage(3):
            raise KeyError
        assert tf.get_collection(stages.CURRENT_STAGE) == []
        with pytest.raises(ValueError, match="stage -1: stages are numbered from 0"), layers.stage(-1):
            pass


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "wanted"),
    [(3, 1, [0, 0, 0]), (3, 2, [0, 0, 1]), (4, 2, [0, 0, 1, 1]), (3, 3, [0, 1, 2]), (5, 3, [0, 0, 1, 1, 2])],
)
def test_layers_are_spread_in_order(num_layers, num_stages, wanted):
    assert [layers.spread(i, num_layers, num_stages) for i in range(num_layers)] == wanted
