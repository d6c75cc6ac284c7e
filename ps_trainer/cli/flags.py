"""Command-line flags made from the fields of dataclasses.

A dataclass like `TrainConfig` alone lists its settings. Each field becomes a flag of the same name, type, default and
help text. Each command has its own table of flags. absl's `--flagfile` works.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from absl import flags as absl_flags

from ps_trainer import options as options_lib
from ps_trainer.cli import help as help_lib
from ps_trainer.cli.command_wrapper import HelpRequested
from ps_trainer.cli.help import CommandHelp, is_repeatable
from ps_trainer.errors import UsageError, did_you_mean


class ParsedFlags(NamedTuple):
    """The parsed command line.

    Attributes:
        groups: One instance of each requested dataclass, in the requested order.
        given: Names of the flags that the user gave, on the command line or in a flag file.
    """

    groups: tuple[Any, ...]
    given: frozenset[str]


def parse(argv: Sequence[str], command: CommandHelp, *groups: type) -> ParsedFlags:
    """Parses `argv` into instances of the dataclasses `groups`.

    Args:
        argv: Program name and arguments.
        command: The command, for the help text.
        *groups: Dataclasses as `ps_trainer.options` describes them, with disjoint field names. They may be some of the
            command's.

    Raises:
        HelpRequested: The user asked for help, which is printed.
        UsageError: A flag is unknown, a value has a wrong type or range, or an argument is not a flag.
    """
    # absl has --help in its global table only, where it lists the flags of every imported module.
    show_help_if_asked(argv, command)
    # A table for each call: the global one would mix the flags of different commands.
    values = _FlagTable()  # type: ignore[no-untyped-call]  # absl annotates it nowhere
    for group in groups:
        _define(group, values)
    try:
        rest = values(list(argv))[1:]
    except absl_flags.UnrecognizedFlagError as error:
        raise UsageError(_unknown_flag(error.flagname, groups)) from error
    except absl_flags.CantOpenFlagFileError as error:
        raise UsageError(f"--flagfile cannot be read: {str(error).partition('flagfile: ')[2]}") from error
    except absl_flags.Error as error:
        raise UsageError(f"{error}; --helpfull lists all flags") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--flagfile is not UTF-8 text: {error}") from error
    except ValueError as error:  # absl raises it for --noflag=value
        raise UsageError(f"{error}; --helpfull lists all flags") from error
    if rest:
        raise UsageError(
            f"{rest[0]!r} is not a flag; write every argument as --name=value (a bool flag takes its value"
            " only after =); --helpfull lists all flags"
        )
    # A flag with its default value also counts as given: it must override the value in a run's config.json.
    given = frozenset(
        field.name for group in groups for field in dataclasses.fields(group) if values[field.name].present
    )
    return ParsedFlags(tuple(_instance(group, values) for group in groups), given)


def show_help_if_asked(argv: Sequence[str], command: CommandHelp) -> None:
    """Prints the help of a command and raises HelpRequested, if an argument asks for it."""
    is_full = any(arg in help_lib.HELP_FULL for arg in argv[1:])
    if is_full or any(arg in help_lib.HELP for arg in argv[1:]):
        print(help_lib.text(command, is_full=is_full))
        raise HelpRequested


def action_of(argv: Sequence[str], command: CommandHelp, name: str, actions: Collection[str]) -> str:
    """Returns the word after a command that has several actions: `checkpoint info …`.

    Args:
        argv: Program name and arguments.
        command: The command, for the help text.
        name: Name of the command, for messages.
        actions: Names of the known actions.

    Raises:
        HelpRequested: The user asked for help in place of an action.
        UsageError: The action is missing or unknown.
    """
    if len(argv) < 2 or argv[1].startswith("-"):
        parse(argv, command, *command.flags)  # shows help, or raises the error about a wrong flag
        raise UsageError(f"{name}: missing action; choose from {', '.join(actions)}; --help explains them")
    if argv[1] not in actions:
        raise UsageError(f"{name} {argv[1]}: unknown; {did_you_mean(argv[1], actions)}known: {', '.join(actions)}")
    return argv[1]


def to_args(instance: Any, given: Collection[str]) -> list[str]:
    """Returns the flags of `instance` whose names are in `given`, as arguments that parse to the same values."""
    args: list[str] = []
    for field in dataclasses.fields(instance):
        if field.name in given:
            value = getattr(instance, field.name)
            entries = value if is_repeatable(field) else (value,)
            args.extend(f"--{field.name}={options_lib.format_value(entry)}" for entry in entries)
    return args


class _FlagTable(absl_flags.FlagValues):
    """Flags of one call, in which absl searches for no name similar to an unknown one.

    `did_you_mean` does so in a hundredth of the time. absl's search is recursive, and fails for long names.
    """

    def __iter__(self) -> Iterator[str]:
        """Returns no name: absl iterates over the table for that search only."""
        return iter(())


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


_type_hints = functools.cache(typing.get_type_hints)


def _define(group: type, values: absl_flags.FlagValues) -> None:
    hints = _type_hints(group)
    for field in dataclasses.fields(group):
        help_line = field.metadata.get("help", "")
        default: Any = field.default
        if is_repeatable(field):
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


def _unknown_flag(name: str, groups: Sequence[type]) -> str:
    known = ["help", "helpfull", *(field.name for group in groups for field in dataclasses.fields(group))]
    return f"unknown flag --{name}; {did_you_mean(name, known, '--')}--helpfull lists all"
