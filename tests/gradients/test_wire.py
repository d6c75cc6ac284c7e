"""Messages on the wire, measured between the servers of a worker and a ps task, for every transform.

The bytes come from TensorFlow's own record of each RecvTensor call, the tensors from the graph partitions.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.gradients import transform_list
from ps_trainer.gradients.base import Site, SiteGradient
from ps_trainer.gradients.wire import Wire
from tests.gradients import lane as lane_lib
from tests.gradients.lane import ROW_SIZE, TABLE, TableRows, dense, table_of, variables

# Small enough that TensorFlow records each tensor's size in bytes, not in kB.
KERNEL = dense(160, variables((12, 12), (16,)), name="kernel")
SIZE = 160
NUM_VARIABLES = 2
NUM_ROWS = 5
MAX_RUNS = 20

# Bytes of the dense site's message, as in the docstrings; None means without a codec.
DENSE_BYTES = {
    "": 4 * SIZE,
    "clip_norm:norm=0.1": 4 * SIZE,
    "clip_value:value=0.1": 4 * SIZE,
    "cast": 2 * SIZE,
    "cast:dtype=float16": 2 * SIZE,
    "cast:rounding=stochastic": 2 * SIZE,
    "top_k:ratio=0.05": 8 * 8,
    "random_k:ratio=0.05": 4 * 8 + 8,
    "threshold:value=2": None,  # the number of elements above it varies
    "dgc:ratio=0.05": 4 + 8 * (8 + 1),  # 8 of 144 and 1 of 16
    "one_bit": SIZE // 8 + 8 * NUM_VARIABLES,
    "sign": SIZE // 8,
    "sign:scaled=true": SIZE // 8 + 4 * NUM_VARIABLES,
    "qsgd": SIZE + 4,
    "terngrad": SIZE // 4 + 4 * NUM_VARIABLES,
    "power_sgd:rank=1": 4 * (12 + 12 + 16),
    "error_feedback one_bit": SIZE // 8 + 8 * NUM_VARIABLES,
    "error_feedback top_k:ratio=0.05 cast": 8 * (4 + 2),
    "error_feedback random_k:ratio=0.05,scale=false sign:scaled=true": 8 + 1 + 4,
    "clip_norm error_feedback power_sgd:rank=1 cast:dtype=float16": 2 * (12 + 12 + 16),
}

ROW_BYTES = {  # index and values of each row, and the counts of rows
    "cast": 4 + NUM_ROWS * (4 + 2 * ROW_SIZE),
    "cast:dtype=float16": 4 + NUM_ROWS * (4 + 2 * ROW_SIZE),
    "cast:rounding=stochastic": 4 + NUM_ROWS * (4 + 2 * ROW_SIZE),
    "error_feedback top_k:ratio=0.05 cast": 4 + NUM_ROWS * (4 + 2 * ROW_SIZE),
    "clip_norm error_feedback power_sgd:rank=1 cast:dtype=float16": 4 + NUM_ROWS * (4 + 2 * ROW_SIZE),
    "one_bit": 8 + NUM_ROWS * 4 + -(-NUM_ROWS * ROW_SIZE // 8) + 8,
    "sign": 8 + NUM_ROWS * 4 + -(-NUM_ROWS * ROW_SIZE // 8),
    "sign:scaled=true": 8 + NUM_ROWS * 4 + -(-NUM_ROWS * ROW_SIZE // 8) + 4,
    "qsgd": 12 + NUM_ROWS * (4 + ROW_SIZE) + 4,
    "terngrad": 8 + NUM_ROWS * 4 + -(-NUM_ROWS * ROW_SIZE // 4) + 4,
}


class Sent(NamedTuple):
    """The gradients on the ps in the first step; for one step the computed payload, and each edge's bytes."""

    values: list[np.ndarray]
    payload_bytes: int
    measured_bytes: list[int]


@pytest.fixture(scope="module")
def target():
    ports = pick_free_ports(2)
    cluster = tf.train.ClusterSpec({"ps": [f"localhost:{ports[0]}"], "worker": [f"localhost:{ports[1]}"]})
    servers = [tf.train.Server(cluster, job_name=job, task_index=0) for job in ("ps", "worker")]
    yield servers[1].target
    del servers


def send(target, transforms, inputs):
    """Makes a step between the two servers; returns its messages, or a later step's if its record has gaps."""
    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        wire = Wire(
            transform_list.create(transforms.split()),
            num_workers=2,
            worker_index=lane_lib.WORKER,
            worker_device="/job:worker/task:0",
            ps_device=lambda ps: f"/job:ps/task:{ps}",
            seed=lane_lib.SEED,
        )
        arrived = wire.send([SiteGradient(site, source(site, value)) for site, value in inputs])
        used = []
        for item in arrived:
            with tf.device("/job:ps/task:0"):
                used.append(updated(item))
        payload_bytes = tf.convert_to_tensor(wire.payload_bytes)
        assert all("/job:worker" in variable.device for variable in wire.state)
        with tf.Session(target) as session:
            session.run(tf.local_variables_initializer())
            return traced(session, [used, payload_bytes, wire.targets])


def updated(item):
    """A variable of zeros plus the gradient; as an optimizer does, it reads of rows only their values and indices."""
    if not item.site.is_table:
        return item.value * 1
    zeros = tf.zeros(item.site.shape, item.site.dtype)
    return tf.tensor_scatter_nd_add(zeros, item.value.indices[:, tf.newaxis], item.value.values)


def traced(session, fetches):
    """Repeats a step until TensorFlow's record, which it writes beside the step, holds every edge's bytes."""
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
    first_values = None
    for _ in range(MAX_RUNS):
        metadata = tf.RunMetadata()
        values, payload_bytes, _ = session.run(fetches, options=options, run_metadata=metadata)
        first_values = values if first_values is None else first_values
        measured = received_bytes(metadata)
        if len(measured) == num_edges(metadata):
            return Sent(first_values, int(payload_bytes), measured)
    raise AssertionError(f"no complete record in {MAX_RUNS} steps: {measured} of {num_edges(metadata)} edges")


def source(site, value):
    """A gradient that the worker computes, so that it is not a constant."""
    zero = tf.cast(tf.timestamp() * 0, site.dtype)
    if not site.is_table:
        return tf.constant(value) + zero
    count = tf.constant(len(value.indices)) + tf.cast(tf.timestamp() * 0, tf.int32)
    return tf.IndexedSlices(
        tf.constant(value.values) + zero, tf.constant(value.indices)[:count], tf.constant(site.shape)
    )


def received_bytes(metadata):
    """Bytes of each tensor that the ps received from the worker, as recorded by the ps."""
    sizes = []
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            if node.node_name == "RecvTensor" and "/job:ps" in node.timeline_label.split(" to ")[-1]:
                sizes.append(int(re.match(r"\[(\d+)B\]", node.timeline_label).group(1)))
    return sizes


def num_edges(metadata):
    """Number of edges from worker to ps in the partitioned graph, for data and control."""
    nodes = [node for graph in metadata.partition_graphs for node in graph.node if node.op == "_Recv"]
    return sum("/job:ps" in node.device and b"/job:worker" in node.attr["send_device"].s for node in nodes)


def test_every_transform_is_measured_here():
    measured = {transform.partition(":")[0] for transforms in DENSE_BYTES for transform in transforms.split()}
    assert measured == set(component_tables.GRADIENT_TRANSFORMS.names())


@pytest.mark.parametrize("transforms", DENSE_BYTES)
def test_one_message_of_the_packed_form_crosses_for_each_site_with_the_values_of_one_process(target, transforms):
    """The values include random draws, which the ps repeats in its own process."""
    (gradient,), (row,) = lane_lib.gradients(SIZE, num_steps=1), lane_lib.rows(NUM_ROWS, num_steps=1)
    sent = send(target, transforms, [(KERNEL, gradient), (TABLE, row)])
    kernel_bytes = DENSE_BYTES[transforms]
    if kernel_bytes is None:
        kernel_bytes = 4 + 8 * np.sum(np.abs(gradient) >= 2)
    row_bytes = ROW_BYTES.get(transforms, lane_lib.num_row_bytes(NUM_ROWS))
    # Without a transform the values of the rows and their indices are two messages.
    of_rows = [row_bytes] if transforms else [NUM_ROWS * 8, NUM_ROWS * 4 * ROW_SIZE]
    assert sorted(sent.measured_bytes) == sorted([kernel_bytes, *of_rows])
    assert sent.payload_bytes == sum(sent.measured_bytes)
    with lane_lib.Lane(transforms, KERNEL, TABLE) as lane:
        wanted = lane.send(gradient, row).values
    for got, want in zip(sent.values, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("transforms", "factor"),
    [
        ("cast", 2),
        ("top_k:ratio=0.05", 1 / (2 * 0.05)),
        ("random_k:ratio=0.05", 1 / 0.05),
        ("dgc:ratio=0.05", 1 / (2 * 0.05)),
        ("one_bit", 32),
        ("sign", 32),
        ("terngrad", 16),
        ("qsgd", 4),
    ],
)
def test_bytes_fall_by_the_documented_factor_where_a_message_is_large(transforms, factor):
    """Scales and counts are small in such a message: within 2 % of the elements' share (qsgd: 4 in 512)."""
    (gradient,) = lane_lib.gradients(100_000, num_steps=1)
    with lane_lib.Lane(transforms, dense(100_000)) as lane:
        got = lane.send(gradient).payload_bytes
    assert got == pytest.approx(4 * 100_000 / factor, rel=0.35 if transforms.startswith("dgc") else 0.02)


def test_without_transforms_gradients_pass_unchanged():
    repeated = TableRows(np.ones([3, ROW_SIZE], np.float32), np.array([2, 2, 1]))
    (gradient,) = lane_lib.gradients(SIZE, num_steps=1)
    with lane_lib.Lane("", KERNEL, TABLE) as lane:
        arrived = lane.send(gradient, repeated)
        assert lane.state() == {}
    np.testing.assert_array_equal(arrived.values[0], gradient)
    np.testing.assert_array_equal(arrived.values[1], table_of(repeated))
    assert arrived.payload_bytes == 4 * SIZE + 3 * (4 * ROW_SIZE + 8)


@pytest.mark.parametrize("transforms", [name for name in DENSE_BYTES if name])
def test_a_batch_without_rows_and_a_gradient_in_float64_pass(transforms):
    double = Site("double", (SIZE,), tf.float64, 0, False, KERNEL.segments)
    none = TableRows(np.zeros([0, ROW_SIZE], np.float32), np.zeros([0], np.int64))
    gradient = lane_lib.gradients(SIZE)[0].astype(np.float64)
    with lane_lib.Lane(transforms, double, TABLE) as lane:
        arrived = lane.send(gradient, none)
    assert arrived.values[0].dtype == np.float64
    assert np.isfinite(arrived.values[0]).all()
    np.testing.assert_array_equal(arrived.values[1], np.zeros(TABLE.shape))
