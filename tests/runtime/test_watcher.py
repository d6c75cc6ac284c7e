"""A worker learns from the ps tasks how the others ended, and that a ps task is lost."""

from __future__ import annotations

import threading
import time

import pytest

from ps_trainer.errors import PeerFailedError, PsLostError, RunReplacedError, StalledError
from tests.testing.cluster import DEADLINE_SECS

from ps_trainer.runtime import watcher  # isort: skip - after the cluster's environment
from ps_trainer.runtime.run_record import FINAL, Hello, EndNotice, RunStatus, Status  # isort: skip
from ps_trainer.runtime.job_runner import StopRequest  # isort: skip
from tests.runtime.fakes import GONE, FakeControl, entry, ready_run, roster  # isort: skip

READY = ready_run(num_ps=3)


class Watched:
    """A watcher over fake ps tasks, for worker 1 of run "r", with a time that the test moves."""

    def __init__(self, *controls, on_poll=lambda: None, on_worker_end=None, lost_after_secs=30.0, poll_secs=0.001):
        self.controls = controls
        self.now = 0.0
        self.started = []
        self.returned = []
        self.ended = []
        self.stop = StopRequest()
        self.num_looks = 0

        def look():
            self.num_looks += 1
            on_poll()

        self._watcher = watcher.Watcher(
            controls, READY, 1, self.stop,
            watcher.Reactions(
                on_worker_start=lambda index: self.started.append(index),
                on_worker_return=lambda index: self.returned.append(index),
                on_worker_end=on_worker_end or (lambda index, status, join_number: self.ended.append((index, status))),
                on_poll=look,
            ),
            lost_after_secs=lost_after_secs, poll_secs=poll_secs, time_fn=lambda: self.now,
        )  # fmt: skip

    def __enter__(self):
        self._watcher.start()
        return self

    def __exit__(self, *_):
        self._watcher.close()

    def __getattr__(self, name):
        return getattr(self._watcher, name)

    def wait_for_end(self):
        """Returns when the watcher's thread has ended."""
        self.wait_for(lambda: not self._watcher._thread.is_alive())

    def poll(self, times=3):
        """Returns when every ps task has been polled `times` more times and the watcher has seen the answers."""
        wanted = [ps.num_reads + times for ps in self.controls]
        self.wait_for(lambda: all(ps.num_reads >= reads for ps, reads in zip(self.controls, wanted, strict=True)))
        self.look()

    def look(self):
        """Returns when the watcher has looked at everything once more."""
        wanted = self.num_looks + 2
        self.wait_for(lambda: self.num_looks >= wanted)

    def pass_time(self, secs):
        """Moves the time in steps too short to count as a pause of this process."""
        for _ in range(secs):
            self.now += 1.0
            self.look()

    def wait_for(self, condition):
        """Returns when the condition holds."""
        deadline = threading.Event()
        timer = threading.Timer(DEADLINE_SECS, deadline.set)
        timer.start()
        while not condition():
            assert not deadline.wait(0.001), "the watcher does not poll"
        timer.cancel()


def test_nothing_happens_while_all_train():
    ps_0 = FakeControl(run=READY, roster=roster("r", w0="training", w1="training"))
    with Watched(ps_0) as watched:
        watched.poll()
        assert not watched.stop.is_requested
        assert watched.run_status == RunStatus.READY
        assert {index: entry.status for index, entry in watched.roster.items()} == {0: "training", 1: "training"}
    assert watched.ended == []


@pytest.mark.parametrize("ps", [0, 1])
def test_a_ps_that_was_told_to_end_ends_the_job(ps):
    controls = [FakeControl(0, run=READY), FakeControl(1)]
    controls[ps].fields["notice"] = EndNotice(reason="ps-1 was ended by SIGTERM")
    with Watched(*controls) as watched:
        watched.poll()
    assert isinstance(watched.stop.reason, PeerFailedError)
    assert "the job ends because ps-1 was ended by SIGTERM" in str(watched.stop.reason)


@pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED])
def test_a_chief_that_did_not_end_well_ends_the_job(status):
    ps_0 = FakeControl(run=READY, roster=roster("r", w1="training"))
    ps_0.fields["roster"].workers[0] = entry(status, reason="the loss is nan")
    with Watched(ps_0) as watched:
        watched.poll()
    assert isinstance(watched.stop.reason, PeerFailedError)
    assert f"the chief ended: worker 0 {status}: the loss is nan" in str(watched.stop.reason)


def test_a_failed_run_ends_the_job_even_before_the_chief_has_reported_it():
    ps_0 = FakeControl(run=READY, roster=roster("r", w0="training", w1="training"))
    with Watched(ps_0) as watched:
        watched.poll()
        assert not watched.stop.is_requested
        ps_0.fields["run"] = READY.replace(status=RunStatus.ENDED, failure="worker 0 failed: the loss is nan")
        watched.poll()
    assert isinstance(watched.stop.reason, PeerFailedError)
    assert str(watched.stop.reason) == "the chief ended: worker 0 failed: the loss is nan"


def test_a_chief_that_is_done_ends_nothing():
    with Watched(FakeControl(run=READY, roster=roster("r", w0="done", w1="training"))) as watched:
        watched.poll()
    assert not watched.stop.is_requested


@pytest.mark.parametrize("status", FINAL)
def test_the_end_of_another_worker_is_reported_once(status):
    with Watched(FakeControl(run=READY, roster=roster("r", w0="training", w1="training", w2=status))) as watched:
        watched.poll(5)
    assert watched.ended == [(2, status)]
    assert not watched.stop.is_requested


@pytest.mark.parametrize("worker", [0, 2])
def test_a_lost_worker_is_reported_and_reported_again_when_it_is_back_and_when_it_has_failed(worker):
    ps_0 = FakeControl(run=READY, roster=roster("r", w1="training"))
    entries = ps_0.fields["roster"].workers
    with Watched(ps_0) as watched:
        seen = []
        for status in ("training", "lost", "training", "lost", "failed"):
            entries[worker] = entry(status, reason="no sign of life")
            watched.poll()
            seen.append((list(watched.started), list(watched.ended)))
        assert seen == [
            ([worker], []),
            ([worker], [(worker, "lost")]),
            ([worker] * 2, [(worker, "lost")]),
            ([worker] * 2, [(worker, "lost")] * 2),
            ([worker] * 2, [(worker, "lost")] * 2 + [(worker, "failed")]),
        ]
        assert watched.stop.is_requested == (worker == 0)  # only a failed chief ends the others


@pytest.mark.parametrize("seen", ["joined", "training"])
def test_a_worker_that_was_restarted_unnoticed_is_reported(seen):
    ps_0 = FakeControl(run=READY, roster=roster("r", w0="training"))
    entries = ps_0.fields["roster"].workers
    with Watched(ps_0) as watched:
        entries[2] = entry("training", joining=1)
        watched.poll()
        assert (watched.started, watched.returned) == ([0, 2], [])
        entries[2] = entry(seen, joining=2)
        watched.poll()
        entries[2] = entry("training", joining=2)
        watched.poll()
    assert (watched.started, watched.returned) == ([0, 2, 2], [2])


def test_a_worker_that_came_back_and_was_lost_between_two_polls_is_reported():
    ps_0 = FakeControl(run=READY, roster=roster("r", w0="training"))
    entries = ps_0.fields["roster"].workers
    told = []
    with Watched(ps_0, on_worker_end=lambda *said: told.append(said)) as watched:
        for join_number in (1, 2):
            entries[2] = entry("lost", reason="killed", joining=join_number)
            watched.poll()
    assert told == [(2, "lost", 1), (2, "lost", 2)]


def test_a_restarted_ps_is_lost_at_once():
    controls = [FakeControl(0, run=READY), FakeControl(1, hello=Hello(incarnation="second-1"))]
    with Watched(*controls) as watched:
        watched.poll()
    assert isinstance(watched.stop.reason, PsLostError)
    assert "ps-1 (host:2223) was restarted" in str(watched.stop.reason)


def test_a_restarted_run_ends_the_old_one():
    with Watched(FakeControl(run=READY.replace(run_id="other"))) as watched:
        watched.poll()
    assert isinstance(watched.stop.reason, RunReplacedError)


def test_its_own_end_is_not_reported():
    with Watched(FakeControl(run=READY, roster=roster("r", w1="failed"))) as watched:
        watched.poll()
    assert watched.ended == [] and not watched.stop.is_requested


def test_the_roster_of_another_run_is_ignored():
    with Watched(FakeControl(run=READY, roster=roster("other", w0="failed"))) as watched:
        watched.poll()
    assert watched.ended == [] and watched.roster == {} and watched.run_status is None


def test_only_ps_0_reports_workers():
    with Watched(FakeControl(0, run=READY), FakeControl(1, run=READY, roster=roster("r", w0="failed"))) as watched:
        watched.poll()
    assert not watched.stop.is_requested


def test_a_silent_ps_is_lost_only_after_a_while():
    controls = [FakeControl(0, run=READY), FakeControl(1)]
    with Watched(*controls) as watched:
        watched.poll()
        controls[1].error = GONE
        watched.poll()
        watched.pass_time(30)
        assert not watched.stop.is_requested
        watched.pass_time(1)
    assert isinstance(watched.stop.reason, PsLostError)
    assert "ps-1 (host:2223) has not answered for 31 s (socket closed)" in str(watched.stop.reason)


def test_a_worker_that_holds_none_of_the_parameters_is_not_lost_as_a_ps_task():
    """Of four workers with colocated parameters, the first three hold them, so that the run has three incarnations."""
    controls = [FakeControl(0, run=READY), FakeControl(1), FakeControl(2), FakeControl(3)]
    controls[3].fields["hello"] = Hello(incarnation="second-3")
    with Watched(*controls) as watched:
        watched.poll()
        controls[3].error = GONE
        watched.poll()
        watched.pass_time(40)
        assert not watched.stop.is_requested
        controls[3].fields["notice"] = EndNotice(reason="worker-3 was ended by SIGTERM")
        controls[3].error = None
        watched.poll()
    assert "worker-3 was ended by SIGTERM" in str(watched.stop.reason)


def test_an_answer_restarts_the_wait():
    ps_0 = FakeControl(run=READY)
    with Watched(ps_0) as watched:
        for _ in range(3):
            ps_0.error = GONE
            watched.poll()
            watched.pass_time(25)
            ps_0.error = None
            watched.poll()
    assert not watched.stop.is_requested


def test_a_ps_whose_calls_hang_is_lost_after_the_usual_time_and_hides_no_worker():
    ended = threading.Event()
    controls = [FakeControl(0, run=READY), FakeControl(1), FakeControl(2)]
    controls[1].read = lambda: ended.wait(DEADLINE_SECS)
    with Watched(*controls) as watched:
        watched.look()
        watched.pass_time(30)
        assert not watched.stop.is_requested
        controls[0].fields["roster"] = roster("r", w2="done")
        watched.wait_for(lambda: watched.ended == [(2, Status.DONE)])
        watched.pass_time(1)
        ended.set()
    assert str(watched.stop.reason) == "ps-1 (host:2223) has not answered for 31 s (a call to it does not return)"


def test_a_pause_of_this_process_is_not_a_silence_of_the_ps():
    ps_0 = FakeControl(run=READY)
    with Watched(ps_0) as watched:
        ps_0.error = GONE
        watched.poll()
        watched.pass_time(20)
        watched.now += 1000.0  # this process was frozen
        watched.look()
        watched.pass_time(10)
        assert not watched.stop.is_requested
        watched.pass_time(1)
    assert "has not answered for 31 s" in str(watched.stop.reason)


def test_an_error_of_the_poll_ends_the_job():
    def stalled():
        raise StalledError("no step")

    with Watched(FakeControl(run=READY), on_poll=stalled) as watched:
        watched.poll()
    assert isinstance(watched.stop.reason, StalledError)


def failing(error):
    def callback(index, status, join_number):
        raise error

    return callback


def test_a_loss_of_a_ps_task_in_a_callback_lets_the_job_continue():
    with Watched(FakeControl(run=READY, roster=roster("r", w2="done")), on_worker_end=failing(GONE)) as watched:
        assert watched.stop.wait(DEADLINE_SECS)
    assert isinstance(watched.stop.reason, PsLostError)


@pytest.mark.parametrize("error", [GONE, ValueError("a defect")])
def test_a_callback_that_fails_does_not_leave_the_job_unwatched(error):
    controls = [FakeControl(0, run=READY, roster=roster("r", w2="done")), FakeControl(1)]
    with Watched(*controls, on_worker_end=failing(error)) as watched:
        assert watched.stop.wait(DEADLINE_SECS)
        watched.look()
        controls[1].fields["notice"] = EndNotice(reason="ps-1 was ended by SIGTERM")
        watched.poll()
    if error is GONE:  # a final reason replaces one after which the job might have continued
        assert "ps-1 was ended by SIGTERM" in str(watched.stop.reason)
    else:
        assert watched.stop.reason is error


def test_a_hanging_callback_does_not_delay_close_and_none_is_called_after_it(monkeypatch):
    monkeypatch.setattr(watcher, "_CLOSE_SECS", 0.05)
    ended, called = threading.Event(), []

    def blocked(index, status, join_number):
        called.append(index)
        ended.wait(DEADLINE_SECS)

    ps_0 = FakeControl(run=READY, roster=roster("r", w0="done", w2="done"))
    with Watched(ps_0, on_worker_end=blocked) as watched:
        watched.wait_for(lambda: called)
    ended.set()
    watched.wait_for_end()
    assert called == [0]


def test_a_ps_task_is_asked_as_often_as_the_setting_says_and_three_times_before_it_counts_as_lost():
    ps_0 = FakeControl(run=READY)
    with Watched(ps_0, poll_secs=DEADLINE_SECS, lost_after_secs=3 * DEADLINE_SECS):
        time.sleep(0.05)
    assert ps_0.num_reads == 0
    with Watched(ps_0, poll_secs=DEADLINE_SECS, lost_after_secs=0.03) as watched:
        watched.wait_for(lambda: ps_0.num_reads >= 3)
