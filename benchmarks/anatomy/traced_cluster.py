"""Trains on a cluster of threads in this process, and records what the steps of its workers make.

The servers are real ones, and the tasks run the same code as in separate processes. Only the messages' names and
sizes, and the ops, are read from such a run: its times are those of tasks that share one process.
"""

from __future__ import annotations

import time

from benchmarks.anatomy import step_anatomy
from benchmarks.anatomy.session_recorder import SessionRecorder
from benchmarks.anatomy.step_anatomy import StepAnatomy
from ps_trainer.api.servers import ServerSet
from ps_trainer.api.task_thread import TaskThread
from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted, RunError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.ps import PsTask
from ps_trainer.training import components as components_lib
from ps_trainer.training.chief import Chief
from ps_trainer.training.graph_parts import step_calls
from ps_trainer.training.worker import Worker
from ps_trainer.training.worker_progress import WorkerProgress

FIRST_STEP, NUM_STEPS = 5, 10
"""Steps of each worker that are recorded. The first ones are left out, as TensorFlow prepares the graphs in them."""

NUM_CALLS = 3
"""Calls that are recorded if each makes several steps. The first one is left out."""

_POLL_SECS = 0.05
_DEADLINE_SECS = 180.0
_END_SECS = 60.0
_SIGTERM = 15


def trace(config: TrainConfig, num_ps: int, num_workers: int, worker: int) -> StepAnatomy:
    """Trains until the steps are recorded; returns the step of one worker.

    The records of the others are not read: a gap in a call that they made once would fail a step that has none.

    Args:
        config: Settings of the run, checked. It should not end before 20 steps of each worker, or five calls.
        num_ps: Number of ps tasks.
        num_workers: Number of workers.
        worker: Index of the worker.

    Raises:
        RunError: A task failed, the steps were not made in time, or the record of this worker has gaps.
    """
    per_call = _steps_per_call(config, num_workers)
    first_step, num_steps = (FIRST_STEP, NUM_STEPS) if per_call == 1 else (per_call, NUM_CALLS * per_call)
    servers = ServerSet.take(num_ps, num_workers, config)
    with SessionRecorder(first_step, num_steps) as recorder:
        traced = _TracedCluster(config, servers, recorder)
        try:
            # Then the last recorded call has ended.
            traced.wait_for_steps(first_step + num_steps + per_call - 1)
        finally:
            is_sound = traced.end()
            servers.give_back(is_sound=is_sound)
    made = [call for call in recorder.calls if call.worker == worker]
    num_made = max(call.step + call.num_steps for call in made) - min(call.step for call in made)
    return step_anatomy.of_worker(worker, made, num_made)


def _steps_per_call(config: TrainConfig, num_workers: int) -> int:
    """Returns the number of steps that a call makes if nothing ends it before."""
    rule = components_lib.load(config, num_workers).rule
    if not step_calls.may_hold_several(config, rule, has_hooks=False):
        return 1
    return config.steps_per_call or step_calls.AUTOMATIC_STEPS


class _TracedCluster:
    """The tasks of a cluster, whose workers make steps until `end`."""

    def __init__(self, config: TrainConfig, servers: ServerSet, recorder: SessionRecorder):
        self._recorder = recorder
        self._num_workers = len(servers.jobs["worker"])
        self._progress: list[list[WorkerProgress]] = [[] for _ in range(self._num_workers)]
        self._threads: list[TaskThread] = []
        for index in range(len(servers.jobs.get("ps", ()))):
            cluster = servers.task("ps", index)
            self._threads.append(
                TaskThread(cluster.task_name, PsTask(cluster, config, servers.by_task[cluster.task_name]).serve)
            )
        for index in range(self._num_workers):
            self._threads.append(self._worker_thread(config, servers, index))
        for thread in self._threads:
            thread.start()

    def wait_for_steps(self, num_steps: int) -> None:
        """Waits until each worker has made `num_steps` steps."""
        deadline = time.monotonic() + _DEADLINE_SECS
        while min(self._count_steps(index) for index in range(self._num_workers)) < num_steps:
            for thread in self._threads:
                if not thread.is_running:
                    raise RunError(f"{thread.name} ended before the steps were recorded: {thread.error}")
            if time.monotonic() > deadline:
                counts = [self._count_steps(index) for index in range(self._num_workers)]
                raise RunError(f"the workers made {counts} steps within {_DEADLINE_SECS:g} s; {num_steps} are needed")
            time.sleep(_POLL_SECS)

    def end(self) -> bool:
        """Ends all tasks; returns whether their servers can be used again."""
        # The ps tasks end when all workers have.
        for thread in self._threads:
            if thread.name.startswith("worker"):
                thread.stop.request(Interrupted(_SIGTERM))
        deadline = time.monotonic() + _END_SECS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        # An interrupted worker raises; its servers would be sound, but a blocked op may still wait on them.
        return all(thread.ended_well for thread in self._threads)

    def _worker_thread(self, config: TrainConfig, servers: ServerSet, index: int) -> TaskThread:
        cluster = servers.task("worker", index)
        components = components_lib.load(config, self._num_workers)

        def create_progress(batch_size: int) -> WorkerProgress:
            self._progress[index].append(WorkerProgress(batch_size))
            return self._progress[index][-1]

        worker_class = Chief if cluster.is_chief else Worker
        worker = worker_class(
            cluster, config, components, servers.by_task[cluster.task_name], create_progress=create_progress
        )

        def work(stop: StopRequest) -> int:
            self._recorder.watch_this_thread(index, lambda: self._count_steps(index))
            return worker.work(stop)

        return TaskThread(cluster.task_name, work)

    def _count_steps(self, index: int) -> int:
        return self._progress[index][-1].local_steps if self._progress[index] else 0
