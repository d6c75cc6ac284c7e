"""The graph of a worker that holds a share of the parameters: what its own share needs no message for."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import group_of
from ps_trainer.store.packed import Packed
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.sessions import ServerSessions
from tests.testing.cluster import config_of

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

JOBS = {"worker": ("localhost:3000", "localhost:3001")}
TABLES = "tests.store.test_table_lookups:Tables"


def build(worker, model="Dense", **fields):
    spread = ("least_share_bytes=1",)
    config = config_of(model, "Rows", batch_size=8, steps_per_call=1, **{"layout_option": spread, **fields})
    cluster = ClusterConfig(jobs=JOBS, job_name="worker", task_index=worker, is_colocated=True)
    return graph_lib.build(components_lib.load(config, 2), cluster, config, "run")


def tasks_of(ops):
    return {tf.DeviceSpec.from_string(op.device).task for op in ops}


@pytest.mark.parametrize("worker", [0, 1])
def test_only_the_result_on_the_other_worker_travels_in_one_message_with_parameters(worker):
    """A combined message of the worker's own share would be copies in the worker's memory."""
    ops = build(worker, layout="per_variable").graph.get_operations()
    as_floats = [op for op in ops if op.type == "Bitcast" and op.inputs[0].dtype == tf.int64]
    assert tasks_of(as_floats) == {1 - worker}


@pytest.mark.parametrize("worker", [0, 1])
def test_only_look_ups_on_the_other_worker_share_a_message_of_ids(worker):
    train = build(worker, TABLES)
    look_ups = [op for op in train.graph.get_operations() if op.type == "ResourceGather"]
    assert tasks_of(look_ups) == {0, 1}
    own = [op for op in look_ups if tasks_of([op]) == {worker}]
    assert all(tasks_of([op.inputs[1].op]) == {worker} for op in own)
    assert not any("looked_up" in op.inputs[1].name for op in own)


@pytest.mark.parametrize("worker", [0, 1])
def test_few_parameters_lie_on_the_first_worker_alone(worker):
    train = build(worker, layout_option=())
    assert {piece.variable.device for piece in train.store.pieces} == {"/job:worker/task:0/device:CPU:0"}
    assert (len(train.store.clocks), len(build(worker).store.clocks)) == (1, 2)


@pytest.mark.parametrize(
    ("worker", "option", "expected"), [(0, (), (0,)), (1, (), (0, 1)), (0, ("least_share_bytes=1",), (0, 1))]
)
def test_sessions_need_no_worker_without_a_share(worker, option, expected):
    """A session waits when it is opened for every task in its filters, and the other worker may be lost."""
    config = config_of("Dense", "Rows", batch_size=8, layout_option=option)
    cluster = ClusterConfig(jobs=JOBS, job_name="worker", task_index=worker, is_colocated=True)
    loaded = components_lib.load(config, 2)
    sessions = ServerSessions(cluster, config, loaded, group_of(cluster, 1), "")
    train = graph_lib.build(loaded, cluster, config, "run")
    filters = sessions._session_config(train).device_filters
    assert list(filters) == [f"/job:worker/task:{index}" for index in expected]


class OwnLayout(Packed):
    """A user's layout, whose options say nothing about the shares of colocated parameters."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        max_piece_bytes: int = 2**20
        table_partitions: int = 0


def test_a_users_layout_needs_no_option_for_the_size_of_shares():
    train = build(1, layout=f"{__name__}:OwnLayout", layout_option=())
    assert tasks_of(train.store.clocks) == {0}


def test_the_time_of_the_update_is_taken_after_that_of_the_gradient():
    """The chief's share is in its own process, where an update may end before the first time is taken."""
    (fetches,) = build(0, step_log=True).fetches
    computed, applied = fetches.times
    assert computed.op in applied.op.control_inputs
