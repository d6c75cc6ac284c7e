"""`ps_trainer data`: identifies data files, and writes generated data sets in the formats of the loaders."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main, start_tensorflow
from ps_trainer.cli.help import CommandHelp
from ps_trainer.errors import EXIT_DONE, DataError, UsageError
from ps_trainer.options import option, repeatable


@dataclasses.dataclass(frozen=True, kw_only=True)
class InfoFlags:
    """Flags of `info`."""

    all: bool = option(False, "info: read every example, not only the first; this finds broken ones")
    dataset_option: tuple[str, ...] = repeatable("info: option of the dataset that reads the files, as key=value")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateDataFlags:
    """Flags of `generate`."""

    out: str | None = option(None, "generate: folder to write into; it must be new or empty")
    option: tuple[str, ...] = repeatable("generate: option of the generated data set, as key=value")


HELP = CommandHelp(
    usage=(
        "ps_trainer data info PATH [--all] [--dataset_option=key=value …]",
        "ps_trainer data generate NAME --out=DIR [--option=key=value …]",
        "ps_trainer data generate list",
    ),
    text="""info      prints the format of a file or folder, its number of examples, the first examples, and the flags
          with which a run reads it; exit code 2 if the format is unknown or the data are broken
generate  writes a generated data set into a new folder, in the format that such data usually
          have on disk; `list` prints the names and options of all sets""",
    examples=(
        ("ps_trainer data generate planted_clicks --out=data/clicks", "write clicks in the format of Criteo's"),
        ("ps_trainer data info data/clicks", "print their format, and the flags that read them"),
    ),
    flags=(InfoFlags, GenerateDataFlags),
    words=("info", "generate"),
    words_after={"info": (), "generate": ("list",)},
)


def main_data(argv: Sequence[str]) -> int:
    """Runs the action that `argv` names; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    action, rest = flags_lib.action_of(argv, HELP, "data", _ACTIONS), list(argv[2:])
    return _ACTIONS[action](argv[0], rest)


def _info(program: str, args: list[str]) -> int:
    path = args.pop(0) if args and not args[0].startswith("-") else None
    (given,) = flags_lib.parse([program, *args], HELP, InfoFlags).groups
    if path is None:
        raise UsageError("data info: give a file or folder: ps_trainer data info PATH")
    if not pathlib.Path(path).exists():
        raise DataError(f"{path}: no such file or folder")
    start_tensorflow()

    from ps_trainer.data import info

    with importing_tensorflow():
        text = info.describe(pathlib.Path(path), reads_all=given.all, options=given.dataset_option)
    print(text)
    return EXIT_DONE


def _generate(program: str, args: list[str]) -> int:
    name = args.pop(0) if args and not args[0].startswith("-") else None
    (given,) = flags_lib.parse([program, *args], HELP, GenerateDataFlags).groups
    if name is None:
        raise UsageError("data generate: missing name of a data set; `data generate list` prints all names")

    from ps_trainer.data.generators import generate

    if name != "list":
        # Wrong names end the command before TensorFlow's import, which takes seconds.
        generate.check_name(name)
        if given.out is None:
            raise UsageError(f"data generate {name}: missing --out; give a new or empty folder")
    start_tensorflow()
    if name == "list":
        print(describe())
        return EXIT_DONE
    files = generate.generate(name, given.option, pathlib.Path(given.out))
    print("\n".join(f"{file}  {file.stat().st_size} bytes" for file in files))
    return EXIT_DONE


def describe() -> str:
    """Returns the name, summary and options of every generated data set, as text."""
    from ps_trainer.cli import listing
    from ps_trainer.data.generators import generate

    lines = []
    for name in generate.GENERATORS:
        generator = generate.load(name)
        lines += listing.describe_one(name, generator, generate.options_type(generator), f"{generate.OPTION_FLAG} ")
    return "\n".join(lines)


_ACTIONS: dict[str, Callable[[str, list[str]], int]] = {"info": _info, "generate": _generate}
