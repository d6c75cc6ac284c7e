"""The end of a script's job where the script itself does not end it well."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from ps_trainer import tf1 as train
from ps_trainer.errors import Interrupted, OptionError, PeerFailedError
from ps_trainer.runtime import job_runner
from ps_trainer.tf1 import script_worker, signals
from tests.tf1.in_process import Task, counter, start


def test_a_job_that_hangs_while_the_script_leaves_it_gives_the_reason_and_ends_no_process(monkeypatch):
    may_close = threading.Event()
    close = script_worker._close

    def close_late(session):
        if not session._on_close.__self__.is_chief:
            may_close.wait()
        close(session)

    monkeypatch.setattr(job_runner, "EXIT_SECS", 0.5)
    monkeypatch.setattr(script_worker, "_close", close_late)

    def script(task: Task):
        _, _, train_op = counter(task)
        with train.MonitoredTrainingSession(task.server.target, task.is_chief) as session:
            session.run(train_op)
            if task.is_chief:
                raise ZeroDivisionError("of the chief")
            while True:
                session.run(train_op)

    job = start(script)
    try:
        with pytest.raises(PeerFailedError, match="of the chief"):
            job.workers[1].end()
    finally:
        may_close.set()
    with pytest.raises(ZeroDivisionError):
        job.workers[0].end()


def test_a_worker_that_fails_before_its_session_ends_the_ps_tasks(monkeypatch):
    def script(task: Task):
        monkeypatch.setattr(sys, "last_value", OptionError("of the graph"), raising=False)
        task.server._report_failure()  # as at the end of its process

    job = start(script, num_workers=1)
    job.workers[0].end()
    with pytest.raises(PeerFailedError, match="a worker failed"):
        job.ps[0].end()


def test_a_signal_ends_the_sessions_of_threads_and_then_the_main_thread():
    has_begun = threading.Event()

    def script(task: Task):
        _, _, train_op = counter(task)
        with train.MonitoredTrainingSession(task.server.target, task.is_chief) as session:
            while True:
                session.run(train_op)
                has_begun.set()

    job = start(script, num_workers=1)
    assert has_begun.wait(100)
    with pytest.raises(Interrupted, match="SIGTERM"):
        signals._handle(signal.SIGTERM, None)
    with pytest.raises(Interrupted, match="SIGTERM"):
        job.workers[0].end()
