"""A control plane without a server, for tests."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.metrics.figures import WorkerFigures
from ps_trainer.runtime.control import PsState
from ps_trainer.runtime.run_record import Hello, Message, Roster, RunRecord, RunStart, RunStatus, Status, WorkerEntry

FIGURES = WorkerFigures(
    local_steps=8,
    examples=64,
    pushes=7,
    gradients_dropped=1,
    secs=4.0,
    steps_per_sec=2.0,
    examples_per_sec=16.0,
    staleness={0: 5, 12: 1},
    staleness_mean=2.0,
    injected_delay_mean=0.5,
    push_bytes_computed=1.5,
)
GONE = tf.errors.UnavailableError(None, None, "socket closed")


class FakeControl:
    """Stands for a `PsControl`: returns the values of its fields, or fails while `error` is set."""

    def __init__(self, ps: int = 0, **fields: Any):
        self.ps = ps
        self.name = f"ps-{ps} (host:{2222 + ps})"
        self.fields: dict[str, Any] = {"hello": Hello(incarnation=incarnation(ps))} | fields
        self.error: Exception | None = None
        self.said: list[Message] = []
        self.num_reads = 0

    def read(self, *, is_patient: bool = False) -> PsState:
        self.num_reads += 1
        if self.error is not None:
            raise self.error
        return PsState(**self.fields)

    def write_run(self, run: RunRecord) -> None:
        self.fields["run"] = run

    def send(self, message: Message) -> None:
        if self.error is not None:
            raise self.error
        self.said.append(message)

    def close(self) -> None:
        pass


def incarnation(ps: int) -> str:
    """The incarnation of a `FakeControl` for ps task `ps`."""
    return f"first-{ps}"


def ready_run(num_ps: int = 1, **fields: Any) -> RunRecord:
    """The record of run "r", which is ready on the `FakeControl`s."""
    defaults = {"run_id": "r", "status": RunStatus.READY, "agreement": {}, "start": RunStart(step=0, how="initialised")}
    return RunRecord(**defaults | {"incarnations": tuple(map(incarnation, range(num_ps)))} | fields)


def entry(status: str, **fields: Any) -> WorkerEntry:
    """A worker's entry in a roster."""
    return WorkerEntry(status=Status(status), **fields)


def roster(run_id: str, **statuses: str) -> Roster:
    """The roster of a run, for example `roster("r", w0="joined")`."""
    return Roster(run_id=run_id, workers={int(name[1:]): entry(status) for name, status in statuses.items()})
