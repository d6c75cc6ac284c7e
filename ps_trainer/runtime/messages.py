"""What tasks say to each other, checked before anybody acts on it: a worker's message, and a ps task's records.

Whoever reaches the port of a ps task can write both. What cannot be understood is an error in words here, and ends no
thread and no task: a ps task drops such a message, and for a worker such a record is as good as no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

JOINED = "joined"
TRAINING = "training"
DONE = "done"
FAILED = "failed"
INTERRUPTED = "interrupted"
FINAL = (DONE, FAILED, INTERRUPTED)
LOST = "lost"  # said of a worker that may come back, by a ps task or by the worker that lost a ps task
ALIVE = "alive"  # a heartbeat, in the mail only
LEASE = "lease"  # asks for a shard of the data, in the mail only

STARTING = "starting"
READY = "ready"
ENDED = "ended"

_STATUSES = (JOINED, TRAINING, *FINAL, LOST)
_RUN_STATUSES = (STARTING, READY, ENDED)

_MAIL = {"run_id": str, "worker": int, "status": str}
_MAY_BE_IN_MAIL = {
    "reason": str,
    "error": str,
    "join": str,
    "request": str,
    "kind": str,
    "is_idle": bool,
    "is_first": bool,
}
_MAY_BE_IN_MAIL |= {"summary": dict, "facts": dict}
# By record: what is in it unless it is empty, and what may be.
_RECORDS: dict[str, tuple[dict[str, type], dict[str, type]]] = {
    "hello": ({}, {"incarnation": str, "facts": dict}),
    "run": (
        {"run_id": str, "status": str, "agreement": dict, "ps": list},
        {"key": str, "failure": str, "reached": str, "start": dict, "model": dict, "partners": list, "shards": dict},
    ),
    "roster": ({"run_id": str, "workers": dict}, {}),
    "notice": ({"reason": str}, {}),
    "leases": ({}, {}),
}


def message(text: bytes, num_workers: int) -> dict[str, Any]:
    """A worker's message, with the fields that are known.

    Args:
        text: JSON, as it was sent.
        num_workers: of the cluster.

    Raises:
        ValueError: it cannot be understood; says why.
    """
    said = _object(text)
    _check(said, _MAIL, _MAY_BE_IN_MAIL)
    if said["status"] not in (*_STATUSES, ALIVE, LEASE):
        raise ValueError(f"unknown status {said['status']!r}")
    if not 0 <= said["worker"] < num_workers:
        raise ValueError(f"worker {said['worker']}, and the cluster has 0 to {num_workers - 1}")
    if said["status"] == LEASE:
        _check(said, {"request": str, "kind": str, "is_idle": bool}, {"is_first": bool})
    return {name: said[name] for name in (*_MAIL, *_MAY_BE_IN_MAIL) if name in said}


def record(name: str, text: bytes) -> dict[str, Any]:
    """A record of a ps task; empty where nothing was said yet.

    Args:
        name: "run", "roster" …
        text: JSON, as it lies on the ps task.

    Raises:
        ValueError: it cannot be understood; says why.
    """
    try:
        said = _object(text)
        if said:
            _check(said, *_RECORDS[name])
        if name == "run" and said:
            _check_run(said)
        for index, entry in said.get("workers", {}).items() if name == "roster" else ():
            if not (index.isascii() and index.isdigit()):
                raise ValueError(f"worker {index!r} is no index")
            if not isinstance(entry, dict) or entry.get("status") not in _STATUSES:
                raise ValueError(f"worker {index} has no status")
    except ValueError as error:
        raise ValueError(f"its record {name!r} cannot be read: {error}") from error
    return said


def _object(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(said, dict):
        raise ValueError(f"a JSON object is expected, not a {type(said).__name__}")
    return said


def _check(said: Mapping[str, Any], fields: Mapping[str, type], may_have: Mapping[str, type]) -> None:
    """Raises ValueError where a field is missing, or is of another type than JSON's."""
    for name in fields:
        if name not in said:
            raise ValueError(f"no field {name!r}")
    for name, expected in {**fields, **may_have}.items():
        if name in said and type(said[name]) is not expected:  # True is an int to isinstance
            raise ValueError(f"{name} is {said[name]!r:.60}, not of type {expected.__name__}")


def _check_run(run: Mapping[str, Any]) -> None:
    if run["status"] not in _RUN_STATUSES:
        raise ValueError(f"unknown status {run['status']!r}")
    start = run.get("start", {})
    if start:
        _check(start, {"step": int, "how": str}, {})
    elif run["status"] == READY:
        raise ValueError("no field 'start'")
