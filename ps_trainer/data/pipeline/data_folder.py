"""The folder with the files of a dataset, which `--data_dir` names."""

from __future__ import annotations

import pathlib

from ps_trainer.errors import DataError


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
