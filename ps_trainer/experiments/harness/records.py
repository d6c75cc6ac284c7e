"""`Record`: the settings of a run or its figures, typed in the code and JSON in the files.

@dataclasses.dataclass(frozen=True, kw_only=True)
class TimingSettings(Record):
    n: int
    splits: int | None = None  # left out of the JSON where it is None

An experiment defines its records in `runs.py`, or in `cases.py` or `records.py` if it has more files. Only
`run_store.py` and `report.py` see their JSON.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Named values of a run; a subclass is a frozen dataclass of JSON values, `Label`s and records."""

    def as_json(self) -> dict[str, Any]:
        """Returns the values as JSON, without the fields that are None by default and have no other value.

        So a new optional setting keeps the identity of finished runs, which do not have it.
        """
        fields = dataclasses.fields(self)
        shown = [field.name for field in fields if field.default is not None or getattr(self, field.name) is not None]
        return {name: _to_json(getattr(self, name)) for name in shown}


RecordT = TypeVar("RecordT", bound=Record)


def from_json(record_type: type[RecordT], values: Mapping[str, Any]) -> RecordT:
    """Returns the record of JSON values, as `Record.as_json` makes them; values without a field are ignored.

    Raises:
        ValueError: A value without a default is missing.
    """
    hints = typing.get_type_hints(record_type)
    fields = dataclasses.fields(record_type)
    required = (dataclasses.MISSING, dataclasses.MISSING)
    missing = [f.name for f in fields if f.name not in values and (f.default, f.default_factory) == required]
    if missing:
        raise ValueError(f"without {', '.join(missing)}")
    return record_type(**{f.name: _from_json(hints[f.name], values[f.name]) for f in fields if f.name in values})


def _to_json(value: Any) -> Any:
    if isinstance(value, Record):
        return value.as_json()
    if isinstance(value, Mapping):
        return {str(name): _to_json(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_json(one) for one in value]
    return value


def _from_json(hint: Any, value: Any) -> Any:
    """Returns a JSON value as its type hint says: only records, and mappings to records, differ from their JSON."""
    if value is None:
        return None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
        return _from_json(kinds[0], value) if len(kinds) == 1 else value
    if isinstance(hint, type) and issubclass(hint, Record):
        return from_json(hint, value)
    if typing.get_origin(hint) in (Mapping, dict):
        kind = typing.get_args(hint)[1]
        return {name: _from_json(kind, one) for name, one in value.items()}
    return value
