"""A job of threads ends when it is stopped, also before a worker has joined its ps task."""

from __future__ import annotations

import pytest

from ps_trainer.api.in_process import TaskJob
from ps_trainer.api.result import Result
from ps_trainer.api.task_thread import TaskThread
from ps_trainer.errors import Interrupted, TrainingError
from ps_trainer.runtime.job_runner import StopRequest

SECS = 60.0  # a ps task waits for its first worker as long


def until_stopped(stop: StopRequest) -> int:
    stop.wait(SECS)
    stop.check()
    return 0


def test_a_ps_task_whose_workers_ended_before_they_joined_ends_with_them():
    threads = [TaskThread(name, until_stopped).start() for name in ("ps-0", "ps-1", "worker-0", "worker-1")]
    released = []
    job = TaskJob(threads, lambda: Result({}, (), {}, None, None), lambda is_sound: released.append(is_sound))
    job.stop()
    job.close(SECS / 2)
    assert not job.is_running
    assert [str(thread.stop.reason) for thread in threads] == ["ended by SIGTERM"] * 4
    assert released == [False]
    with pytest.raises(TrainingError, match="the run was stopped: .* ended by SIGTERM"):
        job.wait()


def test_a_ps_task_that_ends_after_its_workers_is_not_stopped():
    worker = TaskThread("worker-0", until_stopped)

    def serve(stop: StopRequest) -> int:
        worker.join(SECS)
        return 0 if not stop.is_requested else 1

    ps = TaskThread("ps-0", serve)
    job = TaskJob([ps.start(), worker.start()], lambda: Result({}, (), {}, None, None), lambda is_sound: None)
    job.stop()
    job.close(SECS / 2)
    assert ps.code == 0 and isinstance(worker.error, Interrupted)
