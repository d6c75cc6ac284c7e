"""Turns `key=value` strings into a component's typed options, and checks that each value is in its range.

A component declares its options as a frozen, keyword-only dataclass. Every field has a default, and its type is `bool`,
`int`, `float`, `str`, `tuple[int, ...]`, `tuple[float, ...]` or `tuple[str, ...]` (written `1,2,3`), or
one of these `| None` (written `none`). `option` declares a field with help text and range.
`parse` and `check` reject a value outside of the range. So `__post_init__` only compares fields with each other, and
raises `OptionError`. The field for a key that is a Python keyword ends in `_`: `lambda=0.1` sets `lambda_`.
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import operator
import types
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ps_trainer.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance  # the type of any dataclass; only type checkers have this module

T = TypeVar("T", bound="DataclassInstance")

# TensorFlow's counters are int64; a larger value would fail inside of it, without the name of the option.
MAX_INT = 2**63 - 1

_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "least": ("at least", operator.ge),
    "above": ("above", operator.gt),
    "most": ("at most", operator.le),
    "below": ("below", operator.lt),
}


def option(default: Any, help_text: str, **declared: Any) -> Any:
    """Returns a dataclass field with a default, a help text and a range.

    The range applies to each value of a tuple, and `none` is always allowed. A float must be finite unless the field
    declares `most=math.inf`.

    Args:
        default: Default value of the field.
        help_text: Help for the user, without the range, which help texts add.
        **declared: Inclusive bounds `least` and `most`, exclusive bounds `above` and `below`, or all allowed values as
            `choices`; in `TrainConfig` also the reason why a setting is `shared` by all workers or a worker's `own`.
    """
    return dataclasses.field(default=default, metadata={"help": help_text, **declared})


def repeatable(help_text: str, default: tuple[str, ...] = (), **declared: Any) -> Any:
    """Returns a field of several values; the user repeats the flag for each, because a value may contain a comma."""
    return option(default, help_text, is_repeatable=True, **declared)


def same_as(owner: type, name: str, **changed: Any) -> Any:
    """Returns a dataclass field with the default, help text and range of a field of another dataclass.

    Args:
        owner: Dataclass that declares the field.
        name: Name of that field.
        **changed: Arguments of `dataclasses.field` that differ.
    """
    field = next(field for field in dataclasses.fields(owner) if field.name == name)
    return dataclasses.field(**{"default": field.default, "metadata": field.metadata, **changed})


def range_of(field: dataclasses.Field[Any]) -> str:
    """Returns the declared range in words, "at least 0 and below 1"; empty without a declared range.

    A limit of infinity only says that the number may be infinite, so it is left out.
    """
    if "choices" in field.metadata:
        return f"one of {', '.join(map(str, field.metadata['choices']))}"
    limits = {name: field.metadata[name] for name in _BOUNDS if field.metadata.get(name, math.inf) != math.inf}
    return " and ".join(f"{_BOUNDS[name][0]} {limit}" for name, limit in limits.items())


def check(options: Any, prefix: str = "--") -> None:
    """Checks every field of a dataclass; messages put `prefix` before `key=value`.

    Raises:
        OptionError: A value is outside of its range.
    """
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        _check_value(field, value, f"{prefix}{key_of(field)}={value}")


def key_of(field: dataclasses.Field[Any]) -> str:
    """Returns the key of a field for the user: its name, without the final `_` if the rest is a Python keyword."""
    name = field.name.removesuffix("_")
    return name if keyword.iskeyword(name) else field.name


def parse(options_type: type[T], strings: Sequence[str], flag: str) -> T:
    """Returns an `options_type` with the given fields set and the others at their defaults.

    Args:
        options_type: Dataclass as the module's docstring describes it.
        strings: Strings of the form `key=value`.
        flag: Flag that they came from ("--update_option"), for messages.

    Raises:
        OptionError: A string is not `key=value`, a key is unknown or repeated, or a value has a wrong type or range.
    """
    fields = {key_of(field): field for field in dataclasses.fields(options_type)}
    # `field.type` is a string, because of `from __future__ import annotations`.
    hints = typing.get_type_hints(options_type)
    values: dict[str, Any] = {}
    for string in strings:
        key, equals, text = string.partition("=")
        if not equals:
            raise OptionError(f"{flag} {string!r}: write key=value; keys: {_describe(fields)}")
        if key not in fields:
            raise OptionError(
                f"{flag} {string}: unknown key {key!r}; {did_you_mean(key, fields)}keys: {_describe(fields)}"
            )
        name = fields[key].name
        if name in values:
            raise OptionError(f"{flag} {string}: {key!r} is given twice; give it once")
        values[name] = convert(text, hints[name], f"{flag} {string}")
        _check_value(fields[key], values[name], f"{flag} {string}")
    try:
        return options_type(**values)
    except OptionError as error:
        # `__post_init__` does not know which flag the options came from.
        raise OptionError(f"{flag}: {error}") from error


def parse_if_any(options_type: type[T] | None, strings: Sequence[str], flag: str, owner: str) -> T | None:
    """Parses as `parse` does, but for a component that may have no options; the result is None then.

    Args:
        options_type: Dataclass of the options; None for a component without options.
        strings: Strings of the form `key=value`.
        flag: Flag that they came from ("--update_option"), for messages.
        owner: The component in words ("update rule 'async'"), for messages.

    Raises:
        OptionError: `parse` rejects a string, or there are strings for a component without options.
    """
    if options_type is not None:
        return parse(options_type, strings, flag)
    if strings:
        raise OptionError(f"{flag} {strings[0]}: {owner} takes no options")
    return None


def convert(text: str, hint: Any, where: str) -> Any:
    """Returns `text` as a value of the type `hint`.

    Raises:
        OptionError: The text is not of that type; the message starts with `where`.
    """
    if "\0" in text:
        raise OptionError(f"{where}: {text!r} contains a null character, which names and paths cannot contain")
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        if text.lower() == "none":
            return None
        return convert(text, next(a for a in typing.get_args(hint) if a is not type(None)), where)
    if typing.get_origin(hint) is tuple:
        # An empty text means no values: `crosses=`.
        return tuple(convert(part, typing.get_args(hint)[0], where) for part in text.split(",") if part)
    # `bool("false")` is True, so bools need their own words.
    if hint is bool:
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise OptionError(f"{where}: {text!r} is not a bool; write true or false")
    try:
        return hint(text)
    except ValueError as error:
        raise OptionError(f"{where}: {text!r} is not of type {hint.__name__}") from error


def format_value(value: Any) -> str:
    """Returns `value` as a user writes it on a command line; `convert` reads it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(format_value(entry) for entry in value)
    return str(value)


def _check_value(field: dataclasses.Field[Any], value: Any, where: str) -> None:
    values = value if isinstance(value, tuple) else (value,)
    wrong = [element for element in values if not _is_in_range(element, field)]
    if wrong:
        key = key_of(field)
        nearest = did_you_mean(str(wrong[0]), map(str, field.metadata.get("choices", ())))
        each = "each value of " if isinstance(value, tuple) else ""
        raise OptionError(
            f"{where}: {nearest}{each}{key} must be {_allowed_values(field, wrong[0])}{_default_of(field)}"
        )


def _is_in_range(value: Any, field: dataclasses.Field[Any]) -> bool:
    """Returns whether one value is in the range of its field; NaN never is, as every comparison with it is false."""
    if value is None or isinstance(value, bool):
        return True
    if "choices" in field.metadata:
        return value in field.metadata["choices"]
    return not _limit_of_type(field, value) and all(
        holds(value, field.metadata[name]) for name, (_, holds) in _BOUNDS.items() if name in field.metadata
    )


def _default_of(field: dataclasses.Field[Any]) -> str:
    return "" if field.default is dataclasses.MISSING else f"; the default is {format_value(field.default)}"


def _allowed_values(field: dataclasses.Field[Any], value: Any) -> str:
    return " and ".join(filter(None, [range_of(field), _limit_of_type(field, value)]))


def _limit_of_type(field: dataclasses.Field[Any], value: Any) -> str:
    """Returns the limit of a number's type that `value` violates, in words; empty if it violates none."""
    if isinstance(value, float) and not math.isfinite(value) and field.metadata.get("most") != math.inf:
        return "finite"
    if isinstance(value, int) and abs(value) > MAX_INT:
        return f"at most {MAX_INT}"
    return ""


def _describe(fields: dict[str, dataclasses.Field[Any]]) -> str:
    return ", ".join(f"{name} (default {field.default!r})" for name, field in fields.items()) or "none"
