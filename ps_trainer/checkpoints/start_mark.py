"""`start.json` in the folder of the checkpoints: a run began there from its seed, and has saved nothing yet.

The seed gives the state of step 0 again, so a run needs no checkpoint of it. But a run whose state is lost must not
begin at step 0 if its checkpoints are lost as well, or on another disk. So the chief leaves this file when a run
begins, and the first checkpoint removes it.
"""

from __future__ import annotations

import contextlib
import json
import pathlib

from ps_trainer.checkpoints import durable_files
from ps_trainer.errors import SaveError

_NAME = "start.json"


def leave(directory: pathlib.Path, seed: int) -> None:
    """Leaves the mark of a run that begins from `seed`; creates the folder.

    Raises:
        SaveError: The folder is not writable.
    """
    path = directory / _NAME
    try:
        durable_files.make_folder(directory)
        durable_files.replace_text(path, json.dumps({"seed": seed}) + "\n")
    except OSError as error:
        raise SaveError(f"{path} could not be written: {error}; a run could not save checkpoints there") from error


def is_left(directory: pathlib.Path) -> bool:
    """Returns whether the last run there began from its seed and has saved nothing since."""
    return (directory / _NAME).is_file()


def remove(directory: pathlib.Path) -> None:
    """Removes the mark, because there is a checkpoint now."""
    with contextlib.suppress(OSError):  # beside a checkpoint, the mark has no effect
        (directory / _NAME).unlink(missing_ok=True)
