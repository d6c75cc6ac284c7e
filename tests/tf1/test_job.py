"""A script's job that does not end in time after a stop request."""

from __future__ import annotations

import threading

import pytest

from ps_trainer import tf1 as train
from ps_trainer.errors import PeerFailedError
from ps_trainer.runtime import supervise
from ps_trainer.tf1 import worker
from tests.tf1.in_process import Task, counter, start


def test_a_job_that_hangs_while_the_script_leaves_it_gives_the_reason_and_ends_no_process(monkeypatch):
    may_close = threading.Event()
    close = worker._close

    def close_late(session):
        if not session._on_close.__self__.is_chief:
            may_close.wait()
        close(session)

    monkeypatch.setattr(supervise, "EXIT_SECS", 0.5)
    monkeypatch.setattr(worker, "_close", close_late)

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
