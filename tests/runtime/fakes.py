"""A control plane without a server."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.runtime.control import PsState

GONE = tf.errors.UnavailableError(None, None, "socket closed")


class FakeControl:
    """Stands for a `PsControl`: answers what its fields hold, or fails while `error` is set."""

    def __init__(self, ps: int = 0, **fields: dict[str, Any]):
        self.ps = ps
        self.name = f"ps-{ps} (host:{2222 + ps})"
        self.fields: dict[str, dict[str, Any]] = {
            "hello": {"incarnation": incarnation(ps)},
            "run": {},
            "roster": {},
            "notice": {},
        } | fields
        self.error: Exception | None = None
        self.said: list[dict[str, Any]] = []
        self.num_reads = 0

    def read(self, *, is_patient: bool = False) -> PsState:
        self.num_reads += 1
        if self.error is not None:
            raise self.error
        return PsState(**self.fields)

    def write_run(self, run: dict[str, Any]) -> None:
        self.fields["run"] = dict(run)

    def say(self, message: dict[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        self.said.append(message)

    def close(self) -> None:
        pass


def incarnation(ps: int) -> str:
    """What a `FakeControl` for ps task `ps` says of itself."""
    return f"first-{ps}"


def roster(run_id: str, **statuses: str) -> dict[str, Any]:
    """The roster of a run: `roster("r", w0="joined")`."""
    return {"run_id": run_id, "workers": {name[1:]: {"status": status} for name, status in statuses.items()}}
