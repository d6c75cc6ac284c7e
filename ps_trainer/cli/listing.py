"""`ps_trainer list`: prints tables of the registered components, or describes one of them in full."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import sys
import textwrap
import typing
from collections.abc import Iterator, Sequence

from ps_trainer import component_tables
from ps_trainer.cli import component_docs
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import help as help_lib
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.errors import EXIT_DONE, UsageError, did_you_mean
from ps_trainer.options import format_value, key_of
from ps_trainer.registry import Registry

_MIN_WIDTH = 40

HELP = CommandHelp(
    usage=("ps_trainer list [KIND | NAME …]",),
    text="Prints a table of the components of each kind. KIND prints one table, NAME describes one component in full:"
    " its source, its options with defaults and ranges, and an example.\n\n"
    f"KIND is one of {', '.join(component_tables.REGISTRIES)}.",
    examples=(
        ("ps_trainer list", "every component, with one line about each"),
        ("ps_trainer list updates", "the update rules"),
        ("ps_trainer list ssp", "one update rule in full"),
    ),
    words=(
        *component_tables.REGISTRIES,
        *dict.fromkeys(name for table in component_tables.REGISTRIES.values() for name in table.names()),
    ),
)


def main_list(argv: Sequence[str]) -> int:
    """Prints the tables or components that `argv` names, or all tables if it names none; returns the exit code."""
    return run_main(lambda: _run(argv))


def table(kind: str, width: int | None) -> str:
    """Returns the names and summaries of the components of one kind, without importing them.

    Args:
        kind: Key of `component_tables.REGISTRIES`.
        width: Columns of the terminal; None prints each component on one line, for other programs.
    """
    components = component_tables.REGISTRIES[kind]
    names = components.names()
    column = max(map(len, names)) + 2
    lines = [f"{kind}: --{components.flag}=NAME", ""]
    for name in names:
        lines += _format_hanging(f"  {name.ljust(column)}", component_docs.summary(components, name), width)
    return "\n".join(lines)


def describe(kind: str, name: str, width: int | None) -> str:
    """Returns a component in full: its description, options with defaults and ranges, and an example.

    Imports the component, and often TensorFlow with it.

    Args:
        kind: Key of `component_tables.REGISTRIES`.
        name: Name of the component.
        width: Columns of the terminal; None wraps nothing.
    """
    components = component_tables.REGISTRIES[kind]
    cls = components.load(name)
    lines = [f"{name}: {components.kind}, --{components.flag}={name}", ""]
    for line in component_docs.description(cls).splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines += _format_hanging(indent, line.strip(), width)
    options = getattr(cls, "Options", None)
    if options is not None and dataclasses.fields(options):
        form = f"{name}:KEY=VALUE,…" if components.has_inline_options else "KEY=VALUE"
        flag = components.flag if components.has_inline_options else f"{components.flag}_option"
        lines += ["", f"Options, with their defaults (--{flag}={form}):", *_option_table(options, width)]
    if kind == "models":
        from ps_trainer.training import model_defaults

        lines += ["", "Without flags about the optimizer it trains with:"]
        lines += _format_hanging("  ", model_defaults.text_of(cls), width)
        for line in model_defaults.preset_lines(cls):
            lines += ["", *_format_hanging("  ", line, width)]
    return "\n".join([*lines, "", "Example:", f"  {component_docs.example(kind, name)}"])


def describe_one(name: str, documented: object, options_type: type | None, flag: str) -> list[str]:
    """Describes one generator of data in lines: its name, the first line of its docstring, its options.

    Args:
        name: Registered name.
        documented: Object with the docstring.
        options_type: Dataclass of the options, or None.
        flag: Text before `key=value` on the command line, with the space between them.
    """
    summary = (inspect.getdoc(documented) or "").partition("\n")[0]
    lines = [f"  {name.ljust(15)} {summary}".rstrip()]
    if options_type is not None:
        hints = typing.get_type_hints(options_type)
        for field in dataclasses.fields(options_type):
            text = f"{' ' * 18}{flag}{key_of(field)}={format_value(field.default)}"
            values = help_lib.values_of(field, hints[field.name])
            lines.append(f"{text}  {field.metadata.get('help', '')} ({values})")
    return lines


def _run(argv: Sequence[str]) -> int:
    flags_lib.parse(["list", *[arg for arg in argv[1:] if arg.startswith("-")]], HELP)
    asked = [arg for arg in argv[1:] if not arg.startswith("-")]
    wanted = [_find(word) for word in asked]
    width = max(_MIN_WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
    if not asked:
        tables = [table(kind, width) for kind in component_tables.REGISTRIES]
        print("\n\n".join([*tables, "`ps_trainer list NAME` describes one in full, with its options and an example."]))
        return EXIT_DONE
    texts = []
    for kinds, name in wanted:
        if name is None:
            texts += [table(kind, width) for kind in kinds]
            continue
        with importing_tensorflow():
            texts += [describe(kind, name, width) for kind in kinds]
    print("\n\n".join(texts))
    return EXIT_DONE


def _find(word: str) -> tuple[list[str], str | None]:
    """Returns the kinds that `word` names, or the kinds that have a component of this name, and the name.

    Raises:
        UsageError: Nothing has this name.
    """
    tables = component_tables.REGISTRIES
    for kind, components in tables.items():
        if word in _names_of(kind, components):
            return [kind], None
    kinds = [kind for kind, components in tables.items() if word in components.names()]
    if kinds:
        return kinds, word
    every = [*tables, *(name for components in tables.values() for name in components.names())]
    raise UsageError(
        f"list {word}: no kind and no component has this name; {did_you_mean(word, every)}kinds: {', '.join(tables)};"
        " `ps_trainer list` prints all names"
    )


def _names_of(kind: str, components: Registry) -> set[str]:
    """Returns the names by which a user may call a kind: updates, update, --update, "update rule"."""
    return {kind, kind.removesuffix("s"), components.flag, components.kind, f"{components.kind}s"}


def _option_table(options: type, width: int | None) -> Iterator[str]:
    hints = typing.get_type_hints(options)
    fields = dataclasses.fields(options)
    heads = [f"  {key_of(field)}={format_value(field.default)}" for field in fields]
    column = min(28, max(map(len, heads), default=0)) + 2
    for head, field in zip(heads, fields, strict=True):
        text = f"{field.metadata.get('help', '')} ({help_lib.values_of(field, hints[field.name])})"
        yield from _format_hanging(head.ljust(column - 2) + "  ", text, width, column)


def _format_hanging(head: str, text: str, width: int | None, column: int | None = None) -> list[str]:
    """Returns `head` and `text`, wrapped to `width` below the beginning of `text`."""
    if width is None or len(head) + len(text) <= width:
        return [(head + text).rstrip()]
    indent = " " * (column or len(head))
    return textwrap.wrap(
        text, max(width, len(indent) + 20), initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    )
