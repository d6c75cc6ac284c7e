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
    NanLossError,
    PeerFailedError,
    PsLostError,
    PsTrainerError,
    StalledError,
)
from ps_trainer.hooks import fault
from ps_trainer.metrics.traffic import SocketTraffic
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import control, facts, preflight
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.server import session_config
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.training import chief, graph
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.loop import LOST, lost_ps, run_steps
from ps_trainer.training.peers import Peers
from ps_trainer.training.progress import Progress
from ps_trainer.training.step_log import progress_for
from ps_trainer.training.worker_state import WorkerState
from ps_trainer.updates.base import ChiefService


class Worker:
    """One worker of a job.

    Args:
        cluster: with this task's place in it.
        config: the run.
        components: what the run names, loaded.
        server: this task's server.
        create_progress: makes the counter of this worker's steps; None = as the config says.

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
        create_progress: Callable[[int], Progress] | None = None,
    ):
        self._cluster = cluster
        self._config = config
        self._components = components
        self._target = server.target
        self._session_config = session_config(cluster.device)
        self._controls: list[PsControl] = []
        self._run: dict[str, Any] = {"run_id": ""}
        self._facts = facts.of(cluster)
        self._writer = MetricsWriter(config.logdir, cluster.task_name)
        self._drill = fault.create(cluster.task_name, self._writer)
        self._create_progress = create_progress or progress_for(cluster, config)
        self._progress = self._create_progress(config.batch_size)
        self._traffic = SocketTraffic(cluster.own_port, cluster.peer_ports)
        self._is_stepping = False
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
            status = control.INTERRUPTED if isinstance(error, Interrupted) else control.FAILED
            self._say(status, reason=str(error), error=type(error).__name__)
            self._writer.state(f"failed: {error}", isinstance(error, PeerFailedError | PsLostError))
            raise
        else:
            self._say(control.DONE, summary=self._progress.summary())
            self._writer.state("done")
            return EXIT_DONE
        finally:
            for ps in self._controls:
                ps.close()
            self._progress.close()
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
        self._facts |= facts.of_model(train.model_trace)
        preflight.agree_on_model(self._controls[0], self._run, self._facts, self._cluster)
        service = train.step.service
        with self._bare_session(train) as session:
            if self._cluster.is_chief:
                self._set_up(train, session, is_alive)
            peers = Peers(
                self._cluster,
                self._config,
                self._controls,
                self._run["run_id"],
                min_workers=self._components.rule.min_workers(self._cluster.num_workers),
                service=service,
                needs_all=train.step.exchange is not None,
                stop=stop,
                writer=self._writer,
                on_poll=lambda: self._check_progress(service),
            )
            try:
                if service is not None:
                    service.start(self._bare_session(train))
                    stop.on_release(service.release)
                if train.straggler is not None:
                    train.straggler.start(self._target, session_config(self._cluster.device, peers=()))
                    stop.on_release(train.straggler.let_go)
                peers.start()
                checkpointer = chief.Checkpointer(train, self._config) if self._cluster.is_chief else None
                self._run_steps(train, stop, checkpointer, peers)
                if self._cluster.is_chief:
                    self._close_run(train, session, checkpointer, peers)
            except BaseException as error:
                if self._cluster.is_chief:
                    self._rescue(train, session, error)
                raise
            finally:
                peers.close()
                if service is not None:
                    service.stop()
                if train.straggler is not None:
                    train.straggler.close()

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
        peers: Peers,
    ) -> None:
        own_state = WorkerState(train.worker_state, self._config, self._cluster.worker_index)

        def after_join(raw: tf.Session, global_step: int) -> None:
            own_state.restore(raw, global_step)
            sent_bytes = raw.make_callable(train.sent_bytes)
            # The graph has gone to the ps tasks by now.
            self._progress.watch(self._traffic.sample, lambda: int(sent_bytes()))

        def after_step(raw: tf.Session) -> None:
            if self._drill is not None:
                self._drill.after_step(self._progress.global_step)
            if self._progress.secs_since_report() >= self._config.report_secs:
                self._report()
            own_state.save_if_due(raw, self._progress.global_step)
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
            self._say(control.TRAINING)
            if not peers.wait_for_start():
                return
            self._writer.state("training")
            self._progress = self._create_progress(self._config.batch_size)
            if train.straggler is not None:
                self._progress.count_delays(lambda: train.straggler.last_delay)
            self._is_stepping = True
            ended_by = run_steps(
                session,
                train,
                self._progress,
                stop,
                max_steps=self._config.max_steps,
                has_hooks=bool(self._components.hooks),
                after_join=after_join,
                after_step=after_step,
                at_end=own_state.save,
            )
            self._is_stepping = False
            self._report()
        logging.info("training ended at step %d by %s", self._progress.global_step, ended_by)

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

    def _close_run(
        self, train: graph.TrainGraph, session: tf.Session, checkpointer: chief.Checkpointer, peers: Peers
    ) -> None:
        """Waits for the other workers, saves, evaluates, writes the summary."""
        service = train.step.service
        if service is not None:
            service.worker_left(self._cluster.worker_index)
        peers.wait_for_end(lambda: int(session.run(train.current_step)))
        counts = service.summary() if service is not None else {}
        values = checkpointer.save(session)
        self._writer.state("evaluating")
        metrics = evaluate(self._components, values)
        step = int(values["global_step"])
        self._writer.eval(step, metrics)
        self.final_values = values
        self.summary = self._summary(step, metrics, counts, peers.roster)
        chief.write_summary(self._config, self.summary)
        self._end_run()
        session.run(train.free_op)

    def _rescue(self, train: graph.TrainGraph, session: tf.Session, error: BaseException) -> None:
        """Saves what there is before the run is given up, and lets waiting workers go."""
        if isinstance(error, Interrupted | PeerFailedError | StalledError):
            try:
                self._check_losses()
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

    def _check_losses(self) -> None:
        """Raises NanLossError if a worker ended with one, as the parameters are spoiled then.

        Asks ps 0 anew: a launcher ends the chief right after that worker.
        """
        workers = self._controls[0].read().roster.get("workers", {})
        spoiling = [index for index, worker in workers.items() if worker.get("error") == NanLossError.__name__]
        if spoiling:
            raise NanLossError(f"the loss of worker {', '.join(spoiling)} is no number; the last one is untouched")

    def _summary(
        self, step: int, metrics: dict[str, float], counts: dict[str, Any], roster: dict[int, dict[str, Any]]
    ) -> dict[str, Any]:
        workers = {0: {"status": control.DONE, **self._progress.summary()}}
        workers |= {i: {"status": w["status"], **w.get("summary", {})} for i, w in roster.items() if i}
        used = counts.get("gradients_used")
        for index, figures in workers.items():
            if used is not None and "pushes" in figures:
                figures["gradients_used"] = used[index]
                figures["gradients_dropped"] = figures["pushes"] - used[index]
        return {
            "status": "done",
            "global_step": step,
            "examples_per_sec": sum(figures.get("examples_per_sec", 0.0) for figures in workers.values()),
            "metrics": metrics,
            "workers": {str(index): workers[index] for index in sorted(workers)},
        }

    def _say(self, status: str, **content: Any) -> None:
        message = {"run_id": self._run["run_id"], "worker": self._cluster.worker_index, "status": status, **content}
        message["facts"] = self._facts
        preflight.say_everywhere(self._controls, message)
