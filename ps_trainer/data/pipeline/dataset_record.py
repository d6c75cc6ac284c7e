"""The file `dataset.json` beside the checkpoints: what a run has learned about its data.

Commands that use the trained model build the dataset from it, without the training files.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.errors import DataError

FILE = "dataset.json"
"""Name of the file in the folder of the run."""

SIZES = (
    "num_classes",
    "vocab_size",
    "source_vocab_size",
    "target_vocab_size",
    "num_features",
    "num_buckets",
    "num_users",
    "num_items",
    "window",
)
"""Attributes of a dataset that are sizes of a model, under the names of the models' options."""

SCALES = ("mean_rating", "rating_scale")
"""Attributes of a dataset that place what a model predicts, under the names of the models' options."""


class RecordedData(NamedTuple):
    """The facts about the data that the file holds.

    Attributes:
        dataset: Name of the dataset.
        class_names: Names of the classes; None if they have none.
        facts: Value of each fact, by its name (`pipeline.facts.Facts`).
    """

    dataset: str
    class_names: Sequence[str] | None
    facts: Mapping[str, Any]


def sizes_of(dataset: Any) -> dict[str, int]:
    """Returns the sizes that a dataset knows, by name."""
    return _known(dataset, SIZES)


def scales_of(dataset: Any) -> dict[str, float]:
    """Returns the scales that a dataset knows, by name."""
    return _known(dataset, SCALES)


def as_text(name: str, dataset: Any) -> str:
    """Returns the content of the file.

    Args:
        name: Name of the dataset.
        dataset: Dataset of the run.
    """
    facts = getattr(dataset, "facts", None)
    content = {
        "dataset": name,
        "sizes": sizes_of(dataset),
        "scales": scales_of(dataset),
        "class_names": getattr(dataset, "class_names", None),
        "facts": facts.entries if facts is not None else {},
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def parse(text: str) -> RecordedData:
    """Returns what the content of the file says about the data.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: It is not the content of such a file.
    """
    content = json.loads(text)
    values = {name: entry["value"] for name, entry in content["facts"].items()}
    return RecordedData(content["dataset"], content["class_names"], values)


def read_facts(folder: pathlib.Path, name: str) -> dict[str, Any]:
    """Returns the facts that the run in `folder` has recorded of its dataset; none if it has another or none.

    Args:
        folder: Folder of the run.
        name: Name of the dataset.

    Raises:
        DataError: The file is damaged.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        facts = content["facts"]
        for entry in facts.values():
            entry["settings"], entry["files"], entry["value"]  # a missing one raises KeyError
        return dict(facts) if content["dataset"] == name else {}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {error}); remove it, and the files of the data are read"
            " again"
        ) from error


def _known(dataset: Any, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(dataset, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}
