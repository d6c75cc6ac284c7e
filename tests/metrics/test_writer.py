"""A task's reports can be read back, as JSON lines and as TensorBoard events of the same numbers."""

from __future__ import annotations

import json

import numpy as np

from ps_trainer.metrics.figures import StepReport
from ps_trainer.metrics.writer import MetricsWriter
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment
from tests.testing.logs import log_lines

import tensorflow.compat.v1 as tf  # isort: skip - after the environment

REPORT = StepReport(local_step=4, steps_per_sec=2.0, examples_per_sec=16.0, loss=0.5)


def lines(logdir, task="worker-0"):
    return [json.loads(line) for line in (logdir / "metrics" / f"{task}.jsonl").read_text().splitlines()]


def scalars(logdir, task="worker-0"):
    (path,) = (logdir / "metrics" / task).iterdir()
    return [
        (event.step, value.tag, value.simple_value)
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
    ]


def write_all(logdir):
    writer = MetricsWriter(logdir, "worker-0", time_fn=lambda: 12.5)
    writer.state("training")
    writer.train(10, REPORT)
    writer.eval(10, {"loss": 0.25, "accuracy": np.float64(0.75)})
    writer.state("failed: why", peer_failure=True)
    writer.close()


def test_each_report_is_a_line_with_the_time(tmp_path):
    write_all(str(tmp_path))
    assert lines(tmp_path) == [
        {"wall_time": 12.5, "kind": "state", "state": "training"},
        {"wall_time": 12.5, "kind": "train", "global_step": 10, **REPORT.as_json()},
        {"wall_time": 12.5, "kind": "eval", "global_step": 10, "metrics": {"loss": 0.25, "accuracy": 0.75}},
        {"wall_time": 12.5, "kind": "state", "state": "failed: why", "peer_failure": True},
    ]


def test_numbers_are_scalars_of_tensorboard(tmp_path):
    write_all(str(tmp_path))
    assert scalars(tmp_path) == [
        (10, "local_step", 4.0),
        (10, "steps_per_sec", 2.0),
        (10, "examples_per_sec", 16.0),
        (10, "loss", 0.5),
        (10, "test/loss", 0.25),
        (10, "test/accuracy", 0.75),
    ]


def test_a_line_can_be_read_before_the_task_ends(tmp_path):
    writer = MetricsWriter(str(tmp_path), "worker-0")
    writer.state("training")
    writer.train(1, REPORT)
    assert [line["kind"] for line in lines(tmp_path)] == ["state", "train"]
    assert (1, "loss", 0.5) in scalars(tmp_path)
    writer.close()


def test_a_restarted_task_continues_in_the_same_file(tmp_path):
    for state in ("first", "second"):
        writer = MetricsWriter(str(tmp_path), "worker-0")
        writer.state(state)
        writer.close()
    assert [line["state"] for line in lines(tmp_path)] == ["first", "second"]


def test_tasks_do_not_write_into_each_others_files(tmp_path):
    for task in ("worker-0", "worker-1"):
        writer = MetricsWriter(str(tmp_path), task)
        writer.state(task)
        writer.close()
    assert [line["state"] for line in lines(tmp_path, "worker-1")] == ["worker-1"]


def test_without_a_logdir_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_all(None)
    assert list(tmp_path.iterdir()) == []


def test_the_default_graph_is_not_changed(tmp_path):
    with tf.Graph().as_default() as graph:
        write_all(str(tmp_path))
        assert not graph.get_operations()


def test_events_end_with_a_warning_on_a_full_disk(tmp_path, monkeypatch):
    writer = MetricsWriter(str(tmp_path), "worker-0")

    class Full:
        def add_summary(self, summary, step):
            raise RuntimeError("events.out; No space left on device")  # TensorFlow 2.21's own error

    monkeypatch.setattr(writer, "_events", Full())
    with log_lines() as logged:
        writer.train(1, REPORT)
        writer.train(2, REPORT)
    writer.close()
    assert len([line for line in logged if "TensorBoard events end here" in line]) == 1
