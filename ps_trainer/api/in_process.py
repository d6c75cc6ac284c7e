"""A training whose ps tasks and workers are threads of this process, each with a real server of TensorFlow."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ps_trainer.api.callbacks import StepRecorder
from ps_trainer.api.job import Job
from ps_trainer.api.plan import TrainingPlan
from ps_trainer.api.result import Result
from ps_trainer.api.servers import ServerSet
from ps_trainer.api.task_thread import TaskThread
from ps_trainer.config import COLOCATED
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, Interrupted, LostError, PeerFailedError, TrainingError
from ps_trainer.runtime.ps import PsTask
from ps_trainer.training import components as components_lib
from ps_trainer.training import one_process
from ps_trainer.training import task as task_lib
from ps_trainer.training.chief import Chief

# Time for the other tasks to end after one has failed, which they learn from the ps tasks; then they are stopped.
_FAILED_SECS = 30.0
# Time for the ps tasks to learn that the workers have ended. A ps task that no worker has joined does not.
_UNJOINED_SECS = 2.0
_POLL_SECS = 0.1


def start(plan: TrainingPlan, num_ps: int, num_workers: int) -> TaskJob:
    """Starts a training on a cluster of threads.

    Args:
        plan: The training.
        num_ps: Number of ps tasks; 0 = the workers hold the parameters, or this process trains alone, without servers.
        num_workers: Number of workers.

    Raises:
        UsageError: The components, the data or the checkpoints do not fit the run; nothing was started.
        ClusterConfigError: This machine has too few free ports.
    """
    config = plan.config
    task_lib.check_surroundings(config)
    recorder = StepRecorder(plan.callbacks)
    if not num_ps and config.placement != COLOCATED:
        return _start_alone(plan, recorder)
    servers = ServerSet.take(num_ps, num_workers, config)
    try:
        workers = []
        trace_model = None
        for index in range(num_workers):
            loaded = components_lib.load(config, num_workers, plan.objects)
            trace_model = trace_model or loaded.trace_model
            loaded = loaded._replace(trace_model=trace_model)  # one build of the model shows all workers its variables
            # Also builds the model: its errors are raised here, before a task takes part in a run.
            cluster, observer = servers.task("worker", index), recorder.of_worker(index)
            workers.append(task_lib.create_worker(cluster, config, loaded, servers.server_of, observer=observer))
        ps_tasks = [servers.task("ps", index) for index in range(num_ps)]
        serving = [PsTask(cluster, config, servers.server_of(cluster, config)) for cluster in ps_tasks]
    except BaseException:
        servers.give_back(is_sound=True)  # no task has run on them
        raise
    threads = [
        *(TaskThread(f"ps-{index}", ps.serve) for index, ps in enumerate(serving)),
        *(TaskThread(f"worker-{index}", worker.work) for index, worker in enumerate(workers)),
    ]
    chief = workers[0] if isinstance(workers[0], Chief) else None
    return TaskJob(
        [thread.start() for thread in threads],
        lambda: _result(chief, recorder, config.logdir),
        servers.give_back,
    )


def _start_alone(plan: TrainingPlan, recorder: StepRecorder) -> TaskJob:
    """Starts a training in one thread, which holds the parameters itself."""
    one_process.prepare(plan.config)
    loaded = components_lib.load(plan.config, 1, plan.objects)
    chief = one_process.create_chief(plan.config, loaded, observer=recorder.of_worker(0))
    thread = TaskThread("worker-0", chief.work).start()
    return TaskJob([thread], lambda: _result(chief, recorder, plan.config.logdir), _release_nothing)


def _release_nothing(*, is_sound: bool) -> None:
    """Does nothing: a process that trains alone has no servers."""


class Release(Protocol):
    """Gives back what tasks have used."""

    def __call__(self, *, is_sound: bool) -> None:
        """Gives back what the tasks have used, once, when all have ended; `is_sound` says whether all ended well."""


class TaskJob(Job):
    """Tasks that are threads of this process.

    Args:
        threads: The tasks, which run.
        get_result: Function that returns the result of tasks that are done.
        release: Function that is called once, when all tasks have ended.
    """

    def __init__(self, threads: Sequence[TaskThread], get_result: Callable[[], Result], release: Release):
        self._threads = threads
        # The ps tasks end when all workers have; until then the chief needs them for its checkpoint.
        self._first_to_stop = [thread for thread in threads if not thread.name.startswith("ps-")] or list(threads)
        self._get_result = get_result
        self._release = release
        self._is_released = False

    @property
    def is_running(self) -> bool:
        """Whether a task has not ended yet."""
        return any(thread.is_running for thread in self._threads)

    def stop(self, signum: int = signal.SIGTERM) -> None:
        """Asks the tasks to end; the chief saves a checkpoint."""
        for thread in self._first_to_stop:
            thread.stop.request(Interrupted(signum))

    def _wait_for_end(self, timeout_secs: float | None) -> bool:
        deadline = None if timeout_secs is None else time.monotonic() + timeout_secs
        while running := [thread for thread in self._threads if thread.is_running]:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return False
            self._stop_waiting(running, now)
            running[0].join(_POLL_SECS if deadline is None else min(_POLL_SECS, deadline - now))
        return True

    def _stop_waiting(self, running: Sequence[TaskThread], now: float) -> None:
        """Stops tasks that wait for others which have ended."""
        failed = _first_failure(self._threads)
        if failed is not None and failed.ended_at is not None and now - failed.ended_at > _FAILED_SECS:
            for thread in running:
                thread.stop.request(PeerFailedError(f"{failed.name} failed: {failed.error}"))
        reason = self._first_to_stop[0].stop.signal
        last = max(now if one.is_running else one.ended_at or 0.0 for one in self._first_to_stop)
        if reason is not None and now - last > _UNJOINED_SECS:
            for thread in running:
                thread.stop.request(reason)

    def _finish(self) -> None:
        if self._is_released or self.is_running:
            return
        self._is_released = True
        self._release(is_sound=all(thread.ended_well and thread.code == EXIT_DONE for thread in self._threads))

    def _result(self) -> Result:
        self._finish()
        failed = _first_failure(self._threads)
        if failed is not None:
            raise _training_error(failed) from failed.error
        for thread in self._threads:
            if thread.is_given_up:
                raise TrainingError(
                    f"{thread.name} did not stop, because a call into TensorFlow does not return; restart this process"
                    " before the next training",
                    task=thread.name,
                    cause=type(thread.stop.reason).__name__,
                )
        return self._get_result()


def _result(chief: Chief | None, recorder: StepRecorder, logdir: str | None) -> Result:
    summary = chief.summary if chief is not None else None
    return Result(
        summary=summary.as_json() if summary is not None else {},
        history=tuple(recorder.history),
        variables=chief.final_values if chief is not None else {},
        stop_reason=recorder.reason_to_end,
        logdir=logdir,
    )


def _first_failure(threads: Sequence[TaskThread]) -> TaskThread | None:
    """Returns the task that failed first; one that failed only because of another task comes after all others."""

    def order(thread: TaskThread) -> tuple[bool, float]:
        return isinstance(thread.error, (PeerFailedError, LostError)), thread.ended_at or 0.0

    return min((thread for thread in threads if thread.error is not None), key=order, default=None)


def _training_error(failed: TaskThread) -> TrainingError:
    error, cause = failed.error, type(failed.error).__name__
    if isinstance(error, Interrupted):
        message = f"the run was stopped: {failed.name} {error}"
    else:
        message = f"{failed.name} failed: {cause}: {error}"
    return TrainingError(message, exit_code=getattr(error, "exit_code", EXIT_FAILED), task=failed.name, cause=cause)
