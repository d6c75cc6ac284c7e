"""The accounts of a disturbed run: its applied, rolled back, logged and pending updates."""

from __future__ import annotations

import json

import pytest

from benchmarks.accounting import LineageStart, LoggedStep, Rollback, account, read


def lines(worker, *steps, at):
    """One line for each tenth of a second from `at` on."""
    return [LoggedStep(at + number / 10, worker, step) for number, step in enumerate(steps)]


def test_undisturbed_async_has_a_line_for_each_update():
    books = account([LineageStart(0.0, 0)], [*lines(0, 1, 3, 5, at=1), *lines(1, 2, 4, 6, at=1)], 6, is_joined=False)
    assert (books.logged, books.unlogged, books.rolled_back, books.applied) == (6, 0, 0, 6)
    assert books.is_balanced(num_workers=2, num_kills=0)


def test_rollback_is_the_reached_step_minus_the_restored_step():
    first = [*lines(0, 1, 3, 5, 7, at=1), *lines(1, 2, 4, 6, 8, at=1)]
    second = [*lines(0, 4, 6, at=11), *lines(1, 5, 7, at=11)]
    books = account([LineageStart(0.0, 0), LineageStart(10.0, 3)], [*second, *first], 7, is_joined=False)
    assert books.rollbacks == (Rollback(8 - 3, pytest.approx(0.2)),)  # the chief's lines of steps 3, 5, 7
    assert (books.logged, books.unlogged) == (8 + 4, 0)
    assert books.applied + books.rolled_back == books.attempted


def test_step_in_flight_when_its_worker_was_killed_is_unlogged():
    found = [*lines(0, 1, 3, 5, 6, at=1), *lines(1, 2, at=1)]  # 4 was applied; a kill came before its line
    books = account([LineageStart(0.0, 0)], found, 6, is_joined=False)
    assert (books.logged, books.unlogged) == (5, 1)
    assert books.is_balanced(num_workers=2, num_kills=1)
    assert not books.is_balanced(num_workers=2, num_kills=0)


def test_state_that_was_kept_may_be_ahead_of_the_last_line():
    books = account(
        [LineageStart(0.0, 0), LineageStart(5.0, 4)], [*lines(0, 1, 2, 3, at=1), *lines(0, 5, at=6)], 5, is_joined=False
    )
    assert (books.logged, books.unlogged, books.rolled_back) == (4, 1, 0)


def test_update_that_joins_gradients_counts_once():
    found = [*lines(0, 1, 2, 3, at=1), *lines(1, 1, 2, 3, at=1), *lines(0, 3, 4, at=11), *lines(1, 3, 4, at=11)]
    books = account([LineageStart(0.0, 0), LineageStart(10.0, 2)], found, 4, is_joined=True)
    assert (books.logged, books.unlogged, books.rolled_back) == (3 + 2, 0, 1)


def test_local_step_before_the_first_update_belongs_to_no_update():
    found = [*lines(0, 0, 0, 1, 1, 2, at=1), *lines(1, 0, 1, 2, at=1), *lines(0, 1, 2, at=11)]
    books = account([LineageStart(0.0, 0), LineageStart(10.0, 1)], found, 2, is_joined=True)
    assert (books.logged, books.unlogged, books.rolled_back) == (2 + 1, 0, 1)


def test_more_lines_than_updates_are_not_balanced():
    books = account([LineageStart(0.0, 0)], lines(0, 1, 2, 2, at=1), 2, is_joined=False)
    assert books.unlogged == -1
    assert not books.is_balanced(num_workers=2, num_kills=5)


def test_pause_of_the_chief_is_not_a_rollback():
    found = [*lines(0, 1, 2, 3, at=1), *lines(0, 4, 5, at=9)]
    books = account([LineageStart(0.0, 0), LineageStart(20.0, 2)], found, 2, is_joined=False)
    assert books.rollbacks == (Rollback(3, pytest.approx(0.1 + 0.1)),)


def test_reads_the_files_of_a_run_including_a_line_that_was_cut_off(tmp_path):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "steps").mkdir()
    states = ["waiting for the ps tasks", "initialised, at step 0", "training", "restored ck/model.ckpt-1, at step 1"]
    (tmp_path / "metrics" / "worker-0.jsonl").write_text(
        "".join(json.dumps({"kind": "state", "wall_time": t, "state": s}) + "\n" for t, s in enumerate(states))
    )
    steps = [{"wall_time": t, "worker": 0, "global_step": s} for t, s in ((2.1, 1), (2.2, 2), (4.0, 2))]
    (tmp_path / "steps" / "worker-0.jsonl").write_text(
        "".join(json.dumps(step) + "\n" for step in steps) + '{"wall_time": 4.1, "wor'
    )
    books = read(tmp_path, 2, is_joined=False)
    assert (books.num_lineages, books.logged, books.unlogged, books.rolled_back) == (2, 3, 0, 1)


def test_run_without_a_step_log_cannot_be_accounted_for(tmp_path):
    with pytest.raises(ValueError, match="--step_log"):
        read(tmp_path, 2, is_joined=False)
