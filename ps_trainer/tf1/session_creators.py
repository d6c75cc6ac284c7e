"""Creators of sessions: `ChiefSessionCreator` and `WorkerSessionCreator`, whose sessions take part in the job."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.errors import OptionError
from ps_trainer.tf1 import saving, tasks
from ps_trainer.tf1.run_state import SetUp
from ps_trainer.tf1.script_job import ScriptJob, check_is_chief
from ps_trainer.tf1.tasks import Server

_MAX_WAIT_SECS = 30 * 60


class JobSessionCreator(tf.train.SessionCreator):
    """Creates the job, when the graph is complete, and then its sessions.

    Args:
        task: The task.
        scaffold: Ops that initialise the model; None for TensorFlow's defaults.
        checkpoint_dir: Folder of the checkpoints, or None.
        config: Configuration of the session, or None.
        start_secs: Longest wait for the other tasks; None = as the settings say.

    Attributes:
        job: The job, once a session was asked for.
    """

    def __init__(
        self,
        task: Server,
        scaffold: tf.train.Scaffold | None,
        checkpoint_dir: str | None,
        config: tf.ConfigProto | None,
        start_secs: float | None,
    ):
        self._task = task
        self._scaffold = scaffold or tf.train.Scaffold()
        self._checkpoint_dir = checkpoint_dir
        self._config = config
        self._start_secs = start_secs
        self.job: ScriptJob | None = None

    def create_session(self) -> tf.Session:
        """Returns the next session of the job."""
        if self.job is None:
            saving.use_one_file(self._scaffold)
            self._scaffold.finalize()
            set_up = SetUp(
                init_op=self._scaffold.init_op,
                init_feed_dict=self._scaffold.init_feed_dict,
                init_fn=self._scaffold.init_fn,
                local_init_op=self._scaffold.local_init_op,
                local_init_feed_dict=self._scaffold.local_init_feed_dict,
                ready_op=self._scaffold.ready_op,
                ready_for_local_init_op=self._scaffold.ready_for_local_init_op,
                saver=self._scaffold.saver,
                checkpoint_dir=self._checkpoint_dir,
            )
            graph = tf.get_default_graph()
            self.job = ScriptJob(self._task, graph, set_up, self._config, start_secs=self._start_secs)
        return self.job.next_session()


def ChiefSessionCreator(  # noqa: N802 - TensorFlow's name
    scaffold: tf.train.Scaffold | None = None,
    master: str = "",
    config: tf.ConfigProto | None = None,
    checkpoint_dir: str | None = None,
    checkpoint_filename_with_path: str | None = None,
) -> tf.train.SessionCreator:
    """Creates a `tf.train.ChiefSessionCreator` for `MonitoredSession`, from the same arguments.

    Raises:
        OptionError: This worker is not the chief, or a checkpoint is named by file.
    """
    task = tasks.task_at(master)
    if task is None:
        return tf.train.ChiefSessionCreator(scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path)
    check_is_chief(task, is_chief=True)
    if checkpoint_filename_with_path is not None:
        raise OptionError("checkpoint_filename_with_path: give checkpoint_dir, or restore in a Scaffold's init_fn")
    return JobSessionCreator(task, scaffold, checkpoint_dir, config, None)


def WorkerSessionCreator(  # noqa: N802 - TensorFlow's name
    scaffold: tf.train.Scaffold | None = None,
    master: str = "",
    config: tf.ConfigProto | None = None,
    max_wait_secs: int = _MAX_WAIT_SECS,
) -> tf.train.SessionCreator:
    """Creates a `tf.train.WorkerSessionCreator` for `MonitoredSession`, from the same arguments.

    Raises:
        OptionError: This worker is the chief.
    """
    task = tasks.task_at(master)
    if task is None:
        return tf.train.WorkerSessionCreator(scaffold, master, config, max_wait_secs)
    check_is_chief(task, is_chief=False)
    return JobSessionCreator(
        task, scaffold, None, config, None if max_wait_secs == _MAX_WAIT_SECS else float(max_wait_secs)
    )


def SingularMonitoredSession(  # noqa: N802 - TensorFlow's name
    hooks: Any = None,
    scaffold: tf.train.Scaffold | None = None,
    master: str = "",
    config: tf.ConfigProto | None = None,
    checkpoint_dir: str | None = None,
    stop_grace_period_secs: int = 120,
    checkpoint_filename_with_path: str | None = None,
) -> tf.train.SingularMonitoredSession:
    """Creates a `tf.train.SingularMonitoredSession`, a session without a cluster.

    Raises:
        OptionError: `master` is the target of a `Server`.
    """
    if tasks.task_at(master) is not None:
        raise OptionError("SingularMonitoredSession cannot take part in a job; write MonitoredTrainingSession")
    return tf.train.SingularMonitoredSession(
        hooks, scaffold, master, config, checkpoint_dir, stop_grace_period_secs, checkpoint_filename_with_path
    )
