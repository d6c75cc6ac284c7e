"""A worker's job from start to end; the chief is the worker that also sets up, saves and closes the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import (
    EXIT_DONE,
    Interrupted,
    PeerFailedError,
    PsLostError,
    PsTrainerError,
    StalledError,
    StartTimeoutError,
)
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import control, preflight
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.server import session_config
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.watcher import Watcher
from ps_trainer.training import chief, graph
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.loop import LOST, lost_ps, run_steps
from ps_trainer.training.progress import Progress
from ps_trainer.updates.base import ChiefService

_POLL_SECS = 0.1
_SAY_SECS = 1.0  # shorter waits are not worth a line


class Worker:
    """One worker of a job.

    Args:
        cluster: with this task's place in it.
        config: the run.
        components: what the run names, loaded.
        server: this task's server.
        create_progress: makes the counter of this worker's steps.

    Attributes:
        final_values: of a chief whose run is done: model variables, slots and global_step by name.
        summary: of a chief whose run is done: what summary.json holds.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        config: TrainConfig,
        components: Components,
        server: tf.train.Server,
        *,
        create_progress: Callable[[int], Progress] = Progress,
    ):
        self._cluster = cluster
        self._config = config
        self._components = components
        self._target = server.target
        self._session_config = session_config(cluster.device)
        self._controls: list[PsControl] = []
        self._run: dict[str, Any] = {"run_id": ""}
        self._writer = MetricsWriter(config.logdir, cluster.task_name)
        self._create_progress = create_progress
        self._progress = create_progress(config.batch_size)
        self._is_stepping = False
        self._started_at = time.monotonic()
        self.final_values: dict[str, np.ndarray] = {}
        self.summary: dict[str, Any] = {}

    def work(self, stop: StopRequest) -> int:
        """Trains until the run ends; returns exit code 0.

        Raises:
            PsTrainerError: the job failed, here or elsewhere.
            Interrupted: a signal came; the chief has saved a checkpoint.
        """
        self._writer.state("waiting for the ps tasks")
        try:
            self._controls = preflight.wait_for_ps(self._cluster, self._config, stop)
            self._find_run_and_train(stop)
        except BaseException as error:
            self._say(control.INTERRUPTED if isinstance(error, Interrupted) else control.FAILED, reason=str(error))
            self._writer.state(f"failed: {error}", isinstance(error, PeerFailedError | PsLostError))
            raise
        else:
            self._say(control.DONE, summary=self._progress.summary())
            self._writer.state("done")
            return EXIT_DONE
        finally:
            for ps in self._controls:
                ps.close()
            self._writer.close()

    def _find_run_and_train(self, stop: StopRequest) -> None:
        if self._cluster.is_chief:
            self._run, is_alive = preflight.begin_run(self._controls[0], self._cluster, self._config)
            self._say(control.JOINED)
            try:
                self._train(stop, is_alive)
            except BaseException:
                self._end_run()
                raise
            return
        self._writer.state("waiting for the chief")
        self._run["run_id"], has_ended = preflight.wait_for_run(self._controls[0], self._cluster, self._config, stop)
        if has_ended:
            logging.info("the run ended before this worker came")
            return
        self._say(control.JOINED)
        self._train(stop, is_alive=True)

    def _end_run(self) -> None:
        self._run["status"] = control.ENDED
        try:
            self._controls[0].write_run(self._run)
        except tf.errors.OpError as error:
            logging.warning("ps 0 is gone before the end of the run was noted: %s", type(error).__name__)

    def _train(self, stop: StopRequest, is_alive: bool) -> None:
        self._writer.state("building the graph")
        train = graph.build(self._components, self._cluster, self._config, self._run["run_id"])
        service = train.step.service
        with self._bare_session(train) as session:
            if self._cluster.is_chief:
                self._set_up(train, session, is_alive)
            watcher = Watcher(
                self._controls,
                self._run["run_id"],
                self._cluster.worker_index,
                stop,
                on_worker_end=lambda index, status: self._worker_ended(service, stop, index, status),
                on_poll=lambda: self._check_progress(service),
            )
            try:
                if service is not None:
                    service.start(self._bare_session(train))
                    stop.on_release(service.release)
                watcher.start()
                checkpointer = chief.Checkpointer(train, self._config) if self._cluster.is_chief else None
                self._run_steps(train, stop, checkpointer, watcher)
                if self._cluster.is_chief:
                    self._close_run(train, session, checkpointer, watcher, stop)
            except BaseException as error:
                if self._cluster.is_chief:
                    self._rescue(train, session, stop, error)
                raise
            finally:
                watcher.close()
                if service is not None:
                    service.stop()

    def _bare_session(self, train: graph.TrainGraph) -> tf.Session:
        return tf.Session(self._target, graph=train.graph, config=self._session_config)

    def _set_up(self, train: graph.TrainGraph, session: tf.Session, is_alive: bool) -> None:
        chief.write_config(self._cluster, self._config)
        self._writer.state("setting up the parameters")
        step, how = chief.prepare_state(train, session, self._config, self._cluster.num_ps, is_alive=is_alive)
        self._writer.state(f"{how}, at step {step}")
        self._run["status"] = control.READY
        self._controls[0].write_run(self._run)

    def _run_steps(
        self,
        train: graph.TrainGraph,
        stop: StopRequest,
        checkpointer: chief.Checkpointer | None,
        watcher: Watcher,
    ) -> None:
        def after_step(raw: tf.Session) -> None:
            if self._progress.secs_since_report() >= self._config.report_secs:
                self._report()
            if checkpointer is not None:
                checkpointer.save_if_due(raw, self._progress.global_step)

        with (
            train.graph.as_default(),
            tf.train.MonitoredTrainingSession(
                master=self._target,
                is_chief=self._cluster.is_chief,
                checkpoint_dir=None,
                scaffold=train.scaffold,
                hooks=[hook() for hook in self._components.hooks],
                save_summaries_steps=None,
                save_summaries_secs=None,
                log_step_count_steps=None,
                config=self._session_config,
                max_wait_secs=int(self._config.start_timeout_secs) + 31,
                stop_grace_period_secs=5,
            ) as session,
        ):
            stop.on_abort(session.close)
            if not self._wait_for_start(watcher, stop):
                return
            self._writer.state("training")
            self._progress = self._create_progress(self._config.batch_size)
            self._is_stepping = True
            ended_by = run_steps(
                session,
                train,
                self._progress,
                stop,
                max_steps=self._config.max_steps,
                has_hooks=bool(self._components.hooks),
                after_step=after_step,
            )
            self._is_stepping = False
            self._report()
        logging.info("training ended at step %d by %s", self._progress.global_step, ended_by)

    def _wait_for_start(self, watcher: Watcher, stop: StopRequest) -> bool:
        """Waits for all workers to be ready to train, so that nobody trains ahead; then for as many as are needed.

        Returns False when the run has ended meanwhile.

        Raises:
            StartTimeoutError: the update rule cannot go on with those that came in time.
        """
        self._say(control.TRAINING)
        everybody = set(range(self._cluster.num_workers))
        needed = self._components.rule.min_workers(self._cluster.num_workers)
        entered_at, said = time.monotonic(), False
        while missing := everybody - {i for i, w in watcher.roster.items() if w["status"] != control.JOINED}:
            waited = time.monotonic() - self._started_at
            names = ", ".join("{}-{}".format(*self._cluster.worker_tasks[index]) for index in sorted(missing))
            if waited > self._config.join_wait_secs and len(everybody) - len(missing) >= needed:
                logging.warning("starting without %s, not there after %.0f s", names, waited)
                break
            if waited > self._config.start_timeout_secs:
                raise StartTimeoutError(
                    f"update rule {self._config.update} needs {needed} workers; {names} did not come within"
                    f" {waited:.0f} s. Start them, or look at their logs. A longer wait: --start_timeout_secs"
                )
            if not said and time.monotonic() - entered_at > _SAY_SECS:
                self._writer.state(f"waiting for {names}")
                said = True
            stop.check()
            stop.wait(_POLL_SECS)
        return self._cluster.is_chief or watcher.run_status != control.ENDED

    def _check_progress(self, service: ChiefService | None) -> None:
        """Raises what keeps this worker from going on, while its step loop may be blocked."""
        error = service.error() if service is not None else None
        if error is not None:
            raise lost_ps(error) if isinstance(error, LOST) else PsLostError(f"the chief's updates ended: {error}")
        idle = time.monotonic() - self._progress.last_step_at
        if self._is_stepping and idle > self._config.stall_timeout_secs:
            raise StalledError(
                f"{self._cluster.task_name} has made no step for {idle:.0f} s, at global step"
                f" {self._progress.global_step}: a worker or ps task that it waits for is slow or stuck;"
                " look at their logs, or raise --stall_timeout_secs"
            )

    def _report(self) -> None:
        figures = self._progress.report()
        if figures:
            self._writer.train(self._progress.global_step, figures)

    def _worker_ended(self, service: ChiefService | None, stop: StopRequest, index: int, status: str) -> None:
        """The watcher's news of another worker: a synchronous rule must not wait for it any more."""
        if service is None:
            return
        if status == control.DONE:
            service.worker_left(index)
        else:
            stop.request(PeerFailedError(f"worker {index} {status}, and update rule {self._config.update} needs all"))

    def _close_run(
        self,
        train: graph.TrainGraph,
        session: tf.Session,
        checkpointer: chief.Checkpointer,
        watcher: Watcher,
        stop: StopRequest,
    ) -> None:
        """Waits for the other workers, saves, evaluates, writes the summary."""
        service = train.step.service
        if service is not None:
            service.worker_left(self._cluster.worker_index)
        self._wait_for_workers(train, session, watcher, stop)
        counts = service.summary() if service is not None else {}
        values = checkpointer.save(session)
        self._writer.state("evaluating")
        metrics = evaluate(self._components, values)
        step = int(values["global_step"])
        self._writer.eval(step, metrics)
        self.final_values = values
        self.summary = self._summary(step, metrics, counts, watcher.roster)
        chief.write_summary(self._config, self.summary)
        self._end_run()
        session.run(train.free_op)

    def _wait_for_workers(
        self, train: graph.TrainGraph, session: tf.Session, watcher: Watcher, stop: StopRequest
    ) -> None:
        """Waits until every worker that joined has ended, as long as steps go on.

        Raises:
            StalledError: global_step stood still for `stall_timeout_secs`.
        """
        step, moved_at = -1, time.monotonic()
        said = False
        while missing := self._not_ended(watcher):
            if not said:
                self._writer.state(f"waiting for worker {', '.join(map(str, missing))}")
                said = True
            stop.check()
            now_step = int(session.run(train.current_step))
            if now_step != step:
                step, moved_at = now_step, time.monotonic()
            elif time.monotonic() - moved_at > self._config.stall_timeout_secs:
                raise StalledError(
                    f"worker {missing} made no step for {self._config.stall_timeout_secs:.0f} s and did not end;"
                    " look at its log, or raise --stall_timeout_secs"
                )
            stop.wait(_POLL_SECS)

    def _not_ended(self, watcher: Watcher) -> list[int]:
        """Workers that still have something to train on: those that joined, and where the data decides the
        end, those that may come yet."""
        missing = [i for i, w in watcher.roster.items() if i and w["status"] not in control.FINAL]
        if self._config.max_steps is None and time.monotonic() - self._started_at < self._config.start_timeout_secs:
            missing += [i for i in range(1, self._cluster.num_workers) if i not in watcher.roster]
        return sorted(missing)

    def _rescue(self, train: graph.TrainGraph, session: tf.Session, stop: StopRequest, error: BaseException) -> None:
        """Saves what there is before the run is given up, and lets waiting workers go."""
        if isinstance(error, Interrupted | PeerFailedError | StalledError):
            try:
                chief.Checkpointer(train, self._config).save(session)
            except (tf.errors.OpError, PsTrainerError) as failure:
                logging.warning("no checkpoint was saved: %s", failure)
        if train.step.service is not None:
            try:
                train.step.service.release()
            except tf.errors.OpError as failure:
                logging.warning("waiting workers could not be let go: %s", failure)
        status = "interrupted" if isinstance(error, Interrupted) else "failed"
        chief.write_summary(self._config, {"status": status, "reason": str(error), "workers": {}})

    def _summary(
        self, step: int, metrics: dict[str, float], counts: dict[str, Any], roster: dict[int, dict[str, Any]]
    ) -> dict[str, Any]:
        workers = {0: self._progress.summary()} | {i: w["summary"] for i, w in roster.items() if i and w.get("summary")}
        used = counts.get("gradients_used")
        for index, figures in workers.items():
            if used is not None:
                figures["gradients_used"] = used[index]
                figures["gradients_dropped"] = figures["local_steps"] - used[index]
        return {
            "status": "done",
            "global_step": step,
            "examples_per_sec": sum(figures["examples_per_sec"] for figures in workers.values()),
            "metrics": metrics,
            "workers": {str(index): workers[index] for index in sorted(workers)},
        }

    def _say(self, status: str, **content: Any) -> None:
        message = {"run_id": self._run["run_id"], "worker": self._cluster.worker_index, "status": status, **content}
        preflight.say_everywhere(self._controls, message)
