from __future__ import annotations

import json

import pytest

from ps_trainer.launch.status import RATE_WINDOW_SECS, Board, ReportedEvent
from tests.launch.fakes import ScriptedTask


@pytest.fixture
def tasks():
    return [ScriptedTask(name) for name in ("ps-0", "worker-0", "worker-1", "evaluator-0")]


@pytest.fixture
def board(tasks, tmp_path):
    board = Board(tasks, tmp_path, max_steps=1000)
    for task in tasks:
        task.start()
    return board


def write(tmp_path, name, *records):
    with (tmp_path / f"{name}.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def train(wall_time, global_step, **values):
    return {"kind": "train", "wall_time": wall_time, "global_step": global_step, **values}


def test_state_is_starting_then_the_tasks_own_report_then_its_end(board, tasks, tmp_path):
    worker = board.workers[0]
    assert worker.state == "starting"
    write(tmp_path, "worker-0", {"kind": "state", "state": "waiting for ps-0"})
    board.refresh()
    assert worker.state == "waiting for ps-0"
    tasks[1].end(1)
    assert worker.state == "failed (exit 1)"


def test_latest_numbers_of_a_worker_are_kept_when_a_line_lacks_them(board, tmp_path):
    write(tmp_path, "worker-1", train(1.0, 8, local_step=4, loss=0.5, steps_per_sec=2.0, staleness_mean=0.9))
    write(tmp_path, "worker-1", {"kind": "train", "loss": 0.25, "examples_per_sec": 64.0})
    board.refresh()
    worker = board.workers[1]
    assert (worker.global_step, worker.totals.steps, worker.loss) == (8, 4, 0.25)
    assert (worker.steps_per_sec, worker.examples_per_sec, worker.staleness) == (2.0, 64.0, 0.9)


def test_values_of_a_wrong_type_are_skipped(board, tmp_path):
    write(
        tmp_path,
        "worker-0",
        {"kind": "train", "global_step": "x", "local_step": float("nan"), "loss": None, "wall_time": []},
        {"kind": "eval", "metrics": 3, "global_step": float("inf")},
        {"kind": ["odd"]},
        {},
    )
    board.refresh()
    assert board.workers[0].loss is None
    assert board.global_step is None
    assert board.last_evaluation.metrics == {}


def test_rate_is_over_the_time_of_all_reports(board, tmp_path):
    write(tmp_path, "worker-0", train(10.0, 0, local_step=10, steps_per_sec=5.0))
    board.refresh()
    assert board.workers[0].totals.steps_per_sec == 5.0
    write(tmp_path, "worker-0", train(14.0, 0, local_step=50, steps_per_sec=10.0))
    board.refresh()
    assert board.workers[0].totals.steps_per_sec == 50 / (10 / 5.0 + 4.0)


@pytest.mark.parametrize("steps_after", [30, 200])
def test_totals_count_the_steps_of_all_joins_of_one_process(board, tmp_path, steps_after):
    write(
        tmp_path,
        "worker-0",
        {"kind": "state", "state": "training"},
        train(1.0, 100, local_step=50, steps_per_sec=50.0, staleness_mean=1.0),
        train(2.0, 200, local_step=100, steps_per_sec=50.0, staleness_mean=1.0),
        {"kind": "state", "state": "ps-0 was lost"},
        {"kind": "state", "state": "training"},
        train(60.0, 150, local_step=steps_after, steps_per_sec=10.0, staleness_mean=3.0),
    )
    board.refresh()
    totals = board.workers[0].totals
    assert totals.steps == 100 + steps_after
    assert totals.steps_per_sec == (100 + steps_after) / (2.0 + steps_after / 10.0)
    assert totals.staleness == (100 * 1.0 + steps_after * 3.0) / (100 + steps_after)


def test_a_lower_local_step_belongs_to_a_new_join(board, tmp_path):
    write(tmp_path, "worker-0", train(1.0, 9, local_step=90, steps_per_sec=90.0))
    write(tmp_path, "worker-0", train(8.0, 9, local_step=20, steps_per_sec=10.0))
    board.refresh()
    assert board.workers[0].totals.steps == 90 + 20
    assert board.workers[0].totals.steps_per_sec == (90 + 20) / (1.0 + 2.0)


def test_time_left_follows_from_the_rate_of_global_step_over_all_workers(board, tmp_path):
    write(tmp_path, "worker-0", train(0.0, 100))
    board.refresh()
    assert board.secs_left is None
    write(tmp_path, "worker-1", train(4.0, 300))
    board.refresh()
    assert board.global_step == 300
    assert board.global_steps_per_sec == (300 - 100) / 4.0
    assert board.secs_left == (1000 - 300) / ((300 - 100) / 4.0)


def test_first_reports_of_two_workers_at_nearly_the_same_time_give_no_rate(board, tmp_path):
    write(tmp_path, "worker-0", train(5.0, 590))
    write(tmp_path, "worker-1", train(5.073, 594))
    board.refresh()
    assert board.global_step == 594
    assert board.global_steps_per_sec is None and board.secs_left is None
    write(tmp_path, "worker-0", train(10.0, 990))
    board.refresh()
    assert board.global_steps_per_sec == (990 - 590) / 5.0
    assert board.secs_left == (1000 - 990) / ((990 - 590) / 5.0)


def test_rate_ignores_reports_older_than_its_window(board, tmp_path):
    later = RATE_WINDOW_SECS + 1.0
    write(tmp_path, "worker-0", train(0.0, 0), train(later, 10), train(later + 2.0, 110))
    board.refresh()
    assert board.global_steps_per_sec == (110 - 10) / 2.0


def test_time_left_is_unknown_without_max_steps(tasks, tmp_path):
    board = Board(tasks, tmp_path, max_steps=None)
    write(tmp_path, "worker-0", train(0.0, 100), train(1.0, 200))
    board.refresh()
    assert board.global_steps_per_sec == 200 - 100
    assert board.secs_left is None


def test_examples_per_sec_adds_up_running_workers_only(board, tasks, tmp_path):
    write(tmp_path, "worker-0", train(0.0, 1, examples_per_sec=100.0))
    write(tmp_path, "worker-1", train(0.0, 1, examples_per_sec=50.0))
    board.refresh()
    assert board.examples_per_sec == 100.0 + 50.0
    tasks[2].end(0)
    assert board.examples_per_sec == 100.0


def test_last_evaluation_is_that_of_the_highest_step(board, tmp_path):
    write(tmp_path, "worker-0", {"kind": "eval", "wall_time": 5.0, "global_step": 1000, "metrics": {"accuracy": 0.97}})
    write(tmp_path, "evaluator-0", {"kind": "eval", "wall_time": 9.0, "global_step": 500, "metrics": {"loss": 0.4}})
    board.refresh()
    assert board.last_evaluation.metrics == {"accuracy": 0.97}
    assert board.tasks[3].global_step == 500
    assert board.tasks[3].loss == 0.4
    assert board.tasks[1].loss is None


def test_lines_of_an_earlier_run_do_not_count(tasks, tmp_path):
    write(tmp_path, "worker-0", train(0.0, 900))
    board = Board(tasks, tmp_path, max_steps=1000)
    board.refresh()
    assert board.global_step is None


def test_peer_failure_follows_the_last_state_line(board, tasks, tmp_path):
    write(tmp_path, "worker-0", {"kind": "state", "state": "ps-0 is lost", "peer_failure": True})
    board.refresh()
    assert board.status_of(tasks[1]).is_peer_failure
    assert not board.status_of(tasks[2]).is_peer_failure


def test_reached_step_never_decreases(board, tmp_path):
    assert board.reached_step is None
    write(tmp_path, "worker-0", {"kind": "reached", "global_step": 203}, {"kind": "train", "global_step": 150})
    write(tmp_path, "worker-1", {"kind": "train", "global_step": 180})
    board.refresh()
    assert board.reached_step == 203
    assert board.global_step == 180


def test_events_are_kept(board, tmp_path):
    write(tmp_path, "worker-1", {"kind": "event", "event": "raise", "task": "worker-1", "fault": "x"})
    board.refresh()
    assert board.events == [ReportedEvent(event="raise", fault="x", global_step=None)]


def test_rate_is_unknown_when_training_has_rolled_back(board, tmp_path):
    steps = [(0.0, 500), (10.0, 300)]
    write(tmp_path, "worker-0", *({"kind": "train", "wall_time": t, "global_step": step} for t, step in steps))
    board.refresh()
    assert board.global_steps_per_sec is None


def test_restarted_task_starts_without_old_numbers(tasks, tmp_path):
    worker = ScriptedTask("worker-0", None, None)
    board = Board([worker], tmp_path, max_steps=None)
    worker.start()
    write(
        tmp_path,
        "worker-0",
        {"kind": "train", "wall_time": 0.0, "local_step": 100},
        {"kind": "train", "wall_time": 1.0, "local_step": 200},
        {"kind": "state", "state": "failed: ps-0 was lost", "peer_failure": True},
    )
    board.refresh()
    (status,) = board.tasks
    assert (status.reason, status.is_peer_failure) == ("ps-0 was lost", True)
    worker.end(1)
    worker.start()
    board.refresh()
    assert (status.state, status.reason, status.is_peer_failure) == ("starting", "", False)
    write(
        tmp_path,
        "worker-0",
        {"kind": "train", "wall_time": 9.0, "local_step": 10},
        {"kind": "train", "wall_time": 10.0, "local_step": 30},
    )
    board.refresh()
    assert status.totals.steps == 200 + 30
    # The time of a join's first steps is unknown here, because its first report has no rate.
    assert status.totals.steps_per_sec == (100 + 20) / (1.0 + 1.0)
