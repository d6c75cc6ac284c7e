"""A job ends with its exit code, stops at once on a signal, and never ends later than the last deadline."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from ps_trainer.config import PARENT_PID_VARIABLE
from ps_trainer.errors import ClusterConfigError, Interrupted, NanLossError, PeerFailedError, PsLostError
from ps_trainer.runtime import job_runner
from ps_trainer.runtime.job_runner import StopRequest, call_until_final, call_until_stopped, run_job

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_SECS = 30.0


@pytest.fixture(autouse=True)
def short_stages(monkeypatch):
    monkeypatch.setattr(job_runner, "RELEASE_SECS", 0.02)
    monkeypatch.setattr(job_runner, "ABORT_SECS", 0.15)
    monkeypatch.setattr(job_runner, "EXIT_SECS", 0.3)
    monkeypatch.delenv(PARENT_PID_VARIABLE, raising=False)


def raising(error):
    def job(stop):
        raise error

    return job


def refuse_to_exit(code):
    raise AssertionError(f"the process would have ended with {code}")


@pytest.mark.parametrize("code", [0, 1, 7])
def test_returns_the_jobs_code(code):
    assert run_job(lambda stop: code, exit_process=refuse_to_exit) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ClusterConfigError("why"), 2),
        (NanLossError("why"), 1),
        (Interrupted(signal.SIGTERM), 128 + 15),
        (RuntimeError("a defect"), 1),
        (KeyboardInterrupt(), 1),
    ],
)
def test_an_error_becomes_its_exit_code(error, code):
    assert run_job(raising(error), exit_process=refuse_to_exit) == code


def test_the_job_runs_off_the_main_thread():
    seen = []
    run_job(lambda stop: seen.append(threading.current_thread()) or 0)
    assert seen[0] is not threading.main_thread()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_signal_handlers_are_restored(signum):
    before = signal.getsignal(signum)
    run_job(lambda stop: 0)
    run_job(raising(RuntimeError("why")))
    assert signal.getsignal(signum) is before


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_job_with_its_code(signum):
    def job(stop):
        os.kill(os.getpid(), signum)
        assert stop.wait(DEADLINE_SECS)
        stop.check()
        return 0

    assert run_job(job, exit_process=refuse_to_exit) == 128 + signum


def test_a_job_that_ends_well_after_a_signal_keeps_its_code():
    def job(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        stop.wait(DEADLINE_SECS)
        return 0

    assert run_job(job, exit_process=refuse_to_exit) == 0


@pytest.mark.parametrize("kind", ["release", "abort"])
def test_a_blocked_job_is_released_in_stages(kind):
    """The release comes first; the abort follows only for calls that the release does not end."""
    called = []

    def job(stop):
        freed = threading.Event()
        stop.on_release(lambda: called.append("release"))
        stop.on_abort(lambda: called.append("abort"))
        (stop.on_release if kind == "release" else stop.on_abort)(freed.set)
        stop.request(PeerFailedError("why"))
        assert freed.wait(DEADLINE_SECS)
        raise RuntimeError("the blocking call failed") if kind == "abort" else stop.reason

    assert run_job(job, exit_process=refuse_to_exit) == 1
    assert called == (["release"] if kind == "release" else ["release", "abort"])


def test_a_stop_request_leaves_a_call_behind():
    stop, freed = StopRequest(), threading.Event()
    stop.request(PeerFailedError("why"))
    with pytest.raises(PeerFailedError, match="why"):
        call_until_stopped(lambda: freed.wait(DEADLINE_SECS), stop)
    freed.set()
    assert call_until_stopped(lambda: 7, StopRequest()) == 7
    with pytest.raises(ZeroDivisionError):
        call_until_stopped(lambda: 1 // 0, StopRequest())


def test_a_call_that_the_job_needs_ends_before_the_job_rejoins_and_is_left_behind_at_the_end():
    stop, freed = StopRequest(), threading.Event()
    stop.request(PsLostError("ps-0 is lost"))
    threading.Timer(0.5, freed.set).start()
    assert call_until_final(lambda: freed.wait(DEADLINE_SECS), stop)  # False would be a wait until the deadline
    stop.request(Interrupted(signal.SIGTERM))
    never = threading.Event()
    with pytest.raises(Interrupted):
        call_until_final(lambda: never.wait(DEADLINE_SECS), stop)
    never.set()


def test_a_callback_that_fails_or_blocks_delays_no_other():
    def job(stop):
        freed = threading.Event()
        forever = threading.Event()
        stop.on_release(forever.wait)
        stop.on_release(lambda: 1 // 0)
        stop.on_release(freed.set)
        stop.request(PeerFailedError("why"))
        assert freed.wait(DEADLINE_SECS)
        return 0

    assert run_job(job, exit_process=refuse_to_exit) == 0


def test_the_process_ends_when_the_job_ignores_everything():
    release = threading.Event()

    def job(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        release.wait(DEADLINE_SECS)
        return 0

    codes = []

    def exit_process(code):
        codes.append(code)
        release.set()  # a real exit would not return

    run_job(job, exit_process=exit_process)
    assert codes[0] == 128 + 15


def test_a_task_whose_launcher_has_ended_stops(monkeypatch):
    monkeypatch.setenv(PARENT_PID_VARIABLE, str(os.getppid() + 1))

    def job(stop):
        assert stop.wait(DEADLINE_SECS)
        stop.check()

    assert run_job(job, exit_process=refuse_to_exit) == 128 + 15


def test_a_task_whose_launcher_runs_continues(monkeypatch):
    monkeypatch.setenv(PARENT_PID_VARIABLE, str(os.getppid()))
    assert run_job(lambda stop: 1 if stop.wait(0.3) else 0) == 0


class TestStopRequest:
    def test_the_first_reason_wins(self):
        stop = StopRequest()
        stop.check()
        assert not stop.is_requested
        first = PeerFailedError("first")
        stop.request(first)
        stop.request(PeerFailedError("second"))
        assert stop.is_requested and stop.reason is first
        with pytest.raises(PeerFailedError, match="first"):
            stop.check()

    def test_a_wait_ends_as_soon_as_a_stop_is_requested(self):
        stop = StopRequest()
        assert not stop.wait(0.0)
        threading.Timer(0.01, lambda: stop.request(PeerFailedError("why"))).start()
        assert stop.wait(DEADLINE_SECS)


BLOCKED = """
import signal, sys, threading
from ps_trainer.runtime import job_runner
job_runner.RELEASE_SECS, job_runner.ABORT_SECS, job_runner.EXIT_SECS = 0.05, 0.1, 0.3
def job(stop):
    print("started", flush=True)
    threading.Event().wait()
sys.exit(job_runner.run_job(job))
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_real_process_that_is_blocked_ends_by_a_signal(signum):
    process = subprocess.Popen([sys.executable, "-c", BLOCKED], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "started\n"
        process.send_signal(signum)
        assert process.wait(DEADLINE_SECS) == 128 + signum
    finally:
        process.kill()
        process.communicate()


class TestRenew:
    def test_a_loss_is_forgotten_together_with_its_callbacks(self):
        stop = StopRequest()
        called = []
        stop.on_release(lambda: called.append("release"))
        stop.request(PsLostError("ps-0 was lost"))
        stop.renew()
        assert not stop.is_requested and stop.reason is None and stop.rounds == 1
        stop.check()
        stop.call("release")
        assert called == []

    def test_only_a_signal_concerns_the_part_of_a_job_that_starts_over(self):
        stop = StopRequest()
        stop.on_abort(lambda: pytest.fail("this callback belongs to the first part"))
        stop.request(PeerFailedError("the chief ended"))
        stop.start_over()
        assert (stop.reason, stop.is_requested, stop.rounds) == (None, False, 1)
        stop.call("abort")
        stop.request(PeerFailedError("the chief ended"))
        stop.request(Interrupted(signal.SIGTERM))
        assert stop.signal is not None
        stop.start_over()
        assert stop.is_requested and stop.rounds == 1

    def test_a_signal_overrides_an_earlier_loss(self):
        stop = StopRequest()
        stop.request(PsLostError("ps-0 was lost"))
        stop.request(Interrupted(15))
        with pytest.raises(Interrupted):
            stop.renew()
        with pytest.raises(Interrupted):
            stop.check()

    def test_a_loss_after_another_reason_changes_nothing(self):
        stop = StopRequest()
        stop.request(NanLossError("nan"))
        stop.request(PsLostError("ps-0 was lost"))
        with pytest.raises(NanLossError):
            stop.renew()
