"""`join`: runs one task, in a thread of this process, of a cluster that somebody else has started."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.api import settings
from ps_trainer.api.callbacks import Callback
from ps_trainer.api.job import Job
from ps_trainer.cluster import sources
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.errors import ArgumentError, ArgumentTypeError

_TASK = re.compile(r"(\w+)[:-](\d+)")
_FORM = "write 'worker:1', or a pair ('worker', 1)"


def join(
    cluster: Any = None,
    task: Any = None,
    *,
    model: Any = "cnn",
    data: Any = "digits",
    test_data: Any = None,
    callbacks: Callback | Sequence[Callback] = (),
    **options: Any,
) -> Job:
    """Runs a task of a cluster in a thread of this process, and returns at once.

    The other tasks may run anywhere: started by `run_ps.py` and `run_worker.py`, by `ps_trainer task`, or by `join`.
    All workers need the same settings, as on the command line. The task's server stays until this process ends.

    Args:
        cluster: Addresses by job, `{"ps": ["h0:2222"], "worker": ["h1:2222", "h2:2222"]}`; a `tf.train.ClusterSpec`;
            the path of a JSON file; or None for the environment variable TF_CONFIG.
        task: The task, "worker:1"; None = the file or TF_CONFIG names it.
        model: As for `train`.
        data: As for `train`.
        test_data: As for `train`.
        callbacks: As for `train`; called for the steps of this task. `StopTraining` in the chief ends the run, in
            another worker only its own steps.
        **options: Settings by the names of their flags.

    Returns:
        The job. `wait` returns a result with the summary, if this task is the chief.

    Raises:
        ArgumentTypeError: An argument is unknown or of a wrong type; also a TypeError.
        ArgumentError: The cluster or an argument is wrong, or the port is in use; also a ValueError.
    """
    with settings.python_errors():
        cluster_config = _cluster_config(cluster, task)
    from ps_trainer.runtime import environment, tensorflow_import

    environment.prepare(is_ps=False)
    tensorflow_import.load()

    from ps_trainer.api import joined_task, plan

    training_plan = plan.create(
        "join()",
        model=model,
        data=data,
        test_data=test_data,
        callbacks=callbacks,
        num_workers=cluster_config.num_workers,
        given=options,
        is_in_process=True,
    )
    with settings.python_errors():
        return joined_task.start(cluster_config, training_plan)


def _cluster_config(cluster: Any, task: Any) -> ClusterConfig:
    """Returns the cluster and the place of the task in it."""
    if isinstance(cluster, ClusterConfig):
        return cluster
    job_name, index = _parse_task(task)
    if cluster is None:
        text = os.environ.get(sources.TF_CONFIG, "")
        if not text.strip():
            raise ArgumentError("join() needs the cluster: give its addresses by job, a JSON file, or set TF_CONFIG")
        return sources.from_tf_config(text)
    if isinstance(cluster, (str, os.PathLike)):
        return sources.from_file(os.fspath(cluster), job_name, index)
    jobs = cluster.as_dict() if hasattr(cluster, "as_dict") else cluster
    if not isinstance(jobs, Mapping):
        raise ArgumentTypeError(
            f"cluster={cluster!r} is of type {type(cluster).__name__}; give a dict of addresses by job"
        )
    if job_name is None or index is None:
        raise ArgumentError(f"join() needs the task, whose part of the cluster this is; {_FORM}")
    return ClusterConfig(jobs=jobs, job_name=job_name, task_index=index, source="join()")


def _parse_task(task: Any) -> tuple[str | None, int | None]:
    if task is None:
        return None, None
    if isinstance(task, str):
        match = _TASK.fullmatch(task)
        if match is None:
            raise ArgumentError(f"task={task!r} is not a task; {_FORM}")
        return match[1], int(match[2])
    if isinstance(task, (tuple, list)) and len(task) == 2 and isinstance(task[0], str):
        return task[0], settings.convert("task", int, task[1])
    raise ArgumentTypeError(f"task={task!r} is of type {type(task).__name__}; {_FORM}")
