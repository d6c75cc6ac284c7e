"""`ps_trainer list`: prints the registered components and their options."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator, Sequence

from ps_trainer import component_tables
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import help as help_lib
from ps_trainer.cli.command_wrapper import hidden_stderr, quiet_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.errors import UsageError, did_you_mean
from ps_trainer.options import format_value, key_of

_NAME_COLUMN = 16


HELP = CommandHelp(
    usage=("ps_trainer list [KIND …]",),
    text="Prints names, one-line summaries, and options with type and default.\n\n"
    f"KIND is one of {', '.join(component_tables.REGISTRIES)}.",
    examples=(("ps_trainer list", "everything"), ("ps_trainer list updates", "one kind")),
    words=tuple(component_tables.REGISTRIES),
)


def main_list(argv: Sequence[str]) -> int:
    """Prints the components of the kinds in `argv`, or of all kinds if it names none; returns the exit code."""
    return run_main(lambda: _run(argv))


def describe(kind: str) -> str:
    """Name, summary and options of every component of one kind, as text.

    Imports the components, and TensorFlow with them.

    Args:
        kind: Key of `component_tables.REGISTRIES`.
    """
    components = component_tables.REGISTRIES[kind]
    lines = [f"{kind} (--{components.flag})"]
    for name in components.names():
        cls = components.load(name)
        flag = f"--{components.flag} {name}:" if components.has_inline_options else f"--{components.flag}_option "
        lines += describe_one(name, cls, getattr(cls, "Options", None), flag)
    return "\n".join(lines)


def describe_one(name: str, documented: object, options_type: type | None, flag: str) -> list[str]:
    """Lines about one component: its name, the first line of its docstring, its options.

    Args:
        name: Registered name of the component.
        documented: Object with the docstring.
        options_type: Dataclass of the options, or None.
        flag: Text before `key=value` on the command line, with the space between them.
    """
    summary = (inspect.getdoc(documented) or "").partition("\n")[0]
    return [f"  {name.ljust(_NAME_COLUMN - 1)} {summary}".rstrip(), *_option_lines(options_type, flag)]


def _run(argv: Sequence[str]) -> int:
    kinds = list(argv[1:])
    known = list(component_tables.REGISTRIES)
    flags_lib.show_help_if_asked(argv, HELP)
    for kind in kinds:
        if kind not in known:
            raise UsageError(f"list {kind}: unknown kind; {did_you_mean(kind, known)}known: {', '.join(known)}")
    quiet_tensorflow()
    with hidden_stderr():
        text = "\n\n".join(describe(kind) for kind in kinds or known)
    print(text)
    return 0


def _option_lines(options_type: type | None, flag: str) -> Iterator[str]:
    if options_type is None:
        return
    hints = typing.get_type_hints(options_type)
    for field in dataclasses.fields(options_type):
        text = f"{' ' * (2 + _NAME_COLUMN)}{flag}{key_of(field)}={format_value(field.default)}"
        yield f"{text}  {field.metadata.get('help', '')} ({help_lib.values_of(field, hints[field.name])})"
