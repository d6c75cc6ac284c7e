"""Reads the JSON files and the JSON-lines files that the tasks of a run write."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from ps_trainer.errors import RunError


def read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """The JSON objects of a file with one on each line.

    A last line without its end is left out: a task is writing it at this moment, or was killed meanwhile.

    Raises:
        RunError: a line is damaged; gives its number.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    return [_object(line, path, number) for number, line in enumerate(lines, start=1)]


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """The JSON object of a file; empty if there is no such file.

    Raises:
        RunError: the file is damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunError(f"{path} is not JSON ({error}); restore it or remove it") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is not a JSON object; restore it or remove it")
    return content


def _object(line: bytes, path: pathlib.Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except ValueError as error:
        raise RunError(f"{path}, line {number} is not JSON ({error}); restore the file or remove the line") from error
    if not isinstance(record, dict):
        raise RunError(f"{path}, line {number} is not a JSON object; restore the file or remove the line")
    return record
