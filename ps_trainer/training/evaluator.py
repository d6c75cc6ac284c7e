"""The evaluator: test metrics of every checkpoint, by a separate task or once by hand."""

from __future__ import annotations

import functools
import pathlib
import time

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.checkpoints.reader import Checkpoint
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import (
    EXIT_DONE,
    CheckpointError,
    OptionError,
    PeerFailedError,
    PsLostError,
    StalledError,
)
from ps_trainer.metrics.writer import MetricsWriter
from ps_trainer.runtime import preflight
from ps_trainer.runtime.control import PsControl, PsState
from ps_trainer.runtime.job_runner import StopRequest, call_until_stopped
from ps_trainer.runtime.run_record import FINAL, Status
from ps_trainer.training import components as components_lib
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate
from ps_trainer.training.evaluation_pace import MIN_LIMIT_SECS, EvaluationLimits

_POLL_SECS = 0.5
_MAX_UNANSWERED = 3  # polls in a row after which ps 0 counts as gone


class EvaluatorTask:
    """Evaluates each new checkpoint of the logdir until the chief has ended, the last checkpoint included.

    It reads the chief's checkpoints, so it runs where the chief's logdir is. Of the cluster it asks only ps 0, to learn
    how the chief ended.

    Args:
        cluster: Cluster, which gives the address of ps 0.
        config: Settings of the run; `logdir` is needed.
        components: Components of the run.

    Raises:
        OptionError: There is no logdir.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig, components: Components):
        if config.logdir is None or config.checkpoint_dir is None:
            raise OptionError("the evaluator reads checkpoints; give it the chief's --logdir")
        self._cluster = cluster
        self._config = config
        self._components = components
        self._directory: pathlib.Path = config.checkpoint_dir
        self._summary_path = pathlib.Path(config.logdir) / "summary.json"
        self._writer = MetricsWriter(config.logdir, cluster.task_name)
        self._seen: dict[str, int] = {}

    def work(self, stop: StopRequest) -> int:
        """Evaluates until the run ends; returns exit code 0.

        Raises:
            PeerFailedError: The chief failed or was interrupted.
            PsLostError: The ps task 0 went away before the chief ended.
            StalledError: No new checkpoint came for `stall_timeout_secs`.
        """
        self._writer.state("waiting for the ps tasks")
        controls = preflight.wait_for_ps(self._cluster, self._config, stop)
        self._writer.state("waiting for a checkpoint")
        try:
            self._watch(controls[0], stop)
        finally:
            for control in controls:
                control.close()
            self._writer.close()
        return EXIT_DONE

    def _watch(self, ps_0: PsControl, stop: StopRequest) -> None:
        progressed_at = silent_since = time.monotonic()
        has_joined, num_unanswered = False, 0
        while True:
            stop.check()
            # Asked before the look at the folder: a chief that is done has written its last checkpoint.
            state = _ask(ps_0)
            status = _chief_status(state) if state is not None else None
            has_joined = has_joined or status in (Status.JOINED, Status.TRAINING)
            num_unanswered = num_unanswered + 1 if state is None else 0
            if self._evaluate_new(stop):
                progressed_at = time.monotonic()
            is_ps_gone = has_joined and num_unanswered >= _MAX_UNANSWERED and self._is_over(silent_since)
            if status in FINAL or is_ps_gone:
                return self._end(status)
            if state is not None:
                silent_since = time.monotonic()
            if time.monotonic() - progressed_at > self._config.stall_timeout_secs:
                raise StalledError(
                    f"no new checkpoint in {self._directory} for {self._config.stall_timeout_secs:.0f} s;"
                    " is it the chief's --logdir? To wait longer, raise --stall_timeout_secs"
                )
            stop.wait(_POLL_SECS)

    def _is_over(self, silent_since: float) -> bool:
        """Returns whether a ps 0 that does not answer has ended with the run, or has been away for too long."""
        waited = time.monotonic() - silent_since
        return self._summary_path.exists() or waited >= self._config.recover_timeout_secs

    def _end(self, status: Status | None) -> None:
        if status in (Status.FAILED, Status.INTERRUPTED):
            raise PeerFailedError(f"the chief {status}")
        if status is None and not self._summary_path.exists():
            raise PsLostError("ps 0 stopped answering before the chief ended")
        self._writer.state("done")

    def _evaluate_new(self, stop: StopRequest) -> bool:
        """Evaluates the checkpoints that are new; returns whether there were any.

        Skips a damaged one with a warning, as training does; the run may write it again.
        """
        has_progressed = False
        limits = EvaluationLimits(
            self._config.eval_examples, max_secs=MIN_LIMIT_SECS, check=stop.check, report=self._writer.state
        )
        for prefix in checkpoint_lib.list_prefixes(self._directory):
            try:
                written_at = pathlib.Path(f"{prefix}.index").stat().st_mtime_ns
            except FileNotFoundError:
                continue  # the chief has deleted it since the folder was listed
            # The time tells a checkpoint from one of the same name that the run has written again after a rollback.
            if self._seen.get(prefix) == written_at:
                continue
            self._seen[prefix] = written_at
            has_progressed = True
            checkpoint = self._load(prefix)
            if checkpoint is not None:
                evaluation = functools.partial(evaluate, self._components, checkpoint, limits)
                self._writer.eval(checkpoint.step, call_until_stopped(evaluation, stop))
        return has_progressed

    def _load(self, prefix: str) -> Checkpoint | None:
        """Returns the checkpoint; None if it is damaged. Its files stay open, so the chief may delete them."""
        try:
            checkpoint = Checkpoint(prefix)
            checkpoint.verify()
            return checkpoint
        except CheckpointError as error:
            if pathlib.Path(f"{prefix}.index").exists():
                logging.warning("%s; it is not evaluated", error)
            else:
                logging.info("%s was deleted before it was evaluated", prefix)
            return None


def _ask(ps_0: PsControl) -> PsState | None:
    """Returns the state of ps 0; None if it does not answer. It ends soon after the chief."""
    try:
        return ps_0.read()
    except tf.errors.OpError:
        return None


def _chief_status(state: PsState) -> Status | None:
    """Returns the chief's status in the run in progress; None if it has not joined that."""
    entry = state.workers_of(state.run.run_id).get(0) if state.run is not None else None
    return entry.status if entry is not None else None


def main(config: TrainConfig, *, checkpoint_dir: pathlib.Path) -> int:
    """Evaluates the newest loadable checkpoint once and prints its metrics; returns exit code 0.

    Raises:
        CheckpointError: There is no checkpoint, or it does not fit the model.
        UsageError: There is an unknown name, a wrong option, or missing or broken data.
    """
    components = components_lib.load(config, 1, trained_run=checkpoint_dir.parent)
    checkpoint = checkpoint_lib.latest(checkpoint_dir)
    if checkpoint is None:
        raise CheckpointError(f"{checkpoint_dir} holds no checkpoint; give --logdir of a run that has saved")
    metrics = evaluate(components, checkpoint, EvaluationLimits(config.eval_examples))
    figures = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    print(f"{checkpoint.prefix}: {figures}")
    return EXIT_DONE
