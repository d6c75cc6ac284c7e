"""The evaluator: test metrics of every checkpoint, by a task of its own or once by hand."""

from __future__ import annotations

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
from ps_trainer.runtime import control, preflight
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.training import components as components_lib
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import evaluate

_POLL_SECS = 0.5
_UNANSWERED = 3  # polls in a row after which ps 0 counts as gone


class Evaluator:
    """Evaluates each new checkpoint of the logdir until the chief has ended, the last one included.

    It reads the chief's checkpoints, so it runs where the chief's logdir is; of the cluster it asks only
    ps 0, for how the chief ended.

    Args:
        cluster: gives ps 0's address.
        config: the run; `logdir` is needed.
        components: of the run.

    Raises:
        OptionError: no logdir.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig, components: Components):
        if config.checkpoint_dir is None:
            raise OptionError("the evaluator reads checkpoints; give it the chief's --logdir")
        self._cluster = cluster
        self._config = config
        self._components = components
        self._directory: pathlib.Path = config.checkpoint_dir
        self._writer = MetricsWriter(config.logdir, cluster.task_name)
        self._seen: dict[str, int] = {}

    def work(self, stop: StopRequest) -> int:
        """Evaluates until the run ends; returns exit code 0.

        Raises:
            PeerFailedError: the chief failed or was interrupted.
            PsLostError: ps 0 went away before the chief ended.
            StalledError: no new checkpoint for `stall_timeout_secs`.
        """
        self._writer.state("waiting for the ps tasks")
        ps_0 = preflight.wait_for_ps(self._cluster, self._config, stop)[0]
        self._writer.state("waiting for a checkpoint")
        try:
            self._watch(ps_0, stop)
        finally:
            ps_0.close()
            self._writer.close()
        return EXIT_DONE

    def _watch(self, ps_0: PsControl, stop: StopRequest) -> None:
        progressed_at = time.monotonic()
        joined, unanswered, silent_since = False, 0, progressed_at
        while True:
            stop.check()
            status = self._chief_status(ps_0)  # before the look at the folder, so that the last one is seen
            joined = joined or status in (control.JOINED, control.TRAINING)
            unanswered = unanswered + 1 if status == "" else 0
            if self._evaluate_new():
                progressed_at = time.monotonic()
            if status in control.FINAL or (joined and unanswered >= _UNANSWERED and self._is_over(silent_since)):
                return self._end(status)
            if not unanswered:
                silent_since = time.monotonic()
            if time.monotonic() - progressed_at > self._config.stall_timeout_secs:
                raise StalledError(
                    f"no new checkpoint in {self._directory} for {self._config.stall_timeout_secs:.0f} s;"
                    " is it the chief's --logdir? A longer wait: --stall_timeout_secs"
                )
            stop.wait(_POLL_SECS)

    def _is_over(self, silent_since: float) -> bool:
        """Whether a ps 0 that does not answer has ended with the run, or is not coming back in time."""
        waited = time.monotonic() - silent_since
        return self._has_summary() or waited >= self._config.recover_timeout_secs

    def _has_summary(self) -> bool:
        return (pathlib.Path(self._config.logdir) / "summary.json").exists()

    def _end(self, status: str) -> None:
        if status in (control.FAILED, control.INTERRUPTED):
            raise PeerFailedError(f"the chief {status}")
        if status == "" and not self._has_summary():
            raise PsLostError("ps 0 went away before the chief had ended")
        self._writer.state("done")

    def _chief_status(self, ps_0: PsControl) -> str:
        """What the chief said last; "" when ps 0 does not answer (it ends soon after the chief)."""
        try:
            state = ps_0.read()
        except tf.errors.OpError:
            return ""
        if state.roster.get("run_id") != state.run.get("run_id"):
            return "not joined"
        return state.roster.get("workers", {}).get("0", {}).get("status", "not joined")

    def _evaluate_new(self) -> bool:
        """Evaluates the checkpoints not seen before; returns whether there were any.

        A damaged one is passed over with a warning, as in training; the run may write it anew.
        """
        progressed = False
        for prefix in checkpoint_lib.list_prefixes(self._directory):
            try:
                written_at = pathlib.Path(f"{prefix}.index").stat().st_mtime_ns
            except FileNotFoundError:
                continue  # the chief has removed it meanwhile
            if self._seen.get(prefix) == written_at:
                continue
            self._seen[prefix] = written_at
            progressed = True
            checkpoint = self._load(prefix)
            if checkpoint is not None:
                self._writer.eval(checkpoint.step, evaluate(self._components, checkpoint))
        return progressed

    def _load(self, prefix: str) -> Checkpoint | None:
        """The checkpoint, read once, so that its files are open when the chief removes it; None if damaged."""
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


def main(config: TrainConfig, *, checkpoint_dir: pathlib.Path) -> int:
    """Evaluates the newest loadable checkpoint once and prints its metrics; returns exit code 0.

    Raises:
        CheckpointError: there is none, or it does not fit the model.
        UsageError: an unknown name, a wrong option, missing or broken data.
    """
    components = components_lib.load(config, num_workers=1)
    checkpoint = checkpoint_lib.latest(checkpoint_dir)
    if checkpoint is None:
        raise CheckpointError(f"{checkpoint_dir} holds no checkpoint; give --logdir of a run that has saved")
    metrics = evaluate(components, checkpoint)
    figures = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    print(f"{checkpoint.prefix}: {figures}")
    return EXIT_DONE
