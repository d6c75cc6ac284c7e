"""Numbers that the anatomy reads from records of TensorFlow: a made one, and those of a session in this process."""

from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from benchmarks.anatomy import call_record, step_anatomy
from benchmarks.anatomy.call_record import CHUNK, Edge, OpCost
from benchmarks.anatomy.session_recorder import RecordedCall, SessionRecorder
from ps_trainer.errors import RunError
from ps_trainer.store import fed_call

WORKER = "/job:worker/replica:0/task:0/device:CPU:0"
PS = "/job:ps/replica:0/task:1/device:CPU:0"


def record(sizes: dict[str, int], *, name: str = "RecvTensor") -> tf.RunMetadata:
    """The record of a call in which the worker gets two tensors of a ps task, of which `sizes` were recorded."""
    metadata = tf.RunMetadata()
    partition = metadata.partition_graphs.add()
    for number, tensor in enumerate(("edge_7_read", "edge_81_stack")):
        node = partition.node.add(name=f"recv{number}", op="_Recv", device=WORKER)
        node.attr["tensor_name"].s = tensor.encode()
        node.attr["send_device"].s = PS.encode()
        node.attr["recv_device"].s = WORKER.encode()
    own = partition.node.add(name="feed", op="_Recv", device=WORKER)
    own.attr["send_device"].s = own.attr["recv_device"].s = WORKER.encode()
    partition.node.add(name="join", op="ConcatV2", device=WORKER)
    partition.node.add(name="product", op="MatMul", device=WORKER)
    partition.node.add(name="branch", op="Switch", device=PS)
    partition.node.add(name="fetch", op="_Send", device=WORKER).attr["client_terminated"].b = True
    partition.node.add(name="push", op="_Send", device=WORKER)
    stats = metadata.step_stats.dev_stats.add(device=WORKER)
    for tensor, size in sizes.items():
        node = stats.node_stats.add(node_name=name, timeline_label=f"[0.1MB] [1Mb/s] {tensor} from {PS} to {WORKER}")
        node.output.add().tensor_description.allocation_description.requested_bytes = size
    for op, micros, allocated in (("join", 30, 400), ("product", 70, 900)):
        node = stats.node_stats.add(node_name=op, op_start_rel_micros=5, op_end_rel_micros=5 + micros)
        node.memory.add(total_bytes=allocated)
    return metadata


def test_edges_lie_between_tasks_and_have_exact_sizes():
    found = call_record.read(record({"edge_7_read": 131_073}))
    read = Edge("RecvTensor", "ps-1", "worker-0", "read")
    assert found.edges == {read: (131_073,), read._replace(tensor="stack"): ()}


def test_ops_have_their_time_and_only_movers_copy():
    ops = call_record.read(record({})).ops
    assert ops == {
        ("worker-0", "ConcatV2"): OpCost(1, 30, 400),
        ("worker-0", "MatMul"): OpCost(1, 70, 0),
        ("ps-1", "Switch"): OpCost(1, 0, 0),
    }


def test_chunks_of_an_all_reduce_are_one_edge():
    found = call_record.read(record({"17:4:0:1": 8, "17:4:1:1": 12}, name="RecvBuf"))
    assert found.edges[Edge("RecvBuf", "ps-1", "worker-0", CHUNK)] == (8, 12)


def calls(*records: tf.RunMetadata) -> list[RecordedCall]:
    fetches = object()
    return [RecordedCall(0, step, fetches, metadata) for step, metadata in enumerate(records)]


def test_gaps_of_one_record_are_filled_by_another():
    step = step_anatomy.of_worker(0, calls(record({"edge_7_read": 64}), record({"edge_81_stack": 16})), num_steps=2)
    assert step.counts() == (1, 2, 0, 64 + 16, 0, 2, 1, 1, 1)


def test_a_message_without_a_size_is_an_error():
    with pytest.raises(RunError, match=r"no size of .*'stack'.* in 1 calls; record more steps"):
        step_anatomy.of_worker(0, calls(record({"edge_7_read": 64})), num_steps=1)


def test_calls_that_only_some_steps_make_do_not_count():
    full = record({"edge_7_read": 64, "edge_81_stack": 16})
    step = step_anatomy.of_worker(0, [*calls(full, full), *calls(full)], num_steps=2)
    assert [call.per_step for call in step.calls] == [1, 0.5]
    assert step.counts().calls == 1
    assert [count.calls for count in step.phase_counts()] == [1, 1]


def test_phases_are_counted_by_themselves_and_the_cheapest_comes_first():
    both = {"edge_7_read": 64, "edge_81_stack": 16}
    exchange, local = record(both), record({})
    del local.partition_graphs[0].node[:2]  # it receives nothing
    step = step_anatomy.of_worker(0, [*calls(exchange), *calls(local)], num_steps=2)
    assert step.phase_counts() == [(1, 0, 0, 0, 0, 2, 1, 1, 1), (1, 2, 0, 64 + 16, 0, 2, 1, 1, 1)]
    assert step.counts().calls == 0


def test_the_recorder_takes_the_chosen_steps_of_watched_threads_only():
    steps = iter((1, 2, 3, 4))
    with tf.Graph().as_default(), tf.Session() as session, SessionRecorder(first_step=2, num_steps=2) as recorder:
        value = tf.constant(3) * 2
        call = session.make_callable(value)
        raw_call = fed_call.make(session, [value, value.op], [])
        other = threading.Thread(target=lambda: session.run(value))
        now = [next(steps)]
        recorder.watch_this_thread(5, lambda: now[0])
        results = []
        for _ in range(4):
            results += [call(), session.run(value), *raw_call()]
            now[0] = next(steps, 5)
        other.start()
        other.join()
    assert results == [6] * 12
    assert [(made.worker, made.step) for made in recorder.calls] == [(5, 2)] * 3 + [(5, 3)] * 3
    assert all(made.metadata.partition_graphs for made in recorder.calls)


def test_sessions_are_as_before_when_the_recorder_has_ended():
    before = tf.Session.run, tf.Session.make_callable, tf.Session._make_callable_from_options
    with SessionRecorder(0, 1):
        assert tf.Session.run != before[0]
    assert (tf.Session.run, tf.Session.make_callable, tf.Session._make_callable_from_options) == before
