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
from ps_trainer.errors import EXIT_DONE, Interrupted, PeerFailedError, PsTrainerError, StalledError
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import control, preflight
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.server import session_config
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.watcher import Watcher
from ps_trainer.training import chief, graph
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.loop import run_steps
from ps_trainer.training.progress import Progress

_POLL_SECS = 0.1


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
        self.final_values: dict[str, np.ndarray] = {}

    def work(self, stop: StopRequest) -> int:
        """Trains until the run ends; returns exit code 0.

        Raises:
            PsTrainerError: the job failed, here or elsewhere.
            Interrupted: a signal came; the chief has saved a checkpoint.
        """
        self._writer.state("waiting for the ps tasks")
        try:
            self._controls = preflight.wait_for_ps(self._cluster, self._config, stop)
            is_alive = self._join_run(stop)
            self._train(stop, is_alive)
        except BaseException as error:
            self._say(control.INTERRUPTED if isinstance(error, Interrupted) else control.FAILED, reason=str(error))
            self._writer.state(f"failed: {error}")
            raise
        else:
            self._say(control.DONE, summary=self._progress.summary())
            self._writer.state("done")
            return EXIT_DONE
        finally:
            for ps in self._controls:
                ps.close()
            self._writer.close()

    def _join_run(self, stop: StopRequest) -> bool:
        """Finds or begins the run; returns whether its state is already on the ps tasks."""
        is_alive = True
        if self._cluster.is_chief:
            self._run, is_alive = preflight.begin_run(self._controls[0], self._cluster, self._config)
        else:
            self._writer.state("waiting for the chief")
            self._run["run_id"] = preflight.wait_for_run(self._controls[0], self._cluster, self._config, stop)
        self._say(control.JOINED)
        return is_alive

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
            )
            try:
                if service is not None:
                    service.start(self._bare_session(train))
                    stop.on_release(service.release)
                watcher.start()
                checkpointer = chief.Checkpointer(train, self._config) if self._cluster.is_chief else None
                self._run_steps(train, stop, checkpointer)
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

    def _run_steps(self, train: graph.TrainGraph, stop: StopRequest, checkpointer: chief.Checkpointer | None) -> None:
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
            self._progress = self._create_progress(self._config.batch_size)
            self._writer.state("training")
            ended_by = run_steps(
                session,
                train,
                self._progress,
                stop,
                max_steps=self._config.max_steps,
                has_hooks=bool(self._components.hooks),
                after_step=after_step,
            )
        self._report()
        logging.info("training ended at step %d by %s", self._progress.global_step, ended_by)

    def _report(self) -> None:
        figures = self._progress.report()
        if figures:
            self._writer.train(self._progress.global_step, figures)

    def _worker_ended(self, service: Any, stop: StopRequest, index: int, status: str) -> None:
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
        chief.write_summary(self._config, self._summary(step, metrics, counts, watcher.roster))

    def _wait_for_workers(
        self, train: graph.TrainGraph, session: tf.Session, watcher: Watcher, stop: StopRequest
    ) -> None:
        """Waits until every worker that joined has ended, as long as steps go on.

        Raises:
            StalledError: global_step stood still for `stall_timeout_secs`.
        """
        clock = train.store.clocks[0].value()
        step, moved_at = -1, time.monotonic()
        said = False
        while missing := sorted(i for i, w in watcher.roster.items() if w["status"] == control.JOINED and i):
            if not said:
                self._writer.state(f"waiting for worker {', '.join(map(str, missing))}")
                said = True
            stop.check()
            now_step = int(session.run(clock))
            if now_step != step:
                step, moved_at = now_step, time.monotonic()
            elif time.monotonic() - moved_at > self._config.stall_timeout_secs:
                raise StalledError(
                    f"worker {missing} made no step for {self._config.stall_timeout_secs:.0f} s and did not end;"
                    " look at its log, or raise --stall_timeout_secs"
                )
            stop.wait(_POLL_SECS)

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
