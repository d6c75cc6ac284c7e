"""Command-line flags made from the fields of dataclasses.

A dataclass like `TrainConfig` alone lists its settings. Each field becomes a flag of the same name, type, default and
help text. Each command has its own table of flags. absl's `--flagfile` works.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from absl import flags as absl_flags

from ps_trainer import options as options_lib
from ps_trainer.cli.command_wrapper import HelpShown
from ps_trainer.errors import UsageError, did_you_mean

_HELP = ("--help", "-h", "-help", "--helpfull")
_HELP_COLUMN = 36


class Parsed(NamedTuple):
    """The parsed command line.

    Attributes:
        groups: One instance of each requested dataclass, in the requested order.
        given: Names of the flags that the user gave, on the command line or in a flag file.
    """

    groups: tuple[Any, ...]
    given: frozenset[str]


def parse(argv: Sequence[str], usage: str, *groups: type) -> Parsed:
    """Instances of the dataclasses `groups`, their fields set from `argv`.

    Args:
        argv: Program name and arguments.
        usage: The typed command ("python run_ps.py") and its purpose, for the help text.
        *groups: Dataclasses as `ps_trainer.options` describes them, with disjoint field names. The first
            paragraph of the docstring heads the group in the help text.

    Raises:
        HelpShown: the user asked for help, which is printed.
        UsageError: a flag is unknown, a value has a wrong type or range, or an argument is not a flag.
    """
    # absl has --help in its global table only, where it lists the flags of every imported module.
    if _asks_for_help(argv):
        print(help_text(usage, *groups))
        raise HelpShown
    # A table for each call: the global one would mix the flags of different commands.
    values = absl_flags.FlagValues()  # type: ignore[no-untyped-call]  # absl annotates it nowhere
    for group in groups:
        _define(group, values)
    try:
        rest = values(list(argv))[1:]
    except absl_flags.UnrecognizedFlagError as error:
        raise UsageError(_unknown_flag(error.flagname, groups)) from error
    except absl_flags.CantOpenFlagFileError as error:
        raise UsageError(f"--flagfile cannot be read: {str(error).partition('flagfile: ')[2]}") from error
    except absl_flags.Error as error:
        raise UsageError(f"{error}; --help lists all flags") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--flagfile is not UTF-8 text: {error}") from error
    except RecursionError as error:  # from absl's recursive search for a similar name
        raise UsageError("the name of a flag has thousands of characters; --help lists all flags") from error
    except ValueError as error:  # absl raises it for --noflag=value
        raise UsageError(f"{error}; --help lists all flags") from error
    if rest:
        raise UsageError(
            f"{rest[0]!r} is not a flag; write every argument as --name=value (a bool flag takes its value"
            " only after =); --help lists all flags"
        )
    # A flag with its default value also counts as given: it must override the value in a run's config.json.
    given = frozenset(name for name in values if values[name].present)
    return Parsed(tuple(_instance(group, values) for group in groups), given)


def action_of(argv: Sequence[str], usage: str, command: str, actions: Collection[str], *groups: type) -> str:
    """The word after a command that has several actions: `checkpoint info …`.

    Args:
        argv: Program name and arguments.
        usage: The typed command and its purpose, for the help text.
        command: Name of the command, for messages.
        actions: Names of the known actions.
        *groups: Dataclasses of the command's flags, for the help text.

    Raises:
        HelpShown: the user asked for help in place of an action.
        UsageError: the action is missing or unknown.
    """
    if len(argv) < 2 or argv[1].startswith("-"):
        parse(argv, usage, *groups)  # shows help, or raises the error about a wrong flag
        raise UsageError(f"{command}: missing action; choose from {', '.join(actions)}; --help explains them")
    if argv[1] not in actions:
        raise UsageError(f"{command} {argv[1]}: unknown; {did_you_mean(argv[1], actions)}known: {', '.join(actions)}")
    return argv[1]


def help_text(usage: str, *groups: type) -> str:
    """The usage, followed by the flags of each group with default, type and help."""
    parts = [f"usage: {usage}"]
    for group in groups:
        summary = (inspect.getdoc(group) or "").split("\n\n")[0].replace("\n", " ")
        hints = typing.get_type_hints(group)
        lines = [_help_line(field, hints[field.name]) for field in dataclasses.fields(group)]
        parts.append("\n".join([summary, *lines]))
    parts.append("  --flagfile=PATH".ljust(_HELP_COLUMN) + "read flags from a file, one a line")
    return "\n\n".join(parts)


def to_args(instance: Any, given: Collection[str]) -> list[str]:
    """The flags of `instance` whose names are in `given`, as arguments that parse to the same values."""
    args: list[str] = []
    for field in dataclasses.fields(instance):
        if field.name in given:
            value = getattr(instance, field.name)
            entries = value if _is_repeatable(field) else (value,)
            args.extend(f"--{field.name}={options_lib.format_value(entry)}" for entry in entries)
    return args


def type_name(hint: Any) -> str:
    """A type hint in words: "int or none", "comma-separated int"."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return " or ".join("none" if arg is type(None) else type_name(arg) for arg in typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return f"comma-separated {type_name(typing.get_args(hint)[0])}"
    return hint.__name__


def values_of(field: dataclasses.Field[Any], hint: Any) -> str:
    """Type and range of a field in words: "int, at least 1"; only the choices if the field has choices."""
    words = options_lib.range_of(field)
    return words if "choices" in field.metadata else ", ".join(filter(None, [type_name(hint), words]))


class _FieldParser(absl_flags.ArgumentParser[Any]):
    """Reads a flag's text as the type of a dataclass field."""

    def __init__(self, name: str, hint: Any):
        super().__init__()
        self._name = name
        self._hint = hint

    def parse(self, argument: Any) -> Any:
        if not isinstance(argument, str):
            return argument  # absl also passes defaults through the parser
        return options_lib.convert(argument, self._hint, f"--{self._name}")


def _define(group: type, values: absl_flags.FlagValues) -> None:
    hints = typing.get_type_hints(group)
    for field in dataclasses.fields(group):
        help_line = field.metadata.get("help", "")
        default: Any = field.default
        if _is_repeatable(field):
            absl_flags.DEFINE_multi_string(field.name, list(default), help_line, flag_values=values)
        elif hints[field.name] is bool:
            absl_flags.DEFINE_boolean(field.name, default, help_line, flag_values=values)
            values[field.name].parser = _FieldParser(field.name, bool)  # for its error message
        else:
            parser = _FieldParser(field.name, hints[field.name])
            absl_flags.DEFINE(parser, field.name, default, help_line, flag_values=values)


def _instance(group: type, values: absl_flags.FlagValues) -> Any:
    given = {field.name: values[field.name].value for field in dataclasses.fields(group)}
    instance = group(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})
    options_lib.check(instance)
    return instance


def _is_repeatable(field: dataclasses.Field[Any]) -> bool:
    return field.metadata.get("is_repeatable", False)


def _asks_for_help(argv: Sequence[str]) -> bool:
    return any(arg in _HELP for arg in argv[1:])


def _unknown_flag(name: str, groups: Sequence[type]) -> str:
    known = [field.name for group in groups for field in dataclasses.fields(group)]
    return f"unknown flag --{name}; {did_you_mean(name, known, '--')}--help lists all"


def _help_line(field: dataclasses.Field[Any], hint: Any) -> str:
    if _is_repeatable(field):
        head, note = f"  --{field.name}=TEXT", "may be repeated"
    elif hint is bool:
        head, note = f"  --[no]{field.name}", f"bool, default {options_lib.format_value(field.default)}"
    else:
        head, note = f"  --{field.name}={options_lib.format_value(field.default)}", values_of(field, hint)
    gap = "\n" + " " * _HELP_COLUMN if len(head) >= _HELP_COLUMN - 1 else ""
    return (head if gap else head.ljust(_HELP_COLUMN)) + gap + f"{field.metadata.get('help', '')} ({note})"
