"""How a session of tests begins, in which order its tests run, and which of them in CI."""

from __future__ import annotations

import gc
import os
import pathlib
import signal

import pytest

from tests.testing.kinds import kind_of
from tests.testing.repetitions import IS_CI, covering

# TensorFlow looks at each node of each graph for a kernel of oneDNN: 10 % of the time of tests whose models are tiny.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

# A shell that starts the tests in the background has Ctrl-C ignored, also in all processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = pathlib.Path(__file__).resolve().parent
# First, so that no process is left with the longest of them at the end; of their crossed parameters a part in CI.
LONGEST = [
    "processes",
    "updates",
    "models",
    "simulation",
    "training",
    "disturbances",
    "testing",
    "store",
    "checkpoints",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test with its kind and orders the tests by folder; in CI leaves out combinations of parameters."""
    for item in items:
        item.add_marker(kind_of(item))
    places = {item: _place(item) for item in items}
    items.sort(key=places.__getitem__)  # stable
    if IS_CI:
        kept = set(covering([item for item in items if places[item] < len(LONGEST)]))
        left_out = [item for item in items if places[item] < len(LONGEST) and item not in kept]
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Spares the garbage collector what is imported, TensorFlow above all: a sixth of the time of the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _place(item: pytest.Item) -> int:
    folder = item.path.relative_to(HERE).parts[0]
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)
