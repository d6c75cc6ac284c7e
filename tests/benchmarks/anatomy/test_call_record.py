"""Numbers that the anatomy reads from records of TensorFlow: a made one, and those of a session in this process."""

from __future__ import annotations

import threading

import numpy as np
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


def looping_record(num_rounds: dict[str, int]) -> tf.RunMetadata:
    """The record of a call whose loop gets one tensor of a ps task, and one from outside of the loop.

    Args:
        num_rounds: Number of recorded messages by tensor, each of 8 bytes but the last, which is empty.
    """
    metadata = record({})
    partition = metadata.partition_graphs[0]
    read, outside = partition.node[:2]
    for name, op, *inputs in (
        ("start", "Const"),
        ("enter", "Enter", "start"),
        ("merge", "Merge", "enter", "next"),
        ("condition", "LoopCond", "merge"),
        ("switch", "Switch", "merge", "condition"),
        ("next", "NextIteration", "switch:1", "^used"),
        ("exit", "Exit", "switch"),
        ("used", "AddV2", "recv0", "entered"),
        ("entered", "Enter", "recv1"),
        ("after", "Neg", "exit"),
        ("inner", "Enter", "switch:1"),
        ("inner_exit", "Exit", "inner"),
        ("behind", "Neg", "inner_exit"),
    ):
        partition.node.add(name=name, op=op, device=WORKER, input=inputs)
    read.input.append("^merge")
    assert not outside.input
    stats = metadata.step_stats.dev_stats[0]
    for tensor, count in num_rounds.items():
        for number in range(count):
            node = stats.node_stats.add(node_name="RecvTensor", timeline_label=f"[8B] {tensor} from {PS} to {WORKER}")
            size = 0 if number == count - 1 and count > 1 else 8
            node.output.add().tensor_description.allocation_description.requested_bytes = size
    return metadata


def test_an_op_in_a_loop_counts_once_for_each_step():
    ops = call_record.read(looping_record({}), num_steps=5).ops
    assert {op: cost.num_ops for (_, op), cost in ops.items() if op in ("LoopCond", "AddV2", "Const", "MatMul")} == {
        "LoopCond": 5,
        "AddV2": 5,
        "Const": 1,
        "MatMul": 1,
    }
    # Behind an inner loop it is still in the outer one, and behind this one it is not.
    assert ops["worker-0", "Neg"].num_ops == 5 + 1


def test_a_message_of_a_loop_counts_in_each_round_and_one_from_outside_once():
    records = [looping_record({"edge_7_read": 6, "edge_81_stack": 1}), looping_record({"edge_7_read": 5})]
    made = [RecordedCall(0, 5 * number, records, one, num_steps=5) for number, one in enumerate(records)]
    step = step_anatomy.of_worker(0, made, num_steps=10)
    (call,) = step.calls
    assert (call.per_step, call.num_steps, step.steps_per_call) == (1 / 5, 5, 5)
    assert [(one.edge.tensor, one.num_messages, one.num_bytes) for one in call.messages] == [
        ("read", 6, 5 * 8),
        ("stack", 1, 8),
    ]
    assert step.counts()[:4] == (1, 7, 0, 6 * 8)


def test_a_round_whose_size_no_record_has_counts_with_the_largest_size():
    """All tensors of a loop are sent in each round, and TensorFlow may miss the first ones."""
    metadata = looping_record({"edge_7_read": 6, "edge_81_stack": 4})
    metadata.partition_graphs[0].node[1].input.append("^merge")  # so this tensor is one of the loop as well
    (call,) = step_anatomy.of_worker(0, [RecordedCall(0, 0, object(), metadata, num_steps=5)], num_steps=5).calls
    assert [(one.edge.tensor, one.num_messages, one.num_bytes) for one in call.messages] == [
        ("read", 6, 5 * 8),
        ("stack", 6, 3 * 8 + 2 * 8),
    ]


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
    assert [(made.worker, made.step, made.num_steps) for made in recorder.calls] == [(5, 2, 1)] * 3 + [(5, 3, 1)] * 3
    assert all(made.metadata.partition_graphs for made in recorder.calls)


def test_a_call_knows_how_many_steps_were_counted_in_it():
    counted = [10]

    def note() -> np.bool_:
        counted[0] += 4  # the fifth one is counted after the call
        return np.bool_(True)

    with tf.Graph().as_default(), tf.Session() as session, SessionRecorder(first_step=10, num_steps=5) as recorder:
        call = session.make_callable([tf.numpy_function(note, [], tf.bool)])
        recorder.watch_this_thread(0, lambda: counted[0])
        call()
    assert [(made.step, made.num_steps) for made in recorder.calls] == [(10, 5)]


def test_sessions_are_as_before_when_the_recorder_has_ended():
    before = tf.Session.run, tf.Session.make_callable, tf.Session._make_callable_from_options
    with SessionRecorder(0, 1):
        assert tf.Session.run != before[0]
    assert (tf.Session.run, tf.Session.make_callable, tf.Session._make_callable_from_options) == before
