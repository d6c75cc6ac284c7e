"""Starts the task that `join` has described."""

from __future__ import annotations

from typing import Any

from ps_trainer.api.callbacks import StepRecorder
from ps_trainer.api.in_process import TaskJob
from ps_trainer.api.plan import TrainingPlan
from ps_trainer.api.result import Result
from ps_trainer.api.servers import JoinedServers
from ps_trainer.api.task_thread import TaskThread
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.ps import PsTask
from ps_trainer.training import components as components_lib
from ps_trainer.training import task as task_lib
from ps_trainer.training.chief import Chief
from ps_trainer.training.evaluator import EvaluatorTask

_servers = JoinedServers()


def start(cluster: ClusterConfig, plan: TrainingPlan) -> TaskJob:
    """Starts a task in a thread.

    Args:
        cluster: Cluster, and the place of the task in it.
        plan: Settings and objects of the run.

    Raises:
        UsageError: The components, the data or the checkpoints do not fit the run, or the port is in use.
    """
    config = plan.config
    task_lib.check_surroundings(config)
    recorder = StepRecorder(plan.callbacks)
    used: list[Any] = []

    def take_server(cluster: ClusterConfig, config: TrainConfig) -> Any:
        used.append(_servers.take(cluster, config))
        return used[0]

    def release(*, is_sound: bool) -> None:
        if used and is_sound:
            _servers.give_back(cluster, config, used[0])

    task = _create(cluster, plan, recorder, take_server)
    job = task.serve if isinstance(task, PsTask) else task.work
    return TaskJob(
        [TaskThread(cluster.task_name, job).start()], lambda: _result(task, recorder, config.logdir), release
    )


def _create(cluster: ClusterConfig, plan: TrainingPlan, recorder: StepRecorder, take_server: Any) -> Any:
    config = plan.config
    if cluster.job_name == "ps":
        return PsTask(cluster, config, take_server(cluster, config))
    loaded = components_lib.load(config, cluster.num_workers, plan.objects)
    if cluster.job_name == "evaluator":
        return EvaluatorTask(cluster, config, loaded)
    observer = recorder.of_worker(cluster.worker_index)
    return task_lib.create_worker(cluster, config, loaded, take_server, observer=observer)


def _result(task: Any, recorder: StepRecorder, logdir: str | None) -> Result:
    is_chief = isinstance(task, Chief)
    summary = task.summary.as_json() if is_chief and task.summary is not None else {}
    return Result(
        summary=summary,
        history=tuple(recorder.history),
        variables=task.final_values if is_chief else {},
        stop_reason=recorder.reason_to_end,
        logdir=logdir,
    )
