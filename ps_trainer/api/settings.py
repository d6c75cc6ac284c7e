"""Turns the keyword arguments of the API into a `TrainConfig`, and its errors into errors of Python.

Each setting has the name of its flag: `learning_rate=0.05` is `--learning_rate=0.05`. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import operator
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_trainer.config import TrainConfig
from ps_trainer.errors import ArgumentError, ArgumentTypeError, UsageError, did_you_mean
from ps_trainer.options import format_value

# The API takes objects for these, under other names.
_OBJECTS = {"dataset": "data"}
_FLAG = re.compile(r"--(?=[a-z_]+)")


def build_config(given: Mapping[str, Any], owner: str, **components: str) -> TrainConfig:
    """Returns the configuration that keyword arguments describe, checked.

    Args:
        given: Values by name of the flag; settings that are left out keep their defaults.
        owner: The called function, "train()", for messages.
        **components: Names of the model and the dataset, which the caller gives in another form.

    Raises:
        ArgumentTypeError: A name is unknown, or a value is of a wrong type.
        ArgumentError: A value is out of range, or an unknown name of a component.
    """
    fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    check_names(given, fields.keys(), owner)
    hints = typing.get_type_hints(TrainConfig)
    values = {name: convert(name, hints[name], value) for name, value in given.items()}
    config = TrainConfig(**values | components)
    with python_errors():
        config.check(has_batch_size="batch_size" in values)
    return config


def check_names(given: Mapping[str, Any], known: typing.Collection[str], owner: str) -> None:
    """Raises ArgumentTypeError if an argument has an unknown name; the message names the nearest known one."""
    for name in given:
        if name in known and name not in _OBJECTS:
            continue
        if name in _OBJECTS:
            raise ArgumentTypeError(f"{owner} has no argument {name!r}; give {_OBJECTS[name]}=… instead")
        nearest = did_you_mean(name, [*(one for one in known if one not in _OBJECTS), *_OBJECTS.values()])
        raise ArgumentTypeError(
            f"{owner} has no argument {name!r}; {nearest}its arguments have the names of the flags, which"
            " `ps_trainer local --helpfull` lists"
        )


def convert(name: str, hint: Any, value: Any) -> Any:
    """Returns `value` as a value of the type `hint`, the type of the flag `name`.

    Raises:
        ArgumentTypeError: The value is of another type.
    """
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(alternative for alternative in typing.get_args(hint) if alternative is not type(None))
    if typing.get_origin(hint) is tuple:
        return _strings(name, value)
    if hint is bool:
        if isinstance(value, bool) or type(value).__name__ == "bool":  # NumPy's own type
            return bool(value)
    elif hint is int:
        with contextlib.suppress(TypeError):
            if not isinstance(value, bool):
                return operator.index(value)
    elif hint is float:
        if not isinstance(value, bool) and isinstance(value, numbers.Real):
            return float(value)
    elif isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    elif isinstance(value, type):
        return _target(name, value)
    raise ArgumentTypeError(f"{name}={value!r} is of type {type(value).__name__}; give {_describe_type(hint)}")


@contextlib.contextmanager
def python_errors() -> Iterator[None]:
    """Raises ArgumentError for a UsageError of the body; its message names arguments instead of flags."""
    try:
        yield
    except (ArgumentError, ArgumentTypeError):
        raise
    except UsageError as error:
        raise ArgumentError(remove_dashes(str(error))) from error


def remove_dashes(message: str) -> str:
    """Returns a message about flags as one about arguments: "--update=snyc: …" becomes "update=snyc: …"."""
    return _FLAG.sub("", message)


def target_of(cls: Any) -> str:
    """Returns `module:Class` of a class or function, as flags write it; only a label if it cannot be imported."""
    name = re.sub(r"\W", "_", getattr(cls, "__name__", type(cls).__name__))
    module = getattr(cls, "__module__", None) or "__main__"
    if not (name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        return f"__main__:{name if name.isidentifier() else 'object'}"
    return f"{module}:{name}"


def is_importable(cls: Any) -> bool:
    """Returns whether another process finds a class or function by its module and name."""
    module, name = getattr(cls, "__module__", "__main__"), getattr(cls, "__qualname__", "<unknown>")
    return module not in ("__main__", None) and name.isidentifier()


def _target(name: str, cls: type) -> str:
    """Returns `module:Class` of a class that is given for a component which flags name.

    Raises:
        ArgumentTypeError: No module has the class.
    """
    if not is_importable(cls):
        raise ArgumentTypeError(
            f"{name}={cls.__qualname__}: this class is not in a module that a task could import; write it into a"
            " separate file, import it from there, or give the name of a component"
        )
    return target_of(cls)


def _strings(name: str, value: Any) -> tuple[str, ...]:
    """Returns the values of a flag that may be repeated: a mapping of options, one text, or a sequence of texts."""
    if isinstance(value, Mapping):
        return tuple(f"{key}={format_value(one)}" for key, one in value.items())
    entries = [value] if isinstance(value, (str, type)) else value
    if not isinstance(entries, Sequence) or not all(isinstance(entry, (str, type)) for entry in entries):
        form = "a dict of options" if name.endswith("_option") else "a text or a list of texts"
        raise ArgumentTypeError(f"{name}={value!r} is of type {type(value).__name__}; give {form}")
    return tuple(_target(name, entry) if isinstance(entry, type) else entry for entry in entries)


def _describe_type(hint: Any) -> str:
    return {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}.get(hint, str(hint))
