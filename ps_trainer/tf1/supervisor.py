"""`Supervisor`: the session of older scripts, by way of the same job as `MonitoredTrainingSession`."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.tf1 import exit_codes, saving, tasks
from ps_trainer.tf1.run_state import SetUp
from ps_trainer.tf1.script_job import ScriptJob, check_is_chief


class Supervisor(tf.train.Supervisor):
    """`tf.train.Supervisor`, with the same arguments; with a `Server`'s target as master, a part of the job.

    A lost ps task ends `managed_session` with `PsLostError`: the script's loop has the session, so the session cannot
    be replaced. Started again, the script continues from the last checkpoint. `stop`, or the end of `managed_session`,
    waits on the chief for the other workers and saves. After `stop`, the chief's session stays open until the script
    closes it or ends.
    """

    __signature__ = inspect.signature(tf.train.Supervisor)
    _saver: Any  # of the base class

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._coord = _Coordinator(self._graph)
        self._job: ScriptJob | None = None
        self._job_session: tf.Session | None = None
        self._is_managed = False  # whether a `with` ends the session
        self._exit: BaseException | None = None  # by which the script leaves the `with`, such as SystemExit
        if self._saver is not None and self._logdir:
            saving.make_folder(self._logdir)
            self._saver = _Saver(self._saver)

    def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: tf.ConfigProto | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: int = 7200,
        start_standard_services: bool = True,
    ) -> tf.Session:
        """Prepares or waits as in TensorFlow, with the deadlines and checks of the job."""
        task = tasks.task_at(master)
        if task is not None:
            check_is_chief(task, self._is_chief)
            self._session_manager = _SessionManager(self, task)
        return super().prepare_or_wait_for_session(
            master, config, wait_for_checkpoint, max_wait_secs, start_standard_services
        )

    @contextlib.contextmanager
    def managed_session(
        self,
        master: str = "",
        config: tf.ConfigProto | None = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[tf.Session]:
        """Yields a session as in TensorFlow; the errors of the job are those of `MonitoredTrainingSession`."""
        self._is_managed = True
        with super().managed_session(master, config, start_standard_services, close_summary_writer) as session:
            try:
                yield session
            except Exception:
                raise
            except BaseException as error:  # TensorFlow's notes only an `Exception`
                self._exit = None if exit_codes.is_good_end(error) else error
                raise

    def stop(self, threads: Any = None, close_summary_writer: bool = True, ignore_live_threads: bool = False) -> None:
        """Ends the services, and this worker's part in the job."""
        job, self._job = self._job, None
        if job is None:
            super().stop(threads, close_summary_writer, ignore_live_threads)
            return
        try:
            super().stop(threads, close_summary_writer, ignore_live_threads)
            if self._exit is None:
                job.check()
            if self._exit is None and self._job_session is not None and not job.has_ended:
                job.wait_for_others(self._job_session)
                self._save(self._job_session)
        except BaseException as raised:
            job.save_last(raised)
            job.leave(raised)
            raise
        if self._is_managed or not self._is_chief:
            job.leave(self._exit)
        else:  # the script may still save or evaluate with its session
            job.leave_on_close()

    # Their names in the first scripts, as in TensorFlow.
    PrepareSession = prepare_or_wait_for_session
    Stop = stop

    def _save(self, session: tf.Session) -> None:
        if self._is_chief and self._saver is not None and self._save_path and self._save_model_secs:
            self._saver.save(session, self._save_path, global_step=self._global_step)


class _Coordinator(tf.train.Coordinator):
    """Its threads work in the supervisor's graph, also where the script has not disabled eager execution."""

    def __init__(self, graph: tf.Graph):
        super().__init__()
        self._graph = graph

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Stops as in TensorFlow, whose threads that save and that write summaries run within it."""
        with super().stop_on_exception(), self._graph.as_default():
            yield


class _Saver:
    """A script's saver, whose files a failed save cannot damage."""

    def __init__(self, saver: tf.train.Saver):
        self._saver = saver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saver, name)

    def save(self, session: tf.Session, save_path: str, global_step: Any = None, **kwargs: Any) -> str:
        """Saves as `tf.train.Saver.save` does."""
        if global_step is None:
            return str(self._saver.save(session, save_path, **kwargs))
        step = int(session.run(global_step)) if tf.is_tensor(global_step) else int(global_step)
        saving.save(self._saver, session, os.fspath(save_path), step, write_meta_graph=True)
        return f"{save_path}-{step}"


class _SessionManager(tf.train.SessionManager):
    """Gets the session from a job."""

    def __init__(self, supervisor: Supervisor, task: tasks.Server):
        super().__init__(graph=supervisor._graph)
        self._supervisor = supervisor
        self._task = task

    def prepare_session(self, master: str, **kwargs: Any) -> tf.Session:
        """Returns the chief's session, with the model initialised or restored."""
        return self._begin(kwargs.get("config"), kwargs)

    def wait_for_session(
        self, master: str, config: tf.ConfigProto | None = None, max_wait_secs: float = 7200
    ) -> tf.Session:
        """Returns another worker's session, once the chief has set up the run."""
        return self._begin(config, {} if max_wait_secs == 7200 else {"max_wait_secs": max_wait_secs})

    def _begin(self, config: tf.ConfigProto | None, given: dict[str, Any]) -> tf.Session:
        supervisor = self._supervisor
        saver = given.get("saver")
        set_up = SetUp(
            init_op=given.get("init_op"),
            init_feed_dict=given.get("init_feed_dict"),
            init_fn=given.get("init_fn"),
            local_init_op=supervisor._local_init_op,
            ready_op=supervisor._ready_op,
            ready_for_local_init_op=supervisor._ready_for_local_init_op,
            saver=saver,
            checkpoint_dir=given.get("checkpoint_dir"),
        )
        wait = given.get("max_wait_secs") if not supervisor._is_chief else None
        job = ScriptJob(self._task, supervisor._graph, set_up, config, start_secs=wait, recovers=False)
        supervisor._job = job
        job.save = supervisor._save if supervisor._is_chief else None
        try:
            supervisor._job_session = job.next_session()
        except BaseException as error:
            supervisor._job = None
            job.leave(error)
            raise
        if job.has_ended:
            supervisor.request_stop()
        return supervisor._job_session
