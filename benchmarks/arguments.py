"""What the command lines of the benchmarks have in common."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Callable, Iterable


def choices(known: Iterable[str], all_as: str | None = None) -> Callable[[str], list[str]]:
    """A parser of comma-separated names, each of them once, in the order given.

    Args:
        known: the names that are allowed.
        all_as: a word that stands for all of them, and an empty text then for none; None = no such word.
    """
    known = list(known)

    def parse(text: str) -> list[str]:
        if all_as is not None and text in (all_as, ""):
            return known if text else []
        names = list(dict.fromkeys(text.split(",")))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown {', '.join(map(repr, unknown))}; known: {', '.join(known)}")
        return names

    return parse


def numbers(text: str) -> list[int]:
    """Parses comma-separated whole numbers, each of them once."""
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 1,2") from error


def create_parser(module: str, doc: str) -> argparse.ArgumentParser:
    """A parser for `python -m <module>`, described by the first line of the module's docstring; it shows defaults."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=doc.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )


def add_out_dir(parser: argparse.ArgumentParser) -> None:
    """Adds `--out_dir`."""
    parser.add_argument("--out_dir", help="new folder for results and logs; by default one under runs, with the time")


def new_folder(parser: argparse.ArgumentParser, out_dir: str | None, prefix: str) -> pathlib.Path:
    """The folder that `--out_dir` names, or `<prefix>-<time>`; ends the program when it exists."""
    folder = pathlib.Path(out_dir or time.strftime(f"{prefix}-%Y%m%d-%H%M%S")).resolve()
    if folder.exists():
        parser.error(f"--out_dir={folder} exists; give a new folder, results of two calls do not mix")
    return folder


def exit_by_signal(signum: int, frame: object) -> None:
    """Signal handler: ends the program by an exception, so that what it has started is ended first."""
    del frame
    sys.exit(128 + signum)
