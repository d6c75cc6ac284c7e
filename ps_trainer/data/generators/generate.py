"""Writes generated datasets as files: `ps_trainer data generate NAME --out=DIR`.

`GENERATORS` maps a name to `module:function` as text, so that this file imports none of them. A generator is

    def generate(options: SomeOptions, folder: pathlib.Path) -> list[pathlib.Path]:

It writes a dataset into the empty folder `folder`, in a format that is common for such data, and returns the files.
`SomeOptions` is a dataclass as described in `ps_trainer.options`, with a `seed`; `--option key=value` sets its fields.
The same options give the same bytes. The command prints the first line of the function's docstring.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
import typing
from collections.abc import Callable, Sequence
from typing import Any

from ps_trainer import options as options_lib
from ps_trainer.errors import DataError, UnknownNameError, did_you_mean

Generator = Callable[[Any, pathlib.Path], list[pathlib.Path]]

GENERATORS = {
    "glyphs": "ps_trainer.data.generators.file_writers:glyphs",
    "synthetic": "ps_trainer.data.generators.file_writers:synthetic",
    "planted_weights": "ps_trainer.data.generators.file_writers:planted_weights",
    "planted_clicks": "ps_trainer.data.generators.ad_clicks:generate",
    "planted_ratings": "ps_trainer.data.generators.file_writers:planted_ratings",
    "numbers": "ps_trainer.data.generators.number_words:generate",
    "tones": "ps_trainer.data.generators.file_writers:tones",
    "markov": "ps_trainer.data.generators.markov_text:generate",
}

OPTION_FLAG = "--option"


def check_name(name: str) -> None:
    """Raises UnknownNameError if no generator has this name."""
    if name not in GENERATORS:
        raise UnknownNameError(
            f"data generate {name}: unknown name; {did_you_mean(name, GENERATORS)}known: {', '.join(GENERATORS)}"
        )


def load(name: str) -> Generator:
    """Imports the generator of a name; raises UnknownNameError if no generator has it."""
    check_name(name)
    module, _, function = GENERATORS[name].partition(":")
    return getattr(importlib.import_module(module), function)


def options_type(generator: Generator) -> type:
    """Returns the dataclass of a generator's options, which is the type of its parameter `options`."""
    return typing.get_type_hints(generator)["options"]


def generate(name: str, option_strings: Sequence[str], folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes a generated dataset into a folder that does not exist yet, or is empty.

    The generator writes into a folder beside it, `<folder>.partial`, which is renamed when all files are complete.

    Args:
        name: Name of the generator, a key of `GENERATORS`.
        option_strings: Options of the generator, each as `key=value`.
        folder: Folder for the files.

    Returns:
        The files.

    Raises:
        UnknownNameError: No generator has this name.
        OptionError: An option is unknown or has a wrong value.
        DataError: The folder is not empty, an earlier command was interrupted, or writing to the disk fails.
    """
    generator = load(name)
    options: Any = options_lib.parse(options_type(generator), option_strings, OPTION_FLAG)
    folder = folder.resolve()
    partial = folder.with_name(f"{folder.name}.partial")
    _check_free(folder, partial)
    try:
        partial.mkdir(parents=True)
        files = generator(options, partial)
        # A folder may replace an empty one, and `_check_free` has found no other.
        os.replace(partial, folder)
    except OSError as error:
        raise DataError(
            f"--out={folder}: {error.strerror or error} ({error.filename}); what was written is in {partial}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.rmdir()  # succeeds only if it is empty: the generator rejected the options and wrote nothing
    return [folder / file.relative_to(partial) for file in files]


def _check_free(folder: pathlib.Path, partial: pathlib.Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(f"--out={folder} is a file; give a folder, which need not exist")
    if folder.is_dir() and any(folder.iterdir()):
        raise DataError(
            f"--out={folder} is not empty, and this command overwrites no file; give another folder, or empty this one"
        )
    if partial.exists():
        raise DataError(
            f"{partial} exists: another command is still writing it, or was interrupted; if none is running, remove it"
        )
