"""Objects of a caller of the API in tasks that are separate processes.

The caller pickles them into a file; the tasks find it by an environment variable, and their flags name the classes
here. To load a pickle is to run code, so nothing but this variable, which only the API sets, leads to one.
"""

from __future__ import annotations

import functools
import io
import os
import pathlib
import pickle
from typing import Any

from ps_trainer.errors import ArgumentTypeError, OptionError

VARIABLE = "PS_TRAINER_OBJECTS"
MODEL, DATASET = f"{__name__}:ShippedModel", f"{__name__}:ShippedDataset"


class ShippedModel:
    """The model that the caller gave as an object; the constructor returns that object."""

    def __new__(cls) -> Any:
        """Returns the caller's model."""
        return _load("model", "--model")

    def build(self, batch: Any, *, training: bool) -> Any:
        """Is never called; it says that this stands for a model."""


class ShippedDataset:
    """The dataset that the caller gave as an object; the constructor returns that object."""

    def __new__(cls, *, data_dir: str | None = None) -> Any:
        """Returns the caller's dataset; `data_dir` is not used."""
        return _load("dataset", "--dataset")

    def train(self) -> Any:
        """Is never called; it says that this stands for a dataset."""

    def test(self) -> Any:
        """Is never called; it says that this stands for a dataset."""


def write(path: pathlib.Path, model: Any, dataset: Any) -> None:
    """Pickles a model and a dataset.

    Raises:
        ArgumentTypeError: One of them cannot be pickled, or is of a class that another process cannot import.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump({"model": model, "dataset": dataset})
    except ArgumentTypeError:
        raise
    except Exception as error:  # pickle raises errors of many types, and calls the user's code
        raise ArgumentTypeError(
            f"mode='processes' sends model and data to other processes, and they cannot be pickled: {error};"
            " use mode='in_process', or give classes and functions of a module"
        ) from error
    path.write_bytes(buffer.getvalue())


class _Pickler(pickle.Pickler):
    """A pickler that rejects what only this process can import."""

    def reducer_override(self, obj: Any) -> Any:
        """Raises ArgumentTypeError for a class or function of the main script or notebook."""
        if getattr(obj, "__module__", None) == "__main__" and hasattr(obj, "__qualname__"):
            raise ArgumentTypeError(
                f"{obj.__qualname__} is defined in the notebook or main script, which the processes of"
                " mode='processes' cannot import; write it into a separate file and import it from there, or use"
                " mode='in_process'"
            )
        return NotImplemented


def _load(name: str, flag: str) -> Any:
    path = os.environ.get(VARIABLE)
    if path is None:
        raise OptionError(f"this run's {name} was an object of a Python program; name its class by {flag}")
    return _objects(path)[name]


@functools.cache
def _objects(path: str) -> dict[str, Any]:
    return pickle.loads(pathlib.Path(path).read_bytes())
