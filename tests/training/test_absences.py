"""A worker's reaction when other workers are lost, end and come back."""

from __future__ import annotations

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError, PeerLostError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import Status
from ps_trainer.training.absences import Absences

LOST, INTERRUPTED, FAILED, DONE = Status.LOST, Status.INTERRUPTED, Status.FAILED, Status.DONE


class ObservedAbsences:
    """Absences of three workers as the chief of `sync` sees them, with a time that the test moves."""

    def __init__(
        self, min_workers=3, *, has_service=True, needs_all=False, is_crash_safe=True, recover_timeout_secs=60.0
    ):
        self.now = 0.0
        self.told = []
        self.said = []
        self.stop = StopRequest()
        config = TrainConfig(update="sync", recover_timeout_secs=recover_timeout_secs)
        self._absences = Absences(
            config, 3, min_workers, self if has_service else None, needs_all=needs_all,
            is_crash_safe=is_crash_safe, stop=self.stop, report=self.said.append, time_fn=lambda: self.now,
        )  # fmt: skip

    def __getattr__(self, name):
        return getattr(self._absences, name)

    def worker_came(self, index):
        self.told.append(("came", index))

    def worker_left(self, index, join_number):
        self.told.append(("left", index, join_number))

    def pass_time(self, secs):
        """Moves the time in steps too short to count as a pause of this process."""
        for _ in range(secs):
            self.now += 1.0
            self.check()


@pytest.mark.parametrize("status", [LOST, INTERRUPTED])
def test_a_worker_that_updates_need_is_waited_for_in_place(status):
    seen = ObservedAbsences()
    seen.on_worker_end(1, status, 11)
    seen.pass_time(59)
    assert not seen.stop.is_requested  # no worker leaves its session
    assert seen.told == []  # the rule still counts the worker, so no update is made without it
    assert seen.said == [f"worker 1 {status}, and update rule sync needs all; waiting up to 60 s for it to rejoin"]
    seen.on_worker_start(1)
    seen.pass_time(120)
    assert seen.told == [("came", 1)]


@pytest.mark.parametrize("status", [LOST, INTERRUPTED])
def test_the_wait_for_a_worker_that_updates_need_has_an_end(status):
    seen = ObservedAbsences()
    seen.pass_time(5)
    seen.on_worker_end(1, status, 11)
    with pytest.raises(PeerFailedError, match=rf"worker 1 {status}, .* needs all; it did not rejoin within 60 s"):
        seen.pass_time(61)
    seen.pass_time(60)  # the error is raised only once


@pytest.mark.parametrize("has_service", [True, False])
def test_a_rule_that_a_death_leaves_in_disorder_stops_the_job_at_once(has_service):
    seen = ObservedAbsences(has_service=has_service, is_crash_safe=False)
    seen.on_worker_end(1, LOST, 11)
    assert isinstance(seen.stop.reason, PeerLostError)
    assert "worker 1 lost, and update rule sync needs all" in str(seen.stop.reason)
    again = ObservedAbsences(has_service=has_service, is_crash_safe=False)
    again.on_worker_return(2)
    assert "worker 2 was restarted, and update rule sync needs all" in str(again.stop.reason)


def test_a_rule_that_a_death_leaves_in_disorder_continues_without_backup_workers():
    seen = ObservedAbsences(min_workers=2, is_crash_safe=False)
    seen.on_worker_end(1, LOST, 11)
    seen.on_worker_return(2)
    assert not seen.stop.is_requested
    assert seen.told == [("left", 1, 11)]
    seen.on_worker_end(2, LOST, 12)
    assert isinstance(seen.stop.reason, PeerLostError)


def test_a_workers_end_and_return_need_no_stop_of_a_rule_without_such_disorder():
    seen = ObservedAbsences()
    seen.on_worker_return(1)
    unsafe = ObservedAbsences(is_crash_safe=False)
    unsafe.on_worker_end(1, DONE, 11)
    assert not seen.stop.is_requested and not unsafe.stop.is_requested


def test_a_pause_of_this_process_is_not_counted():
    seen = ObservedAbsences()
    seen.on_worker_end(1, LOST, 11)
    seen.now += 1000.0
    seen.pass_time(59)
    assert not seen.stop.is_requested


@pytest.mark.parametrize(("status", "recover_timeout_secs"), [(FAILED, 60.0), (INTERRUPTED, 0.0)])
def test_a_worker_that_cannot_come_back_ends_a_run_that_needs_it(status, recover_timeout_secs):
    seen = ObservedAbsences(recover_timeout_secs=recover_timeout_secs)
    seen.on_worker_end(1, status, 11)
    with pytest.raises(PeerFailedError, match=f"worker 1 {status}, and update rule sync needs all"):
        seen.stop.check()


def test_a_lost_worker_that_fails_in_the_end_ends_the_run():
    seen = ObservedAbsences()
    seen.on_worker_end(1, LOST, 11)
    seen.on_worker_end(1, FAILED, 11)
    with pytest.raises(PeerFailedError, match="worker 1 failed"):
        seen.stop.check()


@pytest.mark.parametrize("status", [LOST, INTERRUPTED, FAILED])
def test_updates_are_made_without_a_worker_while_enough_are_left(status):
    seen = ObservedAbsences(min_workers=2)
    seen.on_worker_end(2, status, 12)
    seen.pass_time(100)
    assert (seen.told, seen.stop.is_requested) == ([("left", 2, 12)], False)


def test_with_two_of_three_needed_the_first_of_two_lost_workers_to_return_is_enough():
    seen = ObservedAbsences(min_workers=2)
    seen.on_worker_end(2, LOST, 12)
    seen.on_worker_end(1, LOST, 11)
    assert seen.told == [("left", 2, 12)]
    assert seen.said == ["worker 1 lost, and update rule sync needs 2 workers; waiting up to 60 s for it to rejoin"]
    seen.on_worker_start(2)
    assert seen.told == [("left", 2, 12), ("came", 2), ("left", 1, 11)]  # otherwise updates would wait for three
    seen.pass_time(100)
    assert not seen.stop.is_requested


def test_a_worker_that_is_done_is_not_waited_for_and_is_not_missed():
    seen = ObservedAbsences()
    seen.on_worker_end(1, DONE, 11)
    seen.on_worker_end(2, DONE, 12)
    assert seen.told == [("left", 1, 11), ("left", 2, 12)]
    assert seen.said == []


@pytest.mark.parametrize(("status", "error"), [(LOST, PeerLostError), (INTERRUPTED, PeerFailedError)])
def test_workers_that_are_joined_by_collectives_stop_at_once(status, error):
    seen = ObservedAbsences(has_service=False, needs_all=True)
    seen.on_worker_end(1, status, 11)
    with pytest.raises(error, match=f"worker 1 {status}, and update rule sync needs all"):
        seen.stop.check()


@pytest.mark.parametrize("has_service", [True, False])
@pytest.mark.parametrize("status", [LOST, INTERRUPTED])
def test_a_long_step_is_not_a_stall_while_a_worker_may_come_back(has_service, status):
    seen = ObservedAbsences(has_service=has_service, min_workers=2)
    seen.pass_time(5)
    assert seen.waited_at == 0.0
    seen.on_worker_end(1, status, 11)
    seen.pass_time(50)
    assert seen.waited_at == seen.now == 55.0
    seen.pass_time(30)
    assert seen.waited_at == 5 + 60.0  # the wait for a preempted machine has a limit
    seen.on_worker_end(2, status, 12)
    seen.pass_time(3)
    seen.on_worker_start(2)
    seen.pass_time(10)
    assert seen.waited_at == 88.0
