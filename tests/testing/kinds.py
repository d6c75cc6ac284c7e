"""The kind of a test: "light" needs its own process only, "cluster" a cluster in it, "process" other processes."""

from __future__ import annotations

import functools
import sys
import types

import pytest

KINDS = ("light", "cluster", "process")

# A test module that has one of these starts servers.
_CLUSTERS = {
    "InProcessCluster": "tests.testing.cluster",
    "InProcessJob": "tests.tf1.in_process",
    "Served": "tests.runtime.served_ps",
    "LocalCluster": "ps_trainer.api.cluster",
}
_PROCESS_FIXTURE = "create_run"
_PROCESS_FOLDER = "processes"
# A test module that imports one of these starts processes, or stands beside tests that do.
_STARTERS = ("subprocess", "multiprocessing", "ForkServer", "run_local")


def kind_of(item: pytest.Item) -> str:
    """One of `KINDS`.

    A test of real processes has the fixture for them, a module that imports what starts them, or the mark
    `pytest.mark.process`.
    """
    is_process = item.get_closest_marker("process") or _PROCESS_FIXTURE in getattr(item, "fixturenames", ())
    if is_process or item.path.parent.name == _PROCESS_FOLDER or any(name in vars(item.module) for name in _STARTERS):
        return "process"
    return "cluster" if _uses_cluster(item.module) else "light"


@functools.cache
def _uses_cluster(module: types.ModuleType) -> bool:
    """Whether a test module, or a test helper that it imports, starts a cluster."""
    seen, waiting = {module}, [module]
    while waiting:
        one = waiting.pop()
        if any(getattr(vars(one).get(name), "__module__", "") == owner for name, owner in _CLUSTERS.items()):
            return True
        found = _helpers_of(one) - seen
        seen |= found
        waiting += found
    return False


def _helpers_of(module: types.ModuleType) -> set[types.ModuleType]:
    """The test modules that a module imports, or whose classes and functions it imports.

    A package is left out: its attributes are its modules, even those that only other modules import.
    """
    values = vars(module).values()
    names = {getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in values}
    names |= {value.__name__ for value in values if isinstance(value, types.ModuleType)}
    known = {name: sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules}
    return {one for name, one in known.items() if name.startswith("tests.") and not hasattr(one, "__path__")}
