"""Workers that a ps task loses, and that come back or do not, on a real server in this process."""

from __future__ import annotations

import pytest

from tests.runtime.served_ps import DEADLINE_SECS, joined, statuses

from ps_trainer.runtime import liveness, roster_book  # isort: skip - after the cluster's environment
from ps_trainer.runtime.run_record import Status


def test_a_worker_whose_port_is_closed_is_lost_and_may_come_back(serve, monkeypatch):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    monkeypatch.setattr(liveness, "fault_of", lambda address: "refused" if address == "localhost:2" else "")
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    assert "localhost:2 does not answer (refused)" in state.roster.workers[1].reason
    task.send(1, Status.JOINED)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "joined"})
    task.send(1, Status.DONE)
    task.send(0, Status.DONE)
    assert task.end() == 0


def join_numbers(state):
    return {index: entry.joining for index, entry in state.roster.workers.items()}


def test_a_loss_belongs_to_the_last_join_and_so_does_the_end_of_a_process_before_its_join(serve, monkeypatch):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    task.send(1, Status.JOINED, joining=3)
    task.wait_for(lambda state: join_numbers(state) == {0: 0, 1: 3})
    monkeypatch.setattr(liveness, "fault_of", lambda address: "refused" if address == "localhost:2" else "")
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    assert join_numbers(state) == {0: 0, 1: 3}
    task.send(1, Status.INTERRUPTED, run_id="", joining=0)
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "interrupted"})
    assert join_numbers(state) == {0: 0, 1: 3}
    task.send(1, Status.JOINED, joining=4)
    task.wait_for(lambda state: join_numbers(state) == {0: 0, 1: 4})


def test_a_silent_worker_is_lost_and_its_next_sign_of_life_brings_it_back(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS, heartbeat_timeout_secs=0.5)
    joined(task)
    task.send(1, Status.DONE)
    state = task.wait_for(lambda state: statuses(state) == {0: "lost", 1: "done"})
    assert "no sign of life for" in state.roster.workers[0].reason
    task.beat(0)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "done"})
    task.send(0, Status.DONE)
    assert task.end() == 0


def test_a_worker_that_reported_a_loss_is_not_revived_by_an_old_sign_of_life(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    task.send(1, Status.LOST, reason="ps-1 was lost")
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    task.beat(1)
    task.send(0, Status.JOINED)  # mail is read in order
    task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "lost"})


def test_a_lost_worker_has_failed_when_it_does_not_come_back_in_time(serve):
    task = serve(recover_timeout_secs=0.3)
    joined(task)
    task.send(1, Status.LOST, reason="ps-1 was lost")
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "failed"})
    assert "ps-1 was lost; it did not rejoin within" in state.roster.workers[1].reason


@pytest.mark.parametrize("status", [Status.DONE, Status.FAILED])
def test_a_lost_worker_is_not_waited_for_when_the_chief_has_ended(serve, status, monkeypatch):
    monkeypatch.setattr(roster_book, "_LATE_SECS", 0.2 if status == Status.DONE else 10 * DEADLINE_SECS)
    task = serve(recover_timeout_secs=10 * DEADLINE_SECS)
    joined(task)
    task.send(1, Status.LOST, reason="gone")
    task.send(0, status)
    assert task.end() == 1


def test_a_lost_worker_that_is_back_soon_after_the_chief_is_done_has_not_failed(serve, monkeypatch):
    monkeypatch.setattr(roster_book, "_LATE_SECS", DEADLINE_SECS)
    task = serve(recover_timeout_secs=10 * DEADLINE_SECS)
    joined(task)
    task.send(1, Status.LOST, reason="gone")
    task.send(0, Status.DONE)
    task.wait_for(lambda state: statuses(state) == {0: "done", 1: "lost"})
    task.send(1, Status.DONE)
    assert task.end() == 0


def test_messages_of_a_replaced_run_do_not_bring_a_worker_back(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    task.send(0, Status.JOINED, run_id="next")
    task.send(1, Status.JOINED, run_id="r")
    task.send(1, Status.JOINED, run_id="next")
    state = task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "joined"})
    assert state.roster.run_id == "next"
