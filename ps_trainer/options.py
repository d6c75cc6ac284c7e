"""Turns `key=value` strings into a component's typed options.

A component declares its options as a frozen, keyword-only dataclass whose fields have the type `bool`,
`int`, `float`, `str`, `tuple[int, ...]`, `tuple[float, ...]` or `tuple[str, ...]` (written `1,2,3`), or
one of these `| None` (written `none`), each with a default. Checks across fields go into `__post_init__`,
which raises `OptionError`. A field's help text is in `metadata={"help": …}`: see `option`. A key that is a
Python keyword has a field with `_` at its end: `lambda=0.1` sets `lambda_`.
"""

from __future__ import annotations

import dataclasses
import keyword
import types
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

from ps_trainer.errors import OptionError, did_you_mean

T = TypeVar("T")

_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")


def option(default: Any, help_text: str) -> Any:
    """A dataclass field with a default and a help text."""
    return dataclasses.field(default=default, metadata={"help": help_text})


def repeatable(help_text: str, default: tuple[str, ...] = ()) -> Any:
    """A field of a command's flags of which each value is given by a flag of its own, as a value may hold a comma."""
    return dataclasses.field(default=default, metadata={"help": help_text, "is_repeatable": True})


def key_of(field: dataclasses.Field) -> str:
    """The key by which a field is given: its name, without the `_` of a Python keyword's."""
    name = field.name.removesuffix("_")
    return name if keyword.iskeyword(name) else field.name


def parse(options_type: type[T], strings: Sequence[str], flag: str) -> T:
    """An `options_type` with the given fields set and the others at their defaults.

    Args:
        options_type: dataclass as described in the module's docstring.
        strings: `key=value` each.
        flag: the flag they came from ("--update_option"), for messages.

    Raises:
        OptionError: not `key=value`, an unknown or repeated key, a value of the wrong type or range.
    """
    fields = {key_of(field): field for field in dataclasses.fields(options_type)}
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
    try:
        return options_type(**values)
    except OptionError as error:
        raise OptionError(f"{flag}: {error}") from error


def parse_if_any(options_type: type[T] | None, strings: Sequence[str], flag: str, owner: str) -> T | None:
    """`parse`, for a component that may have no options; None then.

    Args:
        options_type: see `parse`; None for a component without options.
        strings: see there.
        flag: see there.
        owner: the component in words ("update rule 'async'"), for messages.

    Raises:
        OptionError: see `parse`; or there are strings, and no options.
    """
    if options_type is not None:
        return parse(options_type, strings, flag)
    if strings:
        raise OptionError(f"{flag} {strings[0]}: {owner} takes no options")
    return None


def convert(text: str, hint: Any, where: str) -> Any:
    """`text` as a value of the type `hint`.

    Raises:
        OptionError: the text is not of that type; the message starts with `where`.
    """
    if "\0" in text:
        raise OptionError(f"{where}: {text!r} holds a null character, which no name or path can have")
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        if text.lower() == "none":
            return None
        return convert(text, next(a for a in typing.get_args(hint) if a is not type(None)), where)
    if typing.get_origin(hint) is tuple:
        return tuple(convert(part, typing.get_args(hint)[0], where) for part in text.split(",") if part)
    if hint is bool:
        if text.lower() in _TRUE + _FALSE:
            return text.lower() in _TRUE
        raise OptionError(f"{where}: {text!r} is not a bool; write true or false")
    try:
        return hint(text)
    except ValueError as error:
        raise OptionError(f"{where}: {text!r} is not of type {hint.__name__}") from error


def _describe(fields: dict[str, dataclasses.Field]) -> str:
    return ", ".join(f"{name} (default {field.default!r})" for name, field in fields.items()) or "none"
