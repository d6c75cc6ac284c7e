"""Bare ops with several steps in a call make the same steps, with the same messages, as with each step in a call."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from benchmarks.peer_contenders import Module
from benchmarks.peers import bare_ops, check
from benchmarks.peers.step_reporter import StepReporter
from ps_trainer.store.ancestors import ancestors
from tests.testing.repetitions import repetitions

NUM_STEPS, PER_CALL = 12, 4
WORKER = "/job:worker/task:0"


@pytest.fixture(autouse=True)
def _loops_of_single_ops():
    """As in `bare_ops` itself."""
    tf.disable_control_flow_v2()
    yield
    tf.enable_control_flow_v2()


def losses(workload: str, num_ps: int, steps_per_call: int) -> list[float]:
    """The losses of steps with a CPU device for the worker, and one in place of each ps task."""
    config = tf.ConfigProto(device_count={"CPU": 1 + num_ps})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    devices = [f"/device:CPU:{number}" for number in range(1 + num_ps)]
    with tf.Graph().as_default(), tf.device(devices[0]):
        graph = bare_ops.BareGraph(workload, devices[1:], 0, devices[0])
        fetches = graph.build(computes=True, steps_per_call=steps_per_call)
        with tf.Session(config=config) as session:
            session.run(graph.init_op)
            call = session.make_callable(fetches)
            return [float(loss) for _ in range(NUM_STEPS // steps_per_call) for loss in np.atleast_1d(call()[0])]


@pytest.mark.parametrize(
    ("workload", "num_ps"), repetitions([("logistic", 2), ("mlp", 1), ("factorization", 1), ("deep", 2)])
)
def test_the_losses_of_a_loop_are_those_of_single_calls(workload, num_ps):
    single = losses(workload, num_ps, 1)
    assert len(set(single)) == NUM_STEPS
    assert losses(workload, num_ps, PER_CALL) == pytest.approx(single, rel=1e-6)


def messages(workload: str, num_ps: int, steps_per_call: int) -> tuple[int, int]:
    """The messages of a step, to the worker and from it; what lies outside of the loop is sent once in a call."""
    with tf.Graph().as_default(), tf.device(WORKER):
        graph = bare_ops.BareGraph(workload, [f"/job:ps/task:{ps}" for ps in range(num_ps)], 0, WORKER)
        call = graph.build(computes=True, steps_per_call=steps_per_call)
        sent = set()
        for op in ancestors([getattr(fetch, "op", fetch) for fetch in call]):
            for source in (*op.inputs, *op.control_inputs):
                before = getattr(source, "op", source)
                # With several ps tasks, a call of one step ends with a NoOp of each, which the worker awaits.
                is_of_step = before.type != "NoOp" if steps_per_call == 1 else before.name.startswith("while/")
                if before.device != op.device and is_of_step:
                    sent.add((source.name, before.device, op.device))
    to_worker = [message for message in sent if message[2] == WORKER]
    assert all(WORKER in message for message in sent)
    return len(to_worker), len(sent) - len(to_worker)


@pytest.mark.parametrize(
    ("workload", "num_ps", "to_worker", "from_worker"),
    [
        ("scalar", 1, 1, 1),
        ("deep", 2, 2, 2),
        # Rows; ids, gradient, and the ids of its rows.
        ("table", 1, 1, 3),
        ("factorization", 1, 2, 6),
        # The same, and the dense parameters; each ps task has a part of these.
        ("wide_deep", 2, 4, 8),
    ],
)
def test_a_step_in_a_loop_has_one_message_more_for_each_ps_task_that_holds_parameters(
    workload, num_ps, to_worker, from_worker
):
    assert messages(workload, num_ps, 1) == (to_worker, from_worker)
    # That another round follows.
    assert messages(workload, num_ps, PER_CALL) == (to_worker, from_worker + num_ps)


@pytest.mark.process
@pytest.mark.parametrize("workload", repetitions(["table", "wide_deep", "scalar"]))
def test_a_loop_between_processes_computes_the_same_as_a_plain_loop(workload, monkeypatch, capsys):
    loop = Module("bare_ops_loop", "bare_ops", flags=(f"--steps_per_call={check.NUM_STEPS // 2}",))
    monkeypatch.setitem(check.PEER_CONTENDERS, "bare_ops_loop", loop)
    assert check.main(["--contenders=bare_ops_loop", f"--workloads={workload}"]) == 0, capsys.readouterr()
    assert capsys.readouterr().out.startswith("same")


def test_a_call_counts_all_its_steps_in_one_report(tmp_path):
    report, written = tmp_path / "report.jsonl", tmp_path / "losses.json"
    reporter = StepReporter(str(report), str(written))
    reporter.count_steps(np.array([3.0, 2.0, 1.0], np.float32))
    reporter.count_step(0.5)
    reporter.close()
    assert [json.loads(line)["local_step"] for line in report.read_text().splitlines()] == [3]
    assert json.loads(written.read_text()) == [3.0, 2.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("steps", "per_call", "message"),
    [(7, 2, "--steps=7 must be a multiple of --steps_per_call=2"), (7, 0, "--steps_per_call=0 must be at least 1")],
)
def test_steps_that_no_call_can_make_are_refused(steps, per_call, message, monkeypatch, capsys):
    flags = ["--worker_hosts=h:1", "--job_name=worker", "--task_index=0", f"--steps={steps}"]
    monkeypatch.setattr(sys, "argv", ["bare_ops", *flags, f"--steps_per_call={per_call}"])
    with pytest.raises(SystemExit):
        bare_ops.main()
    assert message in capsys.readouterr().err
