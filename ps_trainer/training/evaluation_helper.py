"""A worker that is done, and helps the chief to evaluate. `shared_evaluation.py` is the chief's side, and draws both.

Nothing here makes a worker fail that is done already: it stops helping, and the chief evaluates what is left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.errors import PsTrainerError
from ps_trainer.runtime.control import PsClient
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import FINAL, EvaluationCall, RunRecord, RunStatus, Status
from ps_trainer.training.components import Components
from ps_trainer.training.evaluation import EvaluationGraph, gives_parts
from ps_trainer.training.shared_evaluation import MIN_EXAMPLES, checksum, pack

WAIT_SECS = 60.0
"""Longest wait for the chief's evaluation to begin, in seconds: the chief may still train, or save a large model."""

_POLL_SECS = 0.25  # as the watcher during the training, so that ps 0 is asked no more often
_MAX_MESSAGE_BYTES = 16 * 2**20
"""Limit to the arrays of pooled metrics in the message about a part, which must arrive before the call's deadline."""
_MAX_TABLE_BYTES = 2**28
"""Limit to tables that the model reads as a whole. Training needs only rows, so a helper may lack the memory."""


class EvaluationHelper:
    """Waits until the chief calls for help with the evaluation or ends the run, and helps.

    Args:
        ps_0: Client of ps 0.
        run_id: Name of the run.
        worker: Index of this worker.
        components: Components of the run.
        open_parameters: Function that reads the model variables from the ps tasks. It gets the names of those of which
            only rows are needed, and may give these as `RowSource`, until its context ends.
        report: Function that is told in words what this worker does.
        silence_secs: Time without an answer of ps 0 after which it counts as lost.
        time_fn: Monotonic time in seconds.
    """

    def __init__(
        self,
        ps_0: PsClient,
        *,
        run_id: str,
        worker: int,
        components: Components,
        open_parameters: Callable[[Collection[str]], AbstractContextManager[Mapping[str, Any]]],
        report: Callable[[str], Any],
        silence_secs: float,
        time_fn: Callable[[], float] = time.monotonic,
    ):
        self._ps_0 = ps_0
        self._run_id = run_id
        self._worker = worker
        self._components = components
        self._open_parameters = open_parameters
        self._report = report
        self._silence_secs = silence_secs
        self._time_fn = time_fn
        self._run: RunRecord | None = None
        self._heard_at = time_fn()
        self._is_leaving = threading.Event()

    def help(self, stop: StopRequest) -> None:
        """Returns when the chief needs no help, has ended, or is lost, and at once when `stop` is requested."""
        call = self._wait_for_call(stop)
        if call is None or self._worker not in call.workers:
            return
        self._report("evaluating a share of the test examples")
        # In a thread, which may be left behind: a batch may take longer than this worker may take to end.
        parts = threading.Thread(target=self._evaluate_parts, args=(call,), name="evaluate", daemon=True)
        parts.start()
        while parts.is_alive() and not stop.wait(_POLL_SECS) and self._find_run() is not None:
            continue
        self._is_leaving.set()

    def _wait_for_call(self, stop: StopRequest) -> EvaluationCall | None:
        """Returns the chief's call; None if none comes."""
        began_at = self._time_fn()
        while not stop.is_requested and (run := self._find_run()) is not None:
            if run.evaluation is not None:
                return run.evaluation
            if self._time_fn() - began_at > WAIT_SECS:
                logging.info("the chief has not called for help with the evaluation within %.0f s", WAIT_SECS)
                return None
            stop.wait(_POLL_SECS)
        return None

    def _find_run(self) -> RunRecord | None:
        """Returns the record of the run; None once the run is over, or the chief or ps 0 is lost."""
        try:
            state = self._ps_0.read()
        except tf.errors.DeadlineExceededError:  # it may be busy, or frozen
            return self._run if self._time_fn() - self._heard_at < self._silence_secs else None
        except tf.errors.OpError:
            return None
        self._heard_at = self._time_fn()
        run, chief = state.run, state.workers_of(self._run_id).get(0)
        is_chief_there = chief is not None and chief.status not in (*FINAL, Status.LOST)
        is_over = run is None or run.run_id != self._run_id or run.status is not RunStatus.READY
        self._run = run if is_chief_there and not is_over else None
        return self._run

    def _evaluate_parts(self, call: EvaluationCall) -> None:
        """Evaluates one part after the other, until none is left."""
        try:
            evaluation = EvaluationGraph(self._components, call.num_examples)
            self._check_size(evaluation)
            with self._open_parameters(evaluation.looked_up) as values:
                if checksum(values, evaluation.variable_names) != call.parameters:
                    raise _NoHelpError("the parameters have changed since the chief read them")
                if self._components.dataset.num_test_examples != call.num_test_examples:
                    raise _NoHelpError(f"the chief has {call.num_test_examples} test examples")
                evaluation.prepare_parts(call.first_batch, call.num_parts)
                with evaluation.open(values):
                    while not self._is_leaving.is_set() and (part := self._ps_0.take_part()) < call.num_parts:
                        self._evaluate_part(evaluation, call, part)
        # The dataset and the model may be the user's, and raise anything.
        except Exception as error:  # noqa: BLE001 - a worker that is done must not fail
            if not self._is_leaving.is_set():
                logging.warning("this worker does not help with the evaluation any more: %s", error)

    def _check_size(self, evaluation: EvaluationGraph) -> None:
        """Raises _NoHelpError if the model reads large tables as a whole."""
        specs = self._components.trace_model().specs
        num_bytes = sum(spec.num_bytes for spec in specs if spec.is_table and spec.name in evaluation.variable_names)
        if num_bytes > _MAX_TABLE_BYTES:
            raise _NoHelpError(f"the model reads tables of {num_bytes} bytes as a whole")

    def _evaluate_part(self, evaluation: EvaluationGraph, call: EvaluationCall, part: int) -> None:
        sums = evaluation.sums()
        evaluation.add_part(sums, part, lambda _: not self._is_leaving.is_set())
        if self._is_leaving.is_set():
            return  # the sums may be incomplete
        if (num_bytes := sums.num_pooled_bytes()) > _MAX_MESSAGE_BYTES:
            raise _NoHelpError(f"the pooled metrics of a part take {num_bytes} bytes, more than a message may")
        self._ps_0.send_part(pack(sums, call, part, self._worker))


def can_help(components: Components, num_examples: int | None) -> bool:
    """Returns whether an evaluation may be shared, by the dataset and the number of test examples.

    Args:
        components: Components of the run.
        num_examples: Number of test examples of an evaluation; None = all.
    """
    if not gives_parts(components.dataset):
        return False
    total = components.dataset.num_test_examples
    return min(total, total if num_examples is None else num_examples) >= MIN_EXAMPLES


class _NoHelpError(PsTrainerError):
    """This worker cannot help with the evaluation."""
