"""A ps task serves until every worker has ended, on a real server in this process."""

from __future__ import annotations

import signal

import pytest

from tests.runtime.fakes import FIGURES
from tests.runtime.served_ps import DEADLINE_SECS, statuses

from ps_trainer.errors import Interrupted, RunError, StartTimeoutError  # isort: skip - after the cluster's environment
from ps_trainer.runtime import liveness, ps
from ps_trainer.runtime.run_record import Status


def test_ends_with_0_when_every_worker_is_done(serve):
    task = serve()
    for worker in (0, 1):
        task.send(worker, Status.JOINED)
        task.send(worker, Status.TRAINING)
    task.send(1, Status.DONE)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "done"})
    assert task.is_serving()
    task.send(0, Status.DONE)
    assert task.end() == 0


def test_a_worker_whose_port_is_closed_has_failed_with_the_ps_tasks_reason(serve, monkeypatch):
    task = serve()
    task.send(0, Status.JOINED)
    task.send(1, Status.JOINED)
    task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "joined"})
    monkeypatch.setattr(liveness, "fault_of", lambda address: "refused" if address == "localhost:2" else "")
    state = task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "failed"})
    assert "localhost:2 does not answer (refused)" in state.roster.workers[1].reason
    task.send(0, Status.DONE)
    assert task.end() == 1


@pytest.mark.parametrize("other", [Status.DONE, Status.INTERRUPTED])
@pytest.mark.parametrize("worker", [0, 1])
def test_ends_with_1_when_a_worker_failed(serve, worker, other):
    task = serve()
    task.send(worker, Status.JOINED)
    task.send(worker, Status.FAILED, reason="why")
    task.send(1 - worker, other)
    assert task.end() == 1


@pytest.mark.parametrize("other", [Status.DONE, Status.INTERRUPTED])
@pytest.mark.parametrize("worker", [0, 1])
def test_ends_with_143_when_signals_ended_the_workers_that_were_not_done(serve, worker, other):
    task = serve()
    task.send(worker, Status.JOINED)
    task.send(1 - worker, other)
    task.send(worker, Status.INTERRUPTED, reason="ended by SIGTERM")
    assert task.end() == 128 + signal.SIGTERM


def test_a_worker_that_fails_before_it_joined_counts(serve):
    task = serve()
    task.send(0, Status.JOINED)
    task.send(1, Status.FAILED, run_id="", reason="no data")
    task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "failed"})
    task.send(0, Status.DONE)
    assert task.end() == 1


def test_reports_hello_and_each_workers_last_status(serve):
    task = serve()
    task.send(0, Status.JOINED)
    task.send(0, Status.DONE, summary=FIGURES)
    state = task.wait_for(lambda state: statuses(state) == {0: "done"})
    assert state.hello.num_ps == 1 and state.hello.num_workers == 2
    assert state.roster.run_id == "r"
    assert state.roster.workers[0].summary == FIGURES


def test_without_any_worker_it_ends_after_the_start_timeout(serve):
    with pytest.raises(StartTimeoutError, match="ps-0: no worker joined within 0 s.*--start_timeout_secs"):
        serve(start_timeout_secs=0.05).end()


@pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED])
def test_a_chief_that_never_joined_is_not_waited_for_forever_when_another_worker_has_ended(serve, status):
    task = serve(start_timeout_secs=2.0)
    task.send(1, status, run_id="", reason="no data")
    task.wait_for(lambda state: 1 in statuses(state))
    with pytest.raises(StartTimeoutError, match=r"ps-0: the chief \(worker-0\) did not join within 2 s, and worker 1 "):
        task.end()


def test_after_a_failed_chief_the_wait_for_other_workers_is_short(serve, monkeypatch):
    monkeypatch.setattr(ps, "FAILED_SECS", 0.5)
    task = serve(start_timeout_secs=120.0)
    task.send(0, Status.JOINED)
    task.send(0, Status.FAILED, reason="worker 1 lost")
    with pytest.raises(RunError, match=r"the chief ended 1 s ago and worker \[1\] has not reported how it ended"):
        task.end()


def test_a_worker_that_is_silent_after_the_chief_ended_is_named(serve):
    task = serve(start_timeout_secs=2.0)
    task.send(0, Status.JOINED)
    task.send(0, Status.DONE)
    with pytest.raises(RunError, match=r"the chief ended 2 s ago and worker \[1\] has not reported how it ended"):
        task.end()


def test_a_message_of_a_replaced_run_changes_nothing(serve):
    task = serve()
    task.send(0, Status.JOINED, run_id="old")
    task.send(1, Status.JOINED, run_id="old")
    task.send(0, Status.JOINED, run_id="new")
    task.send(1, Status.DONE, run_id="old")
    task.send(0, Status.TRAINING, run_id="new")
    state = task.wait_for(lambda state: statuses(state).get(0) == "training")
    assert state.roster.run_id == "new"
    assert statuses(state) == {0: "training"}


def test_when_stopped_it_reports_and_raises_the_reason(serve):
    task = serve()
    task.send(0, Status.JOINED)
    task.send(0, Status.TRAINING)
    task.wait_for(lambda state: statuses(state) == {0: "training"})
    task.stop.request(Interrupted(signal.SIGTERM))
    state = task.wait_for(lambda state: state.notice)
    assert state.notice.reason == "ps-0 was ended by SIGTERM"
    with pytest.raises(Interrupted):
        task.end()


def test_when_stopped_it_does_not_wait_for_workers_that_have_ended(serve, monkeypatch):
    monkeypatch.setattr(ps, "NOTICE_SECS", 10 * DEADLINE_SECS)
    task = serve()
    task.send(0, Status.JOINED)
    task.send(0, Status.TRAINING)
    task.wait_for(lambda state: statuses(state) == {0: "training"})
    task.stop.request(Interrupted(signal.SIGTERM))
    task.send(0, Status.INTERRUPTED)
    with pytest.raises(Interrupted):
        task.end()


def test_serves_job_after_job_when_asked_to(serve):
    task = serve(keep_serving=True, start_timeout_secs=0.05)
    for run_id in ("first", "second"):
        for worker in (0, 1):
            task.send(worker, Status.JOINED, run_id=run_id)
        task.wait_for(
            lambda state, run_id=run_id: state.roster and state.roster.run_id == run_id and len(statuses(state)) == 2
        )
        for worker in (1, 0):
            task.send(worker, Status.DONE, run_id=run_id)
        task.wait_for(lambda state: statuses(state) == {0: "done", 1: "done"})
    assert task.is_serving()
