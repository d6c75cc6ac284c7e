"""What tasks say to each other, checked before anybody acts on it: a worker's message, and a ps task's records.

Whoever reaches the port of a ps task can write both. What cannot be understood is an error in words here, and ends no
thread and no task: a ps task drops such a message, and for a worker such a record is as good as no answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ps_trainer.data.pipeline.shard_plan import ShardPlan

JOINED = "joined"
TRAINING = "training"
DONE = "done"
FAILED = "failed"
INTERRUPTED = "interrupted"
FINAL = (DONE, FAILED, INTERRUPTED)
LOST = "lost"  # said of a worker that may come back, by a ps task or by the worker that lost a ps task
ALIVE = "alive"  # a heartbeat, in the mail only
LEASE = "lease"  # asks for a shard of the data, in the mail only

# What a worker may be told that asks for a shard, instead of one.
WAIT = "wait"  # all shards are held by others; who knows whether all of them come to an end
END = "end"

STARTING = "starting"
READY = "ready"
ENDED = "ended"

_STATUSES = (JOINED, TRAINING, *FINAL, LOST)
_RUN_STATUSES = (STARTING, READY, ENDED)

_MAIL = {"run_id": str, "worker": int, "status": str}
_MAY_BE_IN_MAIL = {
    "reason": str,
    "error": str,
    "joining": int,
    "request": str,
    "kind": str,
    "is_idle": bool,
    "is_first": bool,
}
_MAY_BE_IN_MAIL |= {"summary": dict, "facts": dict}
_NUMBERS_OF_SUMMARY = ("pushes", "examples_per_sec")  # the chief computes with them
_MAX_DEPTH = 20  # of objects and lists in each other; deeper ones cannot be written again
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
_ANSWER = {"request": str, "lease": object, "generation": int}

_MAX_JOININGS = 2**31  # of a worker

# What no plan of a run has as many of; its numbers, and the products of them that count variables, fit into 64 bits.
_MAX_EXAMPLES = 2**48


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
    for name in _NUMBERS_OF_SUMMARY:
        if type(said.get("summary", {}).get(name, 0)) not in (int, float):
            raise ValueError(f"{name} is {said['summary'][name]!r:.60}, not a number")
    _check_joining(said)
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
        if name == "leases":
            _check_leases(said)
        for index, entry in said.get("workers", {}).items() if name == "roster" else ():
            if not (index.isascii() and index.isdigit()):
                raise ValueError(f"worker {index!r} is no index")
            if not isinstance(entry, dict) or entry.get("status") not in _STATUSES:
                raise ValueError(f"worker {index} has no status")
            _check_joining(entry)
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
    if _is_deeper(said, _MAX_DEPTH):
        raise ValueError("nested too deeply")
    return said


def _is_deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(part, depth - 1) for part in parts)


def _check(said: Mapping[str, Any], fields: Mapping[str, type], may_have: Mapping[str, type]) -> None:
    """Raises ValueError where a field is missing, or is of another type than JSON's."""
    for name in fields:
        if name not in said:
            raise ValueError(f"no field {name!r}")
    for name, expected in {**fields, **may_have}.items():
        if name in said and expected is not object and type(said[name]) is not expected:  # True is an int to isinstance
            raise ValueError(f"{name} is {said[name]!r:.60}, not of type {expected.__name__}")


def _check_joining(said: Mapping[str, Any]) -> None:
    """Raises ValueError where the number of a worker's joining is none; workers calculate with it."""
    _check(said, {}, {"joining": int})
    if not 0 <= said.get("joining", 0) < _MAX_JOININGS:
        raise ValueError(f"joining is {said['joining']}, not at least 0 and less than 2**31")


def _check_run(run: Mapping[str, Any]) -> None:
    if run["status"] not in _RUN_STATUSES:
        raise ValueError(f"unknown status {run['status']!r}")
    start = run.get("start", {})
    if start:
        _check(start, {"step": int, "how": str}, {})
    elif run["status"] == READY:
        raise ValueError("no field 'start'")
    if "shards" in run:
        _check(run["shards"], {"plan": dict, "may_wait": bool}, {})
        _check_plan(run["shards"]["plan"])
    elif run["status"] == READY and run["agreement"].get("sharding") == "dynamic":
        raise ValueError("no field 'shards'")


def _check_plan(plan: Mapping[str, Any]) -> None:
    """Raises ValueError where these are not the fields of a `ShardPlan`, each in its range."""
    unknown = sorted(set(plan) - set(ShardPlan._fields))
    if unknown:  # it may mean other shards
        raise ValueError(f"unknown field {unknown[0]!r}")
    counted = {name: int for name in ShardPlan._fields if name != "num_epochs" or plan.get(name) is not None}
    _check(plan, dict.fromkeys(ShardPlan._fields, object) | counted, {})
    for name in set(counted) - {"seed"}:
        if plan[name] < 1:
            raise ValueError(f"{name} is {plan[name]}, not at least 1")
    if plan["num_examples"] >= _MAX_EXAMPLES:
        raise ValueError(f"num_examples is {plan['num_examples']}, not less than 2**48")
    if plan["num_shards"] > plan["num_examples"]:
        raise ValueError(f"num_shards is {plan['num_shards']}, more than num_examples, {plan['num_examples']}")


def _check_leases(leases: Mapping[str, Any]) -> None:
    """Raises ValueError where these are not answers to workers, by worker and kind of question."""
    _check(leases, dict.fromkeys(leases, dict), {})
    for answers in leases.values():
        _check(answers, dict.fromkeys(answers, dict), {})
        for answer in answers.values():
            _check(answer, _ANSWER, {})
            lease = answer["lease"]
            is_place = isinstance(lease, list) and [type(number) for number in lease] == [int] * 3 and min(lease) >= 0
            if not (is_place or lease in (None, WAIT, END)):
                raise ValueError(f"lease is {lease!r:.60}: neither epoch, shard and batch nor a word that is known")
