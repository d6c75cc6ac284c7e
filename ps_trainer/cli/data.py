"""`python -m ps_trainer data`: says what data files hold; writes generated sets in the formats that loaders read."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import hidden_stderr, quiet_tensorflow, run_main
from ps_trainer.errors import EXIT_DONE, DataError, UsageError
from ps_trainer.options import option, repeatable

_USAGE = """python -m ps_trainer data info PATH [--all]
       python -m ps_trainer data generate NAME --out=DIR [--option=key=value …]
       python -m ps_trainer data generate list

info      what a file or folder is, how many examples it has, the first of them, and the flags by which a run reads it;
          exit code 2 if it is not known or is broken
generate  writes a generated set into a new folder, in the format in which such data are on disks; `list` names the
          sets and their options"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InfoFlags:
    """For info."""

    all: bool = option(False, "read every example, by which a broken one is found, not only the first ones")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateFlags:
    """For generate."""

    out: str | None = option(None, "folder to write into; it must not exist, or be empty")
    option: tuple[str, ...] = repeatable("key=value, an option of the set")


def main_data(argv: Sequence[str]) -> int:
    """Does what `argv` says; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    action, rest = flags_lib.action_of(argv, _USAGE, "data", _ACTIONS, InfoFlags, GenerateFlags), list(argv[2:])
    return _ACTIONS[action](argv[0], rest)


def _info(program: str, args: list[str]) -> int:
    path = args.pop(0) if args and not args[0].startswith("-") else None
    (given,) = flags_lib.parse([program, *args], _USAGE, InfoFlags).groups
    if path is None:
        raise UsageError("data info: give a file or folder: python -m ps_trainer data info PATH")
    if not pathlib.Path(path).exists():
        raise DataError(f"{path}: no such file or folder")
    _import_tensorflow()

    from ps_trainer.data import info

    with hidden_stderr():
        text = info.describe(pathlib.Path(path), reads_all=given.all)
    print(text)
    return EXIT_DONE


def _generate(program: str, args: list[str]) -> int:
    name = args.pop(0) if args and not args[0].startswith("-") else None
    (given,) = flags_lib.parse([program, *args], _USAGE, GenerateFlags).groups
    if name is None:
        raise UsageError("data generate: name a set; `data generate list` names them all")

    from ps_trainer.data.generators import generate

    if name != "list":
        generate.check_name(name)
        if given.out is None:
            raise UsageError(f"data generate {name}: --out is not given; give a folder, which need not exist")
    _import_tensorflow()
    if name == "list":
        print(describe())
        return EXIT_DONE
    files = generate.generate(name, given.option, pathlib.Path(given.out))
    print("\n".join(f"{file}  {file.stat().st_size} bytes" for file in files))
    return EXIT_DONE


def describe() -> str:
    """The names of all generated sets, each with a summary and its options, as text."""
    from ps_trainer.cli import listing
    from ps_trainer.data.generators import generate

    lines = []
    for name in generate.GENERATORS:
        generator = generate.load(name)
        lines += listing.describe_one(name, generator, generate.options_type(generator), f"{generate.OPTION_FLAG} ")
    return "\n".join(lines)


_ACTIONS: dict[str, Callable[[str, list[str]], int]] = {"info": _info, "generate": _generate}


def _import_tensorflow() -> None:
    """Imports TensorFlow without its chatter."""
    quiet_tensorflow()

    from ps_trainer.runtime import environment

    environment.prepare(is_ps=True)  # nothing is computed here: GPUs are left alone, as a ps task does
    with hidden_stderr():
        import tensorflow.compat.v1 as tf  # noqa: F401
