"""The folder with the files of a dataset, which `--data_dir` names."""

from __future__ import annotations

import pathlib
import shlex
from collections.abc import Iterable, Sequence

from ps_trainer.errors import DataError

_SHOWN_FILES = 5


def folder_of(data_dir: str | None, needs: str) -> pathlib.Path:
    """Returns the folder of a dataset's files.

    Args:
        data_dir: Value of `--data_dir`, or None if the user did not give it.
        needs: Sentence that names the files which the dataset needs there.

    Raises:
        DataError: `data_dir` is None or is not a folder.
    """
    if data_dir is None:
        raise DataError(f"--data_dir is not given; {needs}")
    folder = pathlib.Path(data_dir)
    if not folder.is_dir():
        raise DataError(f"--data_dir={data_dir} is not a folder; {needs}")
    return folder


def training_first(paths: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """Sorts paths, with those last that have `test` in their name."""
    return sorted(paths, key=lambda path: ("test" in path.name, path))


def missing_files(folder: pathlib.Path, wanted: Sequence[str], missing: Sequence[str], needs: str) -> DataError:
    """Makes the error for files that a folder lacks; it shows other files there, and the option that names one.

    Args:
        folder: The folder.
        wanted: Names of all files that the dataset reads.
        missing: Names of those that are missing.
        needs: Sentence that names the files which the dataset needs there.
    """
    for inner in (folder / name for name in missing):
        # Spark writes a table as a folder of files, and adds a file _SUCCESS.
        if parts := [name for name in _names_in(inner, ()) if name[0] != "_"]:
            flags = shlex.join([f"--data_dir={inner}", f"--dataset_option=train_files={','.join(parts)}"])
            return DataError(f"{inner} is a folder; to train on the files in it, give {flags}")
    others = _names_in(folder, wanted)
    shown = ", ".join(others[:_SHOWN_FILES]) + (", …" if len(others) > _SHOWN_FILES else "")
    option = shlex.join([f"--dataset_option=train_files={name}" for name in others[:1]])
    fix = f" but {shown}; to train on it, give {option}" if others else ""
    return DataError(f"{folder} has no {', '.join(missing)}{fix}; {needs}")


def _names_in(folder: pathlib.Path, wanted: Sequence[str]) -> list[str]:
    """Returns the names of the files in a folder that are not among the wanted ones; hidden files do not count."""
    paths = training_first(folder.iterdir()) if folder.is_dir() else []  # of a trained model, the folder may be gone
    return [path.name for path in paths if path.is_file() and path.name not in wanted and path.name[0] != "."]
