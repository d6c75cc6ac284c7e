"""Settings, kinds, order and selection of the tests of a session."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import sys

import pytest

from ps_trainer.runtime import tensorflow_import
from tests.testing.kinds import kind_of
from tests.testing.order import alternate_files
from tests.testing.repetitions import IS_FULL, covering

# TensorFlow searches for a oneDNN kernel for each node of each graph: 10 % of the time of tests with tiny models.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

# A process of `pytest -n` collects all tests, and so needs TensorFlow in any case.
if "PYTEST_XDIST_WORKER" in os.environ:
    tensorflow_import.load()

# The facts of a test's files stay within the test.
os.environ["PS_TRAINER_CACHE_DIR"] = ""

# Tests that a shell starts in the background ignore Ctrl-C, and so does every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = pathlib.Path(__file__).resolve().parent
# These folders and files run first: a long file at the end of a run would leave the other test processes without work.
# Of their crossed parameters only a covering part runs, unless the run is full. Tests of processes wait for a third of
# their time, so their files alternate with files that compute.
LONGEST = [
    "test_notebook.py",
    "processes",
    "updates",
    "models",
    "simulation",
    "training",
    "inference",
    "disturbances",
    "testing",
    "store",
    "checkpoints",
    "tf1",
    "api",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test with its kind, orders the tests by file, and leaves out combinations unless the run is full."""
    for item in items:
        item.add_marker(kind_of(item))
    places = {item: _place(item) for item in items}
    items.sort(key=places.__getitem__)  # stable
    if not IS_FULL:
        chosen = [item for item in items if not item.get_closest_marker("full")]
        kept = set(covering([item for item in chosen if places[item] < len(LONGEST)]))
        kept |= {item for item in chosen if places[item] == len(LONGEST)}
        left_out = [item for item in items if item not in kept]
        items[:] = [item for item in items if item in kept]
        config.hook.pytest_deselected(items=left_out)
    items[:] = alternate_files(items)


def pytest_collectstart() -> None:
    """Collects no garbage while the tests are imported, a third of that time: imports leave hardly any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Hides imported modules from the garbage collector, a sixth of the tests' time, and turns Grappler off."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()
    if "tensorflow" in sys.modules:
        # As in a training (`runtime/server.py`): Grappler takes longer than a test runs its graph.
        sys.modules["tensorflow"].config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints why tests failed that were run again and passed."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"run again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


def _place(item: pytest.Item) -> int:
    first = item.path.relative_to(HERE).parts[0]
    return LONGEST.index(first) if first in LONGEST else len(LONGEST)
