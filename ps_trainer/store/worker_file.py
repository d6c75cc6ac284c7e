"""Reading `worker-<index>.npz`, in which a worker keeps what it alone knows (`training/worker_state.py`)."""

from __future__ import annotations

import pathlib

import numpy as np

from ps_trainer.errors import CheckpointError

STEP = "global_step"


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays by name, global_step among them.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is damaged, or something else.
    """
    try:
        with np.load(path) as file:
            values = {name: file[name] for name in file.files}
        int(values[STEP])
    except FileNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001 - zipfile and NumPy raise a dozen kinds on damaged files
        raise CheckpointError(f"{path} is broken and is not used: {error or type(error).__name__}") from error
    return values
