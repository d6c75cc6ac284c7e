"""The help of a command: `--help` shows examples and the common flags, `--helpfull` every flag with its whole text."""

from __future__ import annotations

import copy
import dataclasses
import re
import shutil
import sys
import textwrap
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ps_trainer import component_tables
from ps_trainer import options as options_lib
from ps_trainer.cli.help_groups import GROUPS, PATHS
from ps_trainer.registry import Registry

HELP = ("--help", "-h", "-help", "-?")
HELP_FULL = ("--helpfull", "-helpfull")

_WIDTH = 100
_COLUMN = 32
_LIST = "`ps_trainer list` describes all components (models, datasets, update rules, …) and their options."
_FLAG_FILE = ("flagfile=PATH", "read flags from a file, one a line")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandHelp:
    """The help of a command, and the flags that the command takes.

    Attributes:
        usage: Forms of the typed command.
        text: The command's work: paragraphs, and items that begin with a word and two spaces.
        examples: Pairs of a command that works as it stands, and its purpose.
        flags: Dataclasses of the flags, as `ps_trainer.options` describes them.
        common: Names of the flags that `--help` shows; None = those that `help_groups.GROUPS` calls common.
        shows_only_common: Whether the help and the completion leave out all flags but `common`. The command accepts the
            others, which have no effect, so that settings of a run may stay in its line.
        own_texts: Help of the flags that mean something else in this command: name of the flag -> text. The text also
            says what the command does without the flag.
        words: Arguments that are not flags, for shell completion: the actions or names after the command.
        words_after: Arguments after such a word, if they differ from `words`.
    """

    usage: tuple[str, ...]
    text: str
    examples: tuple[tuple[str, str], ...] = ()
    flags: tuple[type, ...] = ()
    common: tuple[str, ...] | None = None
    shows_only_common: bool = False
    own_texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    words: tuple[str, ...] = ()
    words_after: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def fields(self) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
        """Returns the field and type hint of each flag that has an effect, by name."""
        found = {}
        for group in self.flags:
            hints = typing.get_type_hints(group)
            found.update(
                {field.name: (self._own_field(field), hints[field.name]) for field in dataclasses.fields(group)}
            )
        if self.shows_only_common:
            return {name: flag for name, flag in found.items() if name in (self.common or ())}
        return found

    def _own_field(self, field: dataclasses.Field[Any]) -> dataclasses.Field[Any]:
        """Returns the field as this command describes it."""
        if field.name not in self.own_texts:
            return field
        copied = copy.copy(field)
        copied.metadata = types.MappingProxyType(
            {**field.metadata, "help": self.own_texts[field.name], "has_own_text": True}
        )
        if not is_repeatable(field):
            copied.default = None
        return copied


def text(command: CommandHelp, *, is_full: bool, width: int | None = None) -> str:
    """Returns the help of a command.

    Args:
        command: The command.
        is_full: True for every flag with its whole text, False for the common flags on one line each.
        width: Columns of the text; None = those of the terminal, at most 100, and 100 without a terminal.
    """
    width = width or _terminal_width()
    parts = ["usage: " + "\n       ".join(command.usage), _wrap(command.text, width)]
    if command.examples:
        parts.append("Examples:\n" + "\n".join(_examples(command.examples)))
    fields = command.fields()
    if fields:
        shown = list(fields) if is_full else _common(command, fields)
        parts.append(_heading(len(shown), len(fields)))
        for title, names in _group_flags(shown):
            lines = [_flag_lines(*fields[name], is_full=is_full, width=width) for name in names]
            parts.append("\n".join([f"{title}:", *lines]))
        if any(table_of(name) for name in shown):
            parts.append(_wrap(_LIST, width))
        if is_full:
            parts.append("Any flag:\n" + _two_columns(f"--{_FLAG_FILE[0]}", _FLAG_FILE[1], width))
    return "\n\n".join(parts)


def type_name(hint: Any) -> str:
    """Returns a type hint in words: "int or none", "comma-separated int"."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join("none" if arg is type(None) else type_name(arg) for arg in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"comma-separated {type_name(typing.get_args(hint)[0])}"
    return hint.__name__


def values_of(field: dataclasses.Field[Any], hint: Any) -> str:
    """Returns the type and range of a field in words: "int, at least 1"; only the choices if the field has choices."""
    words = options_lib.range_of(field)
    return words if "choices" in field.metadata else ", ".join(filter(None, [type_name(hint), words]))


def is_repeatable(field: dataclasses.Field[Any]) -> bool:
    """Returns whether the user repeats the flag of this field for each value."""
    return field.metadata.get("is_repeatable", False)


def is_none_default(field: dataclasses.Field[Any], hint: Any) -> bool:
    """Returns whether the default is none and the command's help text does not say what happens without the flag."""
    is_optional = type(None) in typing.get_args(hint)
    return field.default is None and is_optional and "has_own_text" not in field.metadata


def table_of(name: str) -> Registry | None:
    """Returns the table of the components whose names a flag takes; None for another flag."""
    name = {"compute": "straggler"}.get(name, name)
    return next((table for table in component_tables.REGISTRIES.values() if table.flag == name), None)


def _heading(num_shown: int, num_flags: int) -> str:
    if num_shown == num_flags:
        return "Flags, with their defaults:"
    return f"Common flags, with their defaults (--helpfull describes all {num_flags}):"


def _common(command: CommandHelp, fields: Mapping[str, object]) -> list[str]:
    names = command.common if command.common is not None else [name for group in GROUPS for name in group.common]
    return [name for name in names if name in fields]


def _group_flags(shown: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields each heading with its flags; flags that no group names come last, so that none is missing."""
    rest = list(shown)
    for group in GROUPS:
        names = [name for name in (*group.common, *group.further) if name in shown]
        rest = [name for name in rest if name not in names]
        if names:
            yield group.title, names
    if rest:
        yield "Other", rest


def _wrap(text: str, width: int) -> str:
    paragraphs = [re.split(r"\n(?=\w+ {2,})", paragraph) for paragraph in text.split("\n\n")]
    return "\n\n".join("\n".join(_format_item(lines, width) for lines in items) for items in paragraphs)


def _format_item(lines: str, width: int) -> str:
    """Returns one paragraph, or one item with its text in a second column."""
    match = re.match(r"\w+ {2,}", lines)
    head = match[0] if match else ""
    words = " ".join(lines[len(head) :].split())
    return textwrap.fill(words, width, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)


def _examples(examples: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for line, purpose in examples:
        yield f"  # {purpose}"
        yield f"  {line}"


def _flag_lines(field: dataclasses.Field[Any], hint: Any, *, is_full: bool, width: int) -> str:
    head, words = _head(field, hint), field.metadata.get("help", "")
    if not is_full:
        # The words after the first semicolon are a detail.
        return _two_columns(head, words if len(words) <= width - _COLUMN else words.partition(";")[0], width)
    return _two_columns(head, f"{words} ({'; '.join(_describe_values(field, hint))})", width)


def _describe_values(field: dataclasses.Field[Any], hint: Any) -> Iterator[str]:
    """Returns the names, type, range and default, as far as the line of the flag does not show them."""
    table = table_of(field.name)
    if table is not None and table.names():
        yield f"{', '.join(table.names())}, or package.module:Class"
    elif is_repeatable(field):
        pass
    elif hint is bool:
        yield "bool"
    else:
        yield values_of(field, hint)
    if is_repeatable(field):
        yield "may be repeated"
    if is_none_default(field, hint) or hint is bool or (is_repeatable(field) and field.default):
        yield f"default {options_lib.format_value(field.default)}"


def _head(field: dataclasses.Field[Any], hint: Any) -> str:
    if hint is bool:
        return f"--[no]{field.name}"
    if is_repeatable(field) or field.default is None:
        return f"--{field.name}={_placeholder(field, hint)}"
    return f"--{field.name}={options_lib.format_value(field.default)}"


def _placeholder(field: dataclasses.Field[Any], hint: Any) -> str:
    """Returns a word for the value of a flag without a default value."""
    if field.name in PATHS:
        return "PATH"
    if field.name.endswith("option"):
        return "KEY=VALUE"
    if table_of(field.name) and not is_repeatable(field):
        return "NAME"
    numbers = {int: "N", float: "X"}
    return next((numbers[kind] for kind in (hint, *typing.get_args(hint)) if kind in numbers), "TEXT")


def _two_columns(head: str, description: str, width: int) -> str:
    first = f"  {head}".ljust(_COLUMN)
    lines = textwrap.wrap(description, width - _COLUMN, break_long_words=False, break_on_hyphens=False)
    if len(first) > _COLUMN or first[-1] != " ":
        lines = ["", *lines]
    return ("\n" + " " * _COLUMN).join([first.rstrip() if not lines[0] else first + lines[0], *lines[1:]])


def _terminal_width() -> int:
    if not sys.stdout.isatty():
        return _WIDTH
    return max(_COLUMN + 30, min(_WIDTH, shutil.get_terminal_size().columns))
