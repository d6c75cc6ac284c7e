"""Reads the JSON files and the JSON-lines files that the tasks of a run write."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from ps_trainer.errors import RunError

# Kinds of JSON values, for `member` and `check_kind`.
NUMBER, TEXT, OBJECT, LIST, NULL = (int, float), (str,), (dict,), (list,), (type(None),)
_KIND_NAMES = {dict: "an object", list: "a list", str: "a text", type(None): "null", int: "a number", float: "a number"}
_FIX_FILE = "restore it or remove it"
_FIX_LINE = "restore the file or remove the line"


def read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the JSON objects of a file with one on each line.

    A last line without its end is left out: a task is writing it at this moment, or was killed meanwhile.

    Raises:
        RunError: The file cannot be read, or a line is damaged; gives its number.
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise _unreadable(path, error) from error
    return [_object(line, path, number) for number, line in enumerate(lines, start=1)]


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Returns the JSON object of a file; without such a file an empty one.

    Raises:
        RunError: The file is damaged or cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:
        raise RunError(f"{path} is not JSON ({error}); {_FIX_FILE}") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is not a JSON object; {_FIX_FILE}")
    return content


def member(content: Mapping[str, Any], name: str, kinds: tuple[type, ...], path: pathlib.Path, default: Any) -> Any:
    """Returns a member of an object in the file `path`; `default` if the member is missing or null.

    Raises:
        RunError: The member has none of these types.
    """
    value = content.get(name)
    if value is None:
        return default
    check_kind(value, kinds, f"{path}: {name!r}", _FIX_FILE)
    return value


def check_kind(value: Any, kinds: tuple[type, ...], what: str, fix: str = _FIX_LINE) -> None:
    """Raises RunError if a JSON value has none of the types `kinds`.

    Args:
        value: Value.
        kinds: Allowed types.
        what: Name of the value, for the message.
        fix: What the user has to do about it.
    """
    # For Python True is an int.
    if not isinstance(value, kinds) or isinstance(value, bool):
        got = _KIND_NAMES.get(type(value), "true or false")
        wanted = " or ".join(dict.fromkeys(_KIND_NAMES[kind] for kind in kinds))
        raise RunError(f"{what} is {got}, and must be {wanted}; {fix}")


def _object(line: bytes, path: pathlib.Path, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())
    except ValueError as error:
        raise RunError(f"{path}, line {number} is not JSON ({error}); {_FIX_LINE}") from error
    if not isinstance(record, dict):
        raise RunError(f"{path}, line {number} is not a JSON object; {_FIX_LINE}")
    return record


def _unreadable(path: pathlib.Path, error: OSError) -> RunError:
    return RunError(f"{path} cannot be read: {error.strerror or error}; give this user the right to read it")
