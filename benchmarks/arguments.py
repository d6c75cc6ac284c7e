"""Common parts of the benchmarks' command lines."""

from __future__ import annotations

import argparse
import csv
import math
import pathlib
import sys
import time
from collections.abc import Callable, Collection, Iterable


def choices(known: Iterable[str], all_as: str | None = None) -> Callable[[str], list[str]]:
    """Returns a parser of comma-separated names that keeps their order and drops repetitions.

    Args:
        known: The names that are allowed.
        all_as: a word that stands for all names; an empty text then stands for none. None = no such word.
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


def counts(text: str, least: int = 1) -> list[int]:
    """Parses comma-separated whole numbers of at least `least`; it drops repetitions."""
    try:
        numbers = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers such as 1,2") from error
    if min(numbers) < least:
        raise argparse.ArgumentTypeError(f"{text!r} has a number below {least}")
    return numbers


def at_least(least: int) -> Callable[[str], int]:
    """Returns a parser of whole numbers that are at least `least`."""

    def number(text: str) -> int:  # argparse shows the function's name: "invalid number value"
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{text} must be at least {least}")
        return value

    return number


def secs(text: str) -> float:
    """Parses a time that must be more than 0."""
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} must be more than 0")
    return value


def not_negative(text: str) -> float:
    """Parses a finite number of at least 0."""
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} must be at least 0, and finite")
    return value


def csv_file(columns: Collection[str]) -> Callable[[str], pathlib.Path]:
    """Returns a parser of the path of a CSV file that has at least these columns."""

    def path(text: str) -> pathlib.Path:
        try:
            with open(text, newline="", encoding="utf-8") as file:
                found = next(csv.reader(file), [])
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{text}: {error.strerror}") from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise argparse.ArgumentTypeError(f"{text} is not a CSV file: {error}") from error
        if lacking := [column for column in columns if column not in found]:
            raise argparse.ArgumentTypeError(f"{text} lacks the columns {', '.join(lacking)}; give a results.csv")
        return pathlib.Path(text)

    return path


def create_parser(module: str, doc: str) -> argparse.ArgumentParser:
    """Creates a parser for `python -m <module>` that shows defaults.

    Args:
        module: The benchmark.
        doc: Docstring of the benchmark; its first line describes the program.
    """
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=doc.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        # A script with an abbreviation would fail on the day when another flag begins with the same letters.
        allow_abbrev=False,
    )


def add_deadline(parser: argparse.ArgumentParser, default: float) -> None:
    """Adds `--deadline_secs`, the time limit of a run."""
    parser.add_argument("--deadline_secs", type=secs, default=default, help="a run that takes longer has failed")


def add_out_dir(parser: argparse.ArgumentParser) -> None:
    """Adds `--out_dir`."""
    parser.add_argument("--out_dir", help="new folder for results and logs; by default a folder in runs/ named by time")


def new_folder(parser: argparse.ArgumentParser, out_dir: str | None, prefix: str) -> pathlib.Path:
    """Returns the folder that `--out_dir` names, or `<prefix>-<time>`; ends the program if it exists."""
    folder = pathlib.Path(out_dir or time.strftime(f"{prefix}-%Y%m%d-%H%M%S")).resolve()
    if folder.exists():
        parser.error(f"--out_dir={folder} exists; name a new folder, because results of two calls do not mix")
    return folder


def exit_by_signal(signum: int, frame: object) -> None:
    """Ends the program, as a signal handler, by an exception, so that the program ends its tasks first."""
    del frame
    sys.exit(128 + signum)
