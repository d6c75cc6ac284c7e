"""`MetricsWriter`: writes one task's numbers as JSON lines and as TensorBoard events.

    <logdir>/metrics/<task>.jsonl      a line per report; {"kind": "state" | "train" | "eval" | …, "wall_time", …}
    <logdir>/metrics/<task>/events…    scalars

Writing events does not need TensorBoard. Numbers that cannot be written (disk full) are lost with a warning, because
they must not end training.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.metrics.figures import StepReport
from ps_trainer.metrics.line_file import LineFile

# TensorFlow's writer of events raises these when the disk is full.
_EVENT_ERRORS = (OSError, RuntimeError, tf.errors.OpError)


class MetricsWriter:
    """Writes and logs the reports of a task.

    Args:
        logdir: Folder of the run; None = write only to the log.
        task_name: Name of the task, for example "worker-0".
        time_fn: Time in seconds since the epoch.
    """

    def __init__(self, logdir: str | None, task_name: str, time_fn: Callable[[], float] = time.time):
        self._time_fn = time_fn
        self._file = self._events = None
        if logdir is not None:
            folder = pathlib.Path(logdir) / "metrics"
            self._file = LineFile(folder / f"{task_name}.jsonl")
            # The writer copies the default graph into the file, so this one is empty.
            with tf.Graph().as_default():
                self._events = tf.summary.FileWriter(str(folder / task_name))

    def state(self, state: str, *, peer_failure: bool = False, error: str = "") -> None:
        """Reports the current activity of the task.

        Args:
            state: Activity in words.
            peer_failure: True if the task ends because of another task's failure; the supervisor reads this.
            error: Name of the class of the error that ends the task; empty if none does.
        """
        logging.info("%s", state)
        details = {"peer_failure": peer_failure, "error": error}
        self._line({"kind": "state", "state": state, **{name: value for name, value in details.items() if value}})

    def train(self, step: int, report: StepReport) -> None:
        """Reports training figures at `step`."""
        values = report.as_json()
        logging.info("step %d: %s", step, "  ".join(f"{name} {_short(value)}" for name, value in values.items()))
        self._line({"kind": "train", "global_step": step, **values})
        self._scalars(step, values)

    def eval(self, step: int, metrics: dict[str, float]) -> None:
        """Reports test metrics of the parameters at `step`."""
        logging.info("test at step %d: %s", step, "  ".join(f"{name} {_short(v)}" for name, v in metrics.items()))
        self._line({"kind": "eval", "global_step": step, "metrics": metrics})
        self._scalars(step, {f"test/{name}": value for name, value in metrics.items()})

    def report_reached(self, step: int) -> None:
        """Reports to the launcher, which injects faults by step, that this task has reached `step`."""
        self._line({"kind": "reached", "global_step": step})

    def event(self, event: str, task: str, step: int, **details: Any) -> None:
        """Writes an event of this task in the form of the launcher's events."""
        self._line({"kind": "event", "event": event, "task": task, "global_step": step, **details})

    def close(self) -> None:
        """Flushes and closes the files."""
        if self._file is not None:
            self._file.close()
        if self._events is not None:
            try:
                self._events.close()
            except _EVENT_ERRORS as error:
                logging.warning("the last TensorBoard events could not be written: %s", error)

    def _line(self, record: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write({"wall_time": self._time_fn(), **record})

    def _scalars(self, step: int, values: dict[str, Any]) -> None:
        if self._events is None:
            return
        scalars = [
            tf.Summary.Value(tag=name, simple_value=v) for name, v in values.items() if isinstance(v, (int, float))
        ]
        try:
            self._events.add_summary(tf.Summary(value=scalars), step)
            # TensorBoard then shows each report at once, and a task that is killed loses none.
            self._events.flush()
        except _EVENT_ERRORS as error:
            logging.warning("TensorBoard events end here: %s", str(error).partition("\n")[0])
            self._events = None


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
