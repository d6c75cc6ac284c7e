"""An evaluation that several workers share: the chief's side. `evaluation_helper.py` is the other workers' side.

The batches of test examples are divided into parts, and chief and helpers take one part after the other:

    chief                                             ps 0                             each helper
    ─────                                             ────                             ───────────
    evaluates alone; the rest would take long
    writes the call into the run record          ───► run record                  ───► reads the parameters
    takes a part, evaluates it, takes another    ◄─── number of the next part     ───► takes a part, evaluates it
    adds the sums that have arrived              ◄─── queue of results            ◄─── sends the sums of the part
    evaluates the parts of which none arrived

The chief never waits for a helper. In the end it evaluates the parts that lost or slow helpers have taken. It uses the
sums of such a helper if they arrive before the chief has finished the part.
"""

from __future__ import annotations

import base64
import os
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.runtime.control import PsClient
from ps_trainer.runtime.run_record import EvaluationCall, PackedArray, PartResult, Status, WorkerEntry
from ps_trainer.training.evaluation import BATCH_SIZE, EvaluationGraph
from ps_trainer.training.evaluation_pace import Pace
from ps_trainer.training.evaluation_sums import EvaluationSums

MIN_EXAMPLES = 8 * BATCH_SIZE
"""Number of test examples below which no evaluation is shared, so that no worker waits for the chief's."""

_MAX_BATCHES = 1024  # in a part of a model with pooled metrics, whose arrays are in its message
_BUSY_SHARE = 0.5  # of the cores of a machine; above it, a second evaluation there would only slow down the first
_RECEIVE_SECS = 0.25  # between two looks for results, since each costs a call to ps 0, and a batch may take less
_ARRAY_KINDS = "biuf"


class SharedEvaluation:
    """Calls other workers to help with the evaluation, and adds up what they send.

    Args:
        ps_0: Client of ps 0.
        write_call: Function that writes a call into the run record.
        workers: Last report of each other worker, by index.
        host: Name of this machine.
        num_test_examples: Number of test examples.
    """

    def __init__(
        self,
        ps_0: PsClient,
        *,
        write_call: Callable[[EvaluationCall], None],
        workers: Mapping[int, WorkerEntry],
        host: str | None,
        num_test_examples: int,
    ):
        self._ps_0 = ps_0
        self._write_call = write_call
        self._workers = workers
        self._host = host
        self._num_test_examples = num_test_examples
        self._called: tuple[int, ...] = ()

    def count(self, used_cores: float) -> int:
        """Returns the number of workers that make the evaluation faster.

        They are done, and so wait for a call. If the evaluation keeps the cores of this machine busy, it is one worker
        of each other machine.

        Args:
            used_cores: Number of cores that the evaluation keeps busy.
        """
        hosts = {index: entry.fingerprint.host for index, entry in self._workers.items() if entry.status is Status.DONE}
        if used_cores > _BUSY_SHARE * (os.cpu_count() or 1):
            # From the last to the first, so that the first worker of each machine remains.
            first = {host: index for index, host in sorted(hosts.items(), reverse=True) if host != self._host}
            hosts = {index: host for host, index in first.items()}
        self._called = tuple(sorted(hosts))
        return len(self._called)

    def finish(
        self, evaluation: EvaluationGraph, values: Mapping[str, np.ndarray], sums: EvaluationSums, pace: Pace
    ) -> None:
        """Evaluates the rest of the test examples, with help, and adds it to `sums`.

        Args:
            evaluation: The evaluation, whose session is open.
            values: Values of the model variables.
            sums: Sums over the first batches.
            pace: Limits of the evaluation.
        """
        first_batch = sums.num_examples // BATCH_SIZE
        num_batches = -(-(pace.total or 0) // BATCH_SIZE) - first_batch
        call = EvaluationCall(
            call_id=uuid.uuid4().hex[:12],
            workers=self._called,
            parameters=checksum(values, evaluation.variable_names),
            num_test_examples=self._num_test_examples,
            num_examples=evaluation.num_examples,
            first_batch=first_batch,
            num_parts=_num_parts(num_batches, len(self._called), has_pooled=evaluation.has_pooled),
        )
        evaluation.prepare_parts(call.first_batch, call.num_parts)
        parts = _Parts(call, evaluation, sums, pace, self._ps_0)
        try:
            self._ps_0.begin_parts()
            self._write_call(call)
            logging.info("calling workers %s to help with the evaluation", ", ".join(map(str, call.workers)))
        except tf.errors.OpError as error:
            parts.stop_sharing(error)
        for result in parts.evaluate():
            sums.add_sums(result)


class _Parts:
    """The parts of a shared evaluation, on the chief.

    Args:
        call: The call.
        evaluation: The evaluation, which has the parts of the call.
        begun: Sums over the batches before.
        pace: Limits of the evaluation.
        ps_0: Client of ps 0.
    """

    def __init__(
        self, call: EvaluationCall, evaluation: EvaluationGraph, begun: EvaluationSums, pace: Pace, ps_0: PsClient
    ):
        self._call = call
        self._evaluation = evaluation
        self._begun = begun
        self._pace = pace
        self._ps_0: PsClient | None = ps_0
        self._found: dict[int, EvaluationSums] = {}
        self._helpers: set[int] = set()
        self._received_at = 0.0

    def stop_sharing(self, error: tf.errors.OpError) -> None:
        """Notes that ps 0 does not answer, so that the chief evaluates what is left by itself."""
        logging.warning("ps 0 does not answer, so the chief evaluates the rest alone: %s", error.message)
        self._ps_0 = None

    def evaluate(self) -> list[EvaluationSums]:
        """Returns the sums of the parts; of those that were evaluated in time, if the time is limited."""
        while not self._pace.is_cut and (part := self._take()) is not None:
            self._evaluate(part)
        for part in range(self._call.num_parts):
            self._receive()
            if part not in self._found and not self._pace.is_cut:
                self._evaluate(part)
        if self._helpers:
            logging.info("workers %s have helped with the evaluation", ", ".join(map(str, sorted(self._helpers))))
        return [self._found[part] for part in sorted(self._found)]

    def _take(self) -> int | None:
        """Returns the next part that nobody has taken; None if there is none, or ps 0 does not answer."""
        if self._ps_0 is None:
            return None
        try:
            part = self._ps_0.take_part()
        except tf.errors.OpError as error:
            self.stop_sharing(error)
            return None
        return part if part < self._call.num_parts else None

    def _evaluate(self, part: int) -> None:
        """Evaluates a part, unless a helper's sums of it arrive in the meantime."""
        own = self._evaluation.sums()

        def after_batch(num_examples: int) -> bool:
            if time.monotonic() - self._received_at > _RECEIVE_SECS:
                self._receive()
            if part in self._found:
                return False
            num_found = sum(sums.num_examples for sums in self._found.values())
            return self._pace.after_batch(self._begun.num_examples + num_found + num_examples)

        self._evaluation.add_part(own, part, after_batch)
        self._found.setdefault(part, own)

    def _receive(self) -> None:
        """Takes the results that have arrived."""
        if self._ps_0 is None:
            return
        self._received_at = time.monotonic()
        try:
            results = self._ps_0.receive_parts()
        except tf.errors.OpError as error:
            self.stop_sharing(error)
            return
        for result in results:
            if result.call_id != self._call.call_id or not 0 <= result.part < self._call.num_parts:
                continue  # from an earlier call
            try:
                self._found.setdefault(result.part, unpack(result, self._evaluation.sums()))
                self._helpers.add(result.worker)
            except ValueError as error:
                logging.warning("a result of worker %d was dropped: %s", result.worker, error)


def checksum(values: Mapping[str, np.ndarray], names: Collection[str]) -> int:
    """Returns a checksum of some values, by which workers notice that they have other parameters."""
    code = 0
    for name in sorted(names):
        code = zlib.crc32(np.ascontiguousarray(values[name]).reshape([-1]).view(np.uint8).data, code)
    return code


def pack(sums: EvaluationSums, call: EvaluationCall, part: int, worker: int) -> PartResult:
    """Returns the sums over a part as a message."""
    return PartResult(
        call_id=call.call_id,
        part=part,
        worker=worker,
        num_examples=sums.num_examples,
        loss=sums.loss,
        weight=sums.weight,
        totals=dict(sums.totals),
        collected={name: tuple(map(_pack_array, arrays)) for name, arrays in sums.pooled_arrays().items()},
    )


def unpack(result: PartResult, sums: EvaluationSums) -> EvaluationSums:
    """Returns `sums` over no batches yet with the sums of a message.

    Raises:
        ValueError: The message does not fit the model.
    """
    collected = {name: list(map(_unpack_array, arrays)) for name, arrays in result.collected.items()}
    sums.take_result(
        num_examples=result.num_examples,
        loss=result.loss,
        weight=result.weight,
        totals=result.totals,
        collected=collected,
    )
    return sums


def _num_parts(num_batches: int, num_helpers: int, *, has_pooled: bool) -> int:
    """Returns one part for each worker, or more where a message about one would be too long.

    Each part is a pass over the records of all parts. So with several for each worker, reading alone could take longer
    than what the helpers save.
    """
    wanted = max(1 + num_helpers, -(-num_batches // _MAX_BATCHES) if has_pooled else 0)
    return max(1, min(num_batches, wanted))


def _pack_array(array: np.ndarray) -> PackedArray:
    return PackedArray(dtype=array.dtype.str, shape=array.shape, data=base64.b64encode(array.tobytes()).decode())


def _unpack_array(packed: PackedArray) -> np.ndarray:
    try:
        dtype = np.dtype(packed.dtype)
    except TypeError as error:
        raise ValueError(f"unknown type {packed.dtype!r}") from error
    if dtype.kind not in _ARRAY_KINDS:
        raise ValueError(f"{packed.dtype!r} is not a type of numbers")
    return np.frombuffer(base64.b64decode(packed.data, validate=True), dtype).reshape(packed.shape)
