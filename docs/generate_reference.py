"""Writes the generated pages of `docs/reference/` from the code: the command line, every component, the Python API.

    python docs/generate_reference.py            # writes the pages
    python docs/generate_reference.py --check    # exits with 1 if a page is out of date

A test calls the check, so the pages never contradict the code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import pathlib
import sys
import typing
from collections.abc import Iterator
from typing import Any

import ps_trainer
from ps_trainer import component_tables
from ps_trainer.cli import component_docs, task
from ps_trainer.cli import help as help_lib
from ps_trainer.cli import main as cli
from ps_trainer.cli.help_groups import GROUPS
from ps_trainer.config import TrainConfig
from ps_trainer.options import format_value, key_of
from ps_trainer.registry import Registry
from ps_trainer.training import model_defaults

FOLDER = pathlib.Path(__file__).resolve().parent / "reference"
NOTE = "<!-- Written by docs/generate_reference.py. Do not edit this page: change the code's docstrings. -->\n"

# Page -> title, introduction and the tables of components on it.
COMPONENT_PAGES = {
    "models": (
        "Models",
        "Values of `--model`. [Accuracy of each model](model-accuracy.md) says what each one reaches.\n\n"
        "*Defaults of a run* are the settings with which a model trains if you give no flag about them. The command"
        " prints them at its start, and `config.json` records them.\n\n"
        "* `--batch_size` replaces only the batch size.\n"
        "* A flag about the optimizer (`--optimizer`, `--optimizer_option`, `--optimizer_for`, `--learning_rate`,"
        " `--schedule`, `--schedule_option`) replaces all of them. For what you do not give,"
        " [all flags](cli.md#all-flags) has the defaults.\n"
        "* An update rule or gradient transform that rejects the optimizer keeps only the batch size.\n"
        "* `--preset=paper` takes the settings of the model's publication instead, with its sizes and, where it is"
        " stated, its length. Any other flag that you give comes first; `--model_option` replaces single options. A run"
        " that continues keeps its preset, and an update rule that rejects the optimizer is an error.\n"
        "* A run that continues from checkpoints keeps what its `config.json` has recorded.",
        [component_tables.MODELS],
    ),
    "datasets": (
        "Datasets",
        "Values of `--dataset`. `ps_trainer data info PATH` names the dataset that reads a file.",
        [component_tables.DATASETS],
    ),
    "update-rules": (
        "Update rules",
        "Values of `--update`: how gradients become updates. [Update rules explained](../explanation/update-rules.md)"
        " helps to choose one.",
        [component_tables.UPDATES],
    ),
    "gradient-transforms": (
        "Gradient transforms",
        "Values of `--gradient_transform`: what a worker does to a gradient before it sends it."
        " [Gradient transforms explained](../explanation/gradient-transforms.md) says how to combine them.",
        [component_tables.GRADIENT_TRANSFORMS],
    ),
    "optimizers": (
        "Optimizers and schedules",
        "Values of `--optimizer`, `--optimizer_for` and `--schedule`. The ps tasks apply them.",
        [component_tables.OPTIMIZERS, component_tables.SCHEDULES],
    ),
    "layouts": (
        "Layouts",
        "Values of `--layout`: where the parameters lie on the ps tasks."
        " [Why packed is fast](../explanation/why-packed-is-fast.md) compares them.",
        [component_tables.LAYOUTS],
    ),
    "delays": (
        "Delay distributions",
        "Values of `--straggler`, which delays real workers, and of `--compute` of the simulator.",
        [component_tables.DELAYS],
    ),
}


def main(argv: list[str]) -> int:
    """Writes or checks all pages; returns the exit code."""
    pages = {"cli": command_line(), "api": python_api()}
    pages |= {name: components(*page) for name, page in COMPONENT_PAGES.items()}
    outdated = [name for name, text in pages.items() if _text(FOLDER / f"{name}.md") != text]
    if "--check" in argv:
        for name in outdated:
            print(f"docs/reference/{name}.md is out of date; run: python docs/generate_reference.py", file=sys.stderr)
        return 1 if outdated else 0
    for name in outdated:
        (FOLDER / f"{name}.md").write_text(pages[name], encoding="utf-8")
    return 0


def command_line() -> str:
    """The page with the help of each command, and a table of all flags."""
    commands = {name: command.help() for name, command in cli.COMMANDS.items()}
    commands |= {"run_ps.py": task.PS_HELP, "run_worker.py": task.WORKER_HELP}
    parts = [NOTE + "# Command line\n\n" + _code(_help())]
    for name, command in commands.items():
        parts.append(f"## {name}\n\n" + _code(help_lib.text(command, is_full=False, width=100)))
    parts.append("\n".join(_all_flags(commands)))
    return "\n".join(parts)


def python_api() -> str:
    """The page with the names that `import ps_trainer` offers, their parameters and docstrings."""
    parts = [
        f"{NOTE}# Python API\n\nThe names that `import ps_trainer` offers."
        " [Use it from Python](../howto/use-from-python.md) shows them at work.\n"
    ]
    for name in ps_trainer.API:
        value = getattr(ps_trainer, name)
        texts = [f"{name}{_parameters(value)}", inspect.getdoc(value) or ""]
        if inspect.isclass(value):
            texts += [f"{name}.{member}" for member in _members(value)]
        parts.append(f"## {name}\n\n" + _code("\n\n".join(texts)))
    return "\n".join(parts)


def _parameters(value: Any) -> str:
    """The parameters of a function or class with their defaults, but without types, which the docstring gives."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return ""
    if inspect.isabstract(value) or not (inspect.isfunction(value) or inspect.isclass(value)):
        return ""
    try:
        signature = inspect.signature(value)
    except ValueError:  # a class without parameters
        return ""
    bare = [
        p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name not in ("self", "args", "kwargs")
    ]
    return str(inspect.Signature([p if "<factory>" not in str(p) else p.replace(default=p.empty) for p in bare]))


def _members(cls: type) -> Iterator[str]:
    """Public methods and properties that the package's classes define, each with its docstring."""
    own = {
        name: member
        for base in reversed(cls.__mro__)
        if base.__module__.startswith("ps_trainer")
        for name, member in vars(base).items()
    }
    for name, member in own.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"{name}\n{_indented(inspect.getdoc(member))}"
        elif inspect.isfunction(member):
            bare = [p.replace(annotation=p.empty) for p in list(inspect.signature(member).parameters.values())[1:]]
            yield f"{name}{inspect.Signature(bare)}\n{_indented(inspect.getdoc(member))}"


def _indented(text: str | None) -> str:
    return "\n".join(f"    {line}".rstrip() for line in (text or "").splitlines())


def components(title: str, introduction: str, tables: list[Registry]) -> str:
    """The page of one or several tables of components."""
    parts = [f"{NOTE}# {title}\n\n{introduction}\n"]
    for table in tables:
        for name in table.names():
            parts.append("\n".join([f"## {name}\n", *_component(table, name)]))
    return "\n".join(parts)


def _component(table: Registry, name: str) -> Iterator[str]:
    """One component: summary, options, and the rest of its description."""
    cls = table.load(name)
    summary, _, rest = component_docs.description(cls).partition("\n")
    yield f"{summary}\n"
    options = getattr(cls, "Options", None)
    if options is not None and not dataclasses.fields(options):
        yield "It has no options.\n"
    elif options is not None:
        yield "| option | default | meaning |\n|---|---|---|"
        hints = typing.get_type_hints(options)
        for field in dataclasses.fields(options):
            text = f"{field.metadata.get('help', '')} ({help_lib.values_of(field, hints[field.name])})"
            default = format_value(field.default)
            shown = f"`{default}`" if default else "empty"
            yield f"| `{key_of(field)}` | {shown} | {text.replace('|', '&#124;')} |"
        yield ""
    if table is component_tables.MODELS:
        yield f"Defaults of a run: `{model_defaults.text_of(cls)}`\n"
        for line in model_defaults.preset_lines(cls):
            yield f"{line}\n"
    if rest.strip():
        yield _code(rest.strip("\n"))


def _help() -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cli.main(["ps_trainer", "--help"])
    return out.getvalue().strip()


def _all_flags(commands: dict[str, help_lib.CommandHelp]) -> Iterator[str]:
    """A table for each group of flags; a flag that differs among commands has several rows."""
    of_a_run = {name for name, c in commands.items() if TrainConfig in c.flags and not c.shows_only_common}
    yield "## All flags\n"
    yield "`--flagfile=PATH` reads flags of any command from a file, one a line. In the tables, *run* stands for the"
    yield f"commands that take the settings of a run: {', '.join(name for name in commands if name in of_a_run)}."
    for group in GROUPS:
        yield f"\n### {group.title}\n\n| flag | default | meaning | commands |\n|---|---|---|---|"
        for flag in (*group.common, *group.further):
            for row, names in _rows(flag, commands).items():
                run = ["*run*"] if of_a_run <= set(names) else []
                others = [name for name in names if not run or name not in of_a_run]
                yield f"| `--{flag}` | {' | '.join(row)} | {', '.join([*run, *others])} |"


def _rows(flag: str, commands: dict[str, help_lib.CommandHelp]) -> dict[tuple[str, str], list[str]]:
    """(default, meaning) of a flag -> the commands where it is so."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, command in commands.items():
        fields = command.fields()
        if flag in fields:
            field, hint = fields[flag]
            has_none = help_lib.is_none_default(field, hint)
            has_default = has_none or (field.default is not None and field.default != ())
            default = f"`{format_value(field.default)}`" if has_default else ""
            note = "may be repeated" if help_lib.is_repeatable(field) else help_lib.values_of(field, hint)
            meaning = f"{field.metadata.get('help', '')} ({note})".replace("|", "&#124;").replace("<", "&lt;")
            rows.setdefault((default, meaning), []).append(name)
    return rows


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _text(path: pathlib.Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
