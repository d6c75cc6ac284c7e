"""The lines that the tasks of a run write, as records: metrics (`metrics/*.jsonl`) and step logs (`steps/*.jsonl`)."""

from __future__ import annotations

import pathlib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ps_trainer.comparison import json_files
from ps_trainer.errors import RunError
from ps_trainer.metrics.step_record import StepRecord


class ReportLine(NamedTuple):
    """Figures of a worker's steps since its last report; `loss` is their mean, and `wall_time` is in epoch seconds."""

    wall_time: float
    global_step: int
    loss: float
    local_step: int
    steps_per_sec: float
    examples_per_sec: float
    staleness_mean: float | None = None
    gradients_dropped: int | None = None
    push_bytes_per_step: float | None = None
    pull_bytes_per_step: float | None = None


class EvaluationLine(NamedTuple):
    """Test metrics of the parameters at a step, by name."""

    global_step: int
    metrics: Mapping[str, float]


class EventLine(NamedTuple):
    """An event of a task, such as "kill"; `global_step` is None if no worker had reported a step."""

    wall_time: float
    event: str
    task: str
    global_step: int | None = None


class TaskLines(NamedTuple):
    """The lines in the metrics of one task; reports without a loss are left out."""

    reports: list[ReportLine]
    evaluations: list[EvaluationLine]
    events: list[EventLine]


_KINDS = {
    int: json_files.NUMBER,
    float: json_files.NUMBER,
    str: json_files.TEXT,
    Mapping: json_files.OBJECT,
    list: json_files.LIST,
    type(None): json_files.NULL,
}

T = TypeVar("T", ReportLine, StepRecord, EvaluationLine, EventLine)


def read_metrics(path: pathlib.Path) -> TaskLines:
    """Reads the metrics of a task.

    Raises:
        RunError: A line is damaged, lacks a field, or has one of another type.
    """
    lines = json_files.read_lines(path)
    reports = [report for report in _records(path, lines, ReportLine, "train") if report.loss is not None]
    return TaskLines(
        reports, list(_records(path, lines, EvaluationLine, "eval")), list(_records(path, lines, EventLine, "event"))
    )


def read_steps(path: pathlib.Path) -> list[StepRecord]:
    """Reads the step log of a worker; without such a file it has no steps.

    Raises:
        RunError: A line is damaged, lacks a field, or has one of another type.
    """
    lines = json_files.read_lines(path) if path.is_file() else []
    return list(_records(path, lines, StepRecord, None))


def _records(
    path: pathlib.Path, lines: Sequence[Mapping[str, Any]], record_type: type[T], kind: str | None
) -> Iterator[T]:
    """Yields the lines of a kind as records; `kind` is None in a file whose lines have none."""
    kinds_of = _kinds_of(record_type)
    for number, line in enumerate(lines, start=1):
        if line.get("kind") == kind:
            yield _record(record_type, line, kinds_of, f"{path}, line {number}")


def _record(record_type: type[T], line: Mapping[str, Any], kinds_of: Mapping[str, tuple[type, ...]], where: str) -> T:
    missing = [name for name in record_type._fields if name not in line and name not in record_type._field_defaults]
    if missing:
        raise RunError(f"{where} has no field {missing[0]!r}; restore the file or remove the line")
    for name, kinds in kinds_of.items():
        if name in line and not isinstance(line[name], kinds):
            json_files.check_kind(line[name], kinds, f"{where}: {name!r}")
    # The only objects are metrics by name.
    for metrics in (line[name] for name in record_type._fields if isinstance(line.get(name), dict)):
        for name, value in metrics.items():
            json_files.check_kind(value, (*json_files.NUMBER, *json_files.NULL), f"{where}: {name!r}")
    return record_type(**{name: line[name] for name in record_type._fields if name in line})


def _kinds_of(record_type: type[Any]) -> dict[str, tuple[type, ...]]:
    """Returns the kinds of JSON values that each field of a record may have."""
    found = {}
    for name, hint in typing.get_type_hints(record_type).items():
        hints = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        kinds = [kind for one in hints for kind in _KINDS[typing.get_origin(one) or one]]
        # A loss that is NaN or infinite is null.
        found[name] = (*kinds, *(json_files.NULL if name == "loss" else ()))
    return found
