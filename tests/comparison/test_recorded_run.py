"""Curves and figures of a run, from files with known numbers."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from ps_trainer.comparison import recorded_run
from ps_trainer.errors import RunError, UsageError
from tests.comparison.run_folder import START, report, write
from tests.testing.step_records import step_record

# Two workers at 2 and 1 steps per second of 10 examples, for 4 s.
WORKERS = {
    "worker-0": [report(2, 4, 6, 3.0, 2.0), report(4, 8, 12, 1.0, 2.0)],
    "worker-1": [report(2, 2, 6, 5.0, 1.0), report(4, 4, 12, 2.0, 1.0)],
}


def line(kind, secs, **values):
    return {"wall_time": START + secs, "kind": kind, **values}


def test_loss_is_the_mean_of_the_workers_over_step_examples_and_time(tmp_path):
    loss = recorded_run.read(write(tmp_path, WORKERS)).loss
    assert loss.y.tolist() == [(3 + 5) / 2, (1 + 2) / 2]
    assert loss.x["step"].tolist() == [6, 12]
    assert loss.x["secs"].tolist() == [2, 4]
    assert loss.x["examples"].tolist() == [2 * (2 + 1) * 10, 4 * (2 + 1) * 10]


def test_throughput_counts_the_examples_of_all_workers(tmp_path):
    throughput = recorded_run.read(write(tmp_path, WORKERS)).throughput
    np.testing.assert_allclose(throughput.y, [(2 + 1) * 10] * 2)
    np.testing.assert_allclose(throughput.x["secs"], [1, 3])


def test_throughput_is_zero_while_all_workers_are_away(tmp_path):
    reports = [report(secs, 2 * secs, 2 * secs, 1.0, 2.0) for secs in range(1, 11)]
    reports += [report(30 + secs, 2 * secs, 20 + 2 * secs, 1.0, 2.0) for secs in range(1, 11)]
    throughput = recorded_run.read(write(tmp_path, {"worker-0": reports})).throughput
    np.testing.assert_allclose(throughput.x["secs"], np.arange(1, 40, 2))
    np.testing.assert_allclose(throughput.y, [20.0] * 5 + [0.0] * 10 + [20.0] * 5)


def test_a_restarted_worker_counts_on(tmp_path):
    reports = {"worker-0": [report(2, 4, 4, 3.0, 2.0), report(9, 2, 6, 2.0, 1.0)]}  # its local steps begin at 0 again
    loss = recorded_run.read(write(tmp_path, reports)).loss
    assert loss.x["examples"].tolist() == [4 * 10, (4 + 2) * 10]


def test_a_restarted_worker_counts_on_if_its_first_report_has_more_steps_than_the_last_one_before(tmp_path):
    reports = {"worker-0": [report(2, 4, 4, 3.0, 2.0), report(9, 5, 9, 2.0, 1.0), report(10, 6, 10, 2.0, 1.0)]}
    loss = recorded_run.read(write(tmp_path, reports)).loss
    assert loss.x["examples"].tolist() == [4 * 10, (4 + 5) * 10, (4 + 6) * 10]


def test_steps_of_a_step_log_replace_the_reports(tmp_path):
    steps = [
        step_record(
            wall_time=START + end,
            t_start=end - 1.0,
            t_end=end,
            global_step=end,
            loss=1.0 / end,
            examples=3,
        ).as_json()
        for end in (1, 2, 3)
    ]
    steps.append(steps[-1] | {"global_step": 4, "loss": None})  # a loss of NaN, which no curve shows
    run = recorded_run.read(write(tmp_path, {"worker-0": WORKERS["worker-0"]}, steps={"worker-0": steps}))
    np.testing.assert_allclose(run.loss.y, [1, 1 / 2, 1 / 3])
    np.testing.assert_allclose(run.loss.x["examples"], [3, 6, 9])
    np.testing.assert_allclose(run.loss.x["secs"], [1, 2, 3])


def test_an_evaluation_belongs_to_the_time_of_its_step(tmp_path):
    evaluated = [
        line("eval", 50, global_step=9, metrics={"accuracy": 0.5}),
        line("eval", 60, global_step=12, metrics={"accuracy": 0.75}),
    ]
    run = recorded_run.read(write(tmp_path, {**WORKERS, "evaluator-0": evaluated}))
    assert run.metrics["accuracy"].y.tolist() == [0.5, 0.75]
    np.testing.assert_allclose(run.metrics["accuracy"].x["secs"], [3, 4])
    np.testing.assert_allclose(run.metrics["accuracy"].x["examples"], [90, 120])


def test_disturbances_are_events_and_their_ends_are_not(tmp_path):
    events = [line("event", 3, event=event, task="worker-1", global_step=8) for event in ("kill", "restart", "restore")]
    run = recorded_run.read(write(tmp_path, {**WORKERS, "launcher": events}))
    assert run.events == [(3.0, 8, "kill worker-1")]


def test_figures_of_the_summary_are_over_all_workers(tmp_path):
    workers = {
        "0": {"local_steps": 30, "pushes": 30, "gradients_dropped": 1,
              "staleness": {"0": 20, "1": 9}},
        "1": {"local_steps": 10, "pushes": 10, "gradients_dropped": 2,
              "staleness": {"1": 8}},
        "2": {"status": "failed"},
    }  # fmt: skip
    run = recorded_run.read(write(tmp_path, WORKERS, summary={"workers": workers}))
    summary = run.summary
    assert summary.staleness == {0: 20, 1: 9 + 8}
    assert (summary.total(lambda w: w.pushes), summary.total(lambda w: w.gradients_dropped)) == (40, 1 + 2)
    assert summary.local_steps == 30 + 10


def test_a_line_that_is_still_written_is_left_out(tmp_path):
    write(tmp_path, WORKERS)
    with (tmp_path / "metrics" / "worker-0.jsonl").open("a") as file:
        file.write('{"wall_time": 12')
    assert len(recorded_run.read(tmp_path).loss.y) == 2


def test_runs_of_the_same_name_are_told_apart_by_more_of_their_paths(tmp_path):
    folders = [tmp_path / name / "run" for name in ("a", "b")]
    assert [run.name for run in recorded_run.read_all([write(folder, WORKERS) for folder in folders])] == [
        "a/run",
        "b/run",
    ]


@pytest.mark.parametrize(
    ("break_run", "message"),
    [
        (
            lambda folder: (folder / "metrics" / "worker-0.jsonl").write_text("{\n"),
            r"worker-0.jsonl, line 1 is not JSON",
        ),
        (
            lambda folder: (folder / "metrics" / "worker-0.jsonl").write_text('{"kind": "train", "loss": 1.0}\n'),
            r"worker-0.jsonl, line 1 has no field 'wall_time'; restore the file or remove the line",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda folder: [path.write_text("") for path in (folder / "metrics").iterdir()], "has reported a step yet"),
    ],
)
def test_a_damaged_run_and_one_without_steps_are_failures(tmp_path, break_run, message):
    break_run(write(tmp_path, WORKERS))
    with pytest.raises(RunError, match=message):
        recorded_run.read(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", {"train": []}, "config.json: 'train' is a list, and must be an object; restore it or remove"),
        ("config.json", {"cluster": "none"}, "config.json: 'cluster' is a text, and must be an object"),
        ("config.json", {"cluster": {"ps": 1}}, "config.json: 'ps' is a number, and must be a list or an object"),
        ("config.json", [], "config.json is not a JSON object"),
        ("summary.json", {"status": 1}, "summary.json: 'status' is a number, and must be a text"),
        ("summary.json", {"global_step": True}, "summary.json: 'global_step' is true or false, and must be a number"),
        ("summary.json", {"workers": [1]}, "summary.json: 'workers' is a list, and must be an object"),
        ("summary.json", {"workers": {"0": 3}}, "summary.json: '0' is a number, and must be an object"),
        ("summary.json", {"workers": {"0": {"pushes": "x"}}}, "summary.json: 'pushes' is a text, and must be a number"),
        ("summary.json", {"workers": {"0": {"staleness": {"x": 1}}}}, "'staleness' has the value 'x', which is no"),
        ("summary.json", {"restarts": {"ps-0": []}}, "summary.json: 'ps-0' is a list, and must be a number"),
        (
            "metrics/worker-0.jsonl",
            report(2, 4, 6, 3.0, 2.0) | {"local_step": "x"},
            "worker-0.jsonl, line 1: 'local_step' is a text, and must be a number; restore the file or remove the line",
        ),
        (
            "metrics/worker-0.jsonl",
            line("eval", 1, global_step=1, metrics=[]),
            "worker-0.jsonl, line 1: 'metrics' is a list, and must be an object",
        ),
        (
            "metrics/worker-0.jsonl",
            line("eval", 1, global_step=1, metrics={"loss": "x"}),
            "worker-0.jsonl, line 1: 'loss' is a text, and must be a number or null",
        ),
    ],
)
def test_a_value_of_another_type_is_named(tmp_path, file, content, message):
    (write(tmp_path, WORKERS) / file).write_text(json.dumps(content) + "\n")
    with pytest.raises(RunError, match=re.escape(message)):
        recorded_run.read(tmp_path)


def test_null_counts_as_missing(tmp_path):
    write(tmp_path, WORKERS, summary={"status": None, "workers": None, "restarts": None})
    (tmp_path / "config.json").write_text('{"train": null, "cluster": null}')
    run = recorded_run.read(tmp_path)
    assert (run.settings, run.summary.status, run.summary.local_steps) == ({}, None, 0)


def test_a_folder_without_a_run_is_wrong_input(tmp_path):
    (write(tmp_path, WORKERS) / "metrics").rename(tmp_path / "m")
    with pytest.raises(UsageError, match="holds no run: it has no folder metrics/"):
        recorded_run.read(tmp_path)


def test_a_run_that_is_given_twice_is_rejected(tmp_path):
    write(tmp_path, WORKERS)
    with pytest.raises(UsageError, match="twice"):
        recorded_run.read_all([tmp_path, tmp_path / "." / ""])
