"""The JSON of the control plane: turns the records of `run_record.py` into it and back, with every field checked.

Anybody who reaches the port of a ps task can write there. Text that is not a valid record raises ValueError with the
reason and never ends a thread: a ps task drops such a message, and a worker treats such a record as no answer.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

from ps_trainer.data.pipeline.shard_plan import Lease, ShardPlan
from ps_trainer.runtime import run_record
from ps_trainer.runtime.run_record import (
    AliveMessage,
    LeaseMessage,
    LeaseRefusal,
    Message,
    PartResult,
    StatusMessage,
    WorkerEntry,
)

# Values of the field "status" in messages that do not report a worker's state.
_ALIVE, _LEASE = "alive", "lease"

_RECORDS: Mapping[str, Any] = {
    "hello": run_record.Hello,
    "run": run_record.RunRecord,
    "roster": run_record.Roster,
    "notice": run_record.EndNotice,
    "leases": run_record.Leases,
}
_LEASE_HINT = Lease | LeaseRefusal | None

_MAX_DEPTH = 20  # of nested objects and lists; Python cannot write much deeper ones again
# A limit that no real plan reaches. Below it, the plan's numbers and their products fit into 64 bits.
_MAX_EXAMPLES = 2**48


def encode(record: Any) -> str:
    """Returns a record as JSON."""
    return json.dumps(_to_json(record))


def encode_message(message: Message) -> str:
    """Returns a worker's message as JSON: one flat object, whose field "status" tells the kind of message."""
    fields = _to_json(message)
    if isinstance(message, StatusMessage):
        fields |= fields.pop("entry")
    else:
        fields["status"] = _LEASE if isinstance(message, LeaseMessage) else _ALIVE
    return json.dumps(fields)


def decode_message(text: bytes, num_workers: int) -> Message:
    """Returns a worker's message from its JSON. Unknown fields are ignored.

    Args:
        text: JSON as it was received.
        num_workers: Number of workers in the cluster.

    Raises:
        ValueError: `text` is not a valid message; says why.
    """
    fields = _object(text)
    envelope = _decode(_Envelope, fields)
    # An index outside of the cluster would end the thread that probes the workers' ports, by a KeyError.
    if not 0 <= envelope.worker < num_workers:
        raise ValueError(f"worker {envelope.worker}, and the cluster has 0 to {num_workers - 1}")
    if envelope.status == _ALIVE:
        return _decode(AliveMessage, fields)
    if envelope.status == _LEASE:
        return _decode(LeaseMessage, fields)
    return StatusMessage(run_id=envelope.run_id, worker=envelope.worker, entry=_decode(WorkerEntry, fields))


def decode_part(text: bytes) -> PartResult:
    """Returns the result of a part of an evaluation from its JSON.

    Raises:
        ValueError: `text` is not a valid result; says why.
    """
    return _decode(PartResult, _object(text))


@functools.lru_cache(maxsize=512)
def decode_record(name: str, text: bytes) -> Any:
    """Returns a record of a ps task from its JSON; None (for "leases": an empty mapping) where nothing was written yet.

    Records cannot be changed, so the result is kept. A task reads every ps task a few times a second, and most records
    are as they were.

    Args:
        name: "hello", "run", "roster", "notice" or "leases".
        text: JSON as it lies on the ps task.

    Raises:
        ValueError: `text` is not a valid record; says why.
    """
    try:
        fields = _object(text)
        if not fields and name != "leases":
            return None
        return _decode(_RECORDS[name], fields)
    except ValueError as error:
        raise ValueError(f"its record {name!r} cannot be read: {error}") from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Envelope(Message):
    """The fields that every message has."""

    status: str


def _to_json(value: Any) -> Any:
    """Returns a record as JSON values; fields that are None are left out."""
    if isinstance(value, ShardPlan):
        return value.as_dict()
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: _to_json(field) for name, field in fields.items() if field is not None}
    if isinstance(value, Mapping):
        return {key: _to_json(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(element) for element in value]
    return value


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is expected, not a {type(value).__name__}")
    if _is_deeper(value, _MAX_DEPTH):
        raise ValueError("nested too deeply")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(part, depth - 1) for part in parts)


def _decode(hint: Any, value: Any, path: str = "") -> Any:
    """Returns a value of the type that an annotation names, from JSON values.

    Args:
        hint: The annotation: a dataclass, an enumeration, a plain type, or a tuple, mapping or optional of these.
        value: JSON values.
        path: Place of the value in the record, for messages.

    Raises:
        ValueError: `value` is not of that type.
    """
    if hint is Any:
        return value
    if hint == _LEASE_HINT:
        return _decode_lease(value, path)
    if hint is ShardPlan:
        return _decode_plan(_expect(dict, value, path), path)
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(hint, _expect(dict, value, path), path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _decode_word(hint, value, path)
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return None if value is None else _decode(parts[0], value, path)  # `X | None`, the only union but a lease
    if origin is tuple:
        return tuple(_decode(parts[0], element, path) for element in _expect(list, value, path))
    if origin is Mapping:
        items = _expect(dict, value, path).items()
        return {_decode_key(parts[0], key, path): _decode(parts[1], part, _path_of(path, key)) for key, part in items}
    return _expect(hint, value, path)


def _decode_dataclass(hint: Any, fields: Mapping[str, Any], path: str) -> Any:
    hints, given = _hints(hint), {}
    for field in dataclasses.fields(hint):
        name, place = field.name, _path_of(path, field.name)
        if name in fields:
            given[name] = _decode(hints[name], fields[name], place)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ValueError(f"no field {place!r}")
    return hint(**given)


@functools.cache
def _hints(hint: Any) -> dict[str, Any]:
    return typing.get_type_hints(hint)


def _decode_word(hint: Any, value: Any, path: str) -> Any:
    word = _expect(str, value, path)
    try:
        return hint(word)
    except ValueError as error:
        raise ValueError(f"unknown {path} {word!r:.60}") from error


def _decode_key(hint: Any, key: str, path: str) -> Any:
    """Returns a key of a JSON object, which is always text there."""
    if hint is not int:
        return _decode(hint, key, path)
    if not (key.isascii() and key.isdigit()):
        raise ValueError(f"{_path_of(path, repr(key))}: not an index")
    return int(key)


def _decode_lease(value: Any, path: str) -> Lease | LeaseRefusal | None:
    if value is None:
        return None
    if isinstance(value, str) and value in tuple(LeaseRefusal):
        return LeaseRefusal(value)
    is_place = isinstance(value, list) and [type(number) for number in value] == [int] * 3 and min(value) >= 0
    if not is_place:
        raise ValueError(f"{path} is {value!r:.60}, neither epoch, shard and batch nor a known word")
    return Lease(*value)


def _decode_plan(plan: Mapping[str, Any], path: str) -> ShardPlan:
    unknown = sorted(set(plan) - set(ShardPlan._fields))
    if unknown:  # of another version, in which the same numbers may mean other shards
        raise ValueError(f"unknown field {_path_of(path, unknown[0])!r}")
    for name in ShardPlan._fields:
        if name not in plan:
            raise ValueError(f"no field {_path_of(path, name)!r}")
        if name == "num_epochs" and plan[name] is None:  # an endless run
            continue
        if _expect(int, plan[name], _path_of(path, name)) < 1 and name != "seed":
            raise ValueError(f"{_path_of(path, name)} is {plan[name]}, not at least 1")
    if plan["num_examples"] >= _MAX_EXAMPLES:
        raise ValueError(f"{_path_of(path, 'num_examples')} is {plan['num_examples']}, not less than 2**48")
    if plan["num_shards"] > plan["num_examples"]:
        raise ValueError(
            f"{_path_of(path, 'num_shards')} is {plan['num_shards']}, more than num_examples, {plan['num_examples']}"
        )
    return ShardPlan(**plan)


def _expect(expected: Any, value: Any, path: str) -> Any:
    if type(value) is not expected:  # to isinstance, True is an int
        raise ValueError(f"{path} is {value!r:.60}, not of type {expected.__name__}")
    return value


def _path_of(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
