"""The allowed imports between modules, read from the source of every module; nothing is imported."""

from __future__ import annotations

import ast
import functools
import pathlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

CORE = {
    "errors",
    "shadowing",
    "registry",
    "component_tables",
    "options",
    "update_rules",
    "config",
    "shared_settings",
    "recorded_config",
    "target_metric",
    "worker_reports",
}
COMPONENTS = {"store", "gradients", "optimizers", "data", "metrics"}
# Reads the files of runs; no task imports it.
READERS = {"comparison"}
MIDDLE = {"updates", "checkpoints", "runtime", "simulation"}
TOP = {"training", "launch", "experiments", "tf1", "inference"}
# The module `ps_trainer` itself, which offers the names of the API.
PACKAGE = "ps_trainer"

# Each part of ps_trainer and the parts that it may import, besides itself and the core.
ALLOWED = {
    "core": set(),
    "cluster": set(),
    "disturbances": set(),
    **{part: set() for part in COMPONENTS},
    "comparison": {"metrics"},
    **{part: COMPONENTS | {"cluster"} for part in MIDDLE},
    "simulation": {"store", "optimizers", "data", "disturbances"},
    "training": COMPONENTS | MIDDLE | {"cluster", "disturbances"},
    "experiments": COMPONENTS | READERS | MIDDLE | {"cluster", "disturbances", "launch"},
    "launch": {"cluster", "disturbances"},
    "inference": {"data", "store", "checkpoints", "training"},
    "tf1": {"cluster", "metrics", "store", "checkpoints", "runtime", "updates", "training"},
    "cli": COMPONENTS | READERS | MIDDLE | TOP | {"cluster", "disturbances"},
    "api": COMPONENTS | READERS | MIDDLE | TOP | {"cluster", "disturbances", "cli"},
}

WITHOUT_TENSORFLOW = {"core", "cluster", "disturbances", "launch"}
# The modules of the simulation that replay real gradients; a schedule alone needs no TensorFlow.
REPLAY = "ps_trainer.simulation.replay"
# Parts of a worker's graph, which the rest of training assembles and runs.
GRAPH_PARTS = "ps_trainer.training.graph_parts"
# Modules that the simulation's rules share with the cluster's.
RULE_OPTIONS = "ps_trainer.updates.options"
TENSORFLOW = {"tensorflow", "keras", "tf_keras"}
SLOW_TO_IMPORT = TENSORFLOW | {"rich", "numpy", "matplotlib"}
MODELS_MAY_IMPORT = {"tensorflow", "numpy", *sys.stdlib_module_names}


class Import(NamedTuple):
    """One imported module with its dotted name.

    `is_lazy` is true inside a function, `is_relative` for a name that begins with a dot.
    """

    module: str
    is_lazy: bool
    is_relative: bool = False


@functools.cache
def imports_of(source: str, module: str, is_package: bool) -> list[Import]:
    """Every module that `source` imports; for `from a import b` both `a` and `a.b`."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    return list(_walk(ast.parse(source), package, is_lazy=False))


def _walk(node: ast.AST, package: list[str], *, is_lazy: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, is_lazy) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package[: len(package) - child.level + 1] if child.level else []
            base = ".".join([*above, *([child.module] if child.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in child.names)]
            yield from (Import(name, is_lazy, is_relative=child.level > 0) for name in names)
        elif not isinstance(child, ast.expr):  # an expression holds no import
            in_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from _walk(child, package, is_lazy=is_lazy or in_function)


def part_of(module: str) -> str:
    """The part of ps_trainer a module belongs to; the core's modules and the package itself are "core"."""
    part = (module.split(".") + [""])[1]
    return "core" if part in CORE | {"", "__version__"} else part


def faults(source: str, module: str, is_package: bool = False) -> list[str]:
    """The directions that a module's imports break, as sentences."""
    found: list[str] = []
    top = module.split(".")[0]
    for imported in imports_of(source, module, is_package):
        rule = _models_fault(imported) if top == "models" else _ps_trainer_fault(imported, module)
        if rule:
            found.append(f"{module} imports {imported.module}: {rule}")
    return found


def _models_fault(imported: Import) -> str:
    parts = imported.module.split(".")
    if parts[0] == "models":
        if not imported.is_relative:
            return "its name differs where ps_trainer is installed: write `from . import layers`"
        return "" if parts[1:2] in ([], ["layers"]) else "a model imports no other model, only models.layers"
    return (
        "" if parts[0] in MODELS_MAY_IMPORT else "models use models.layers, tensorflow, numpy and the standard library"
    )


def _ps_trainer_fault(imported: Import, module: str) -> str:
    part, top = (
        {PACKAGE: "api", "ps_trainer.__main__": "cli"}.get(module, part_of(module)),
        imported.module.split(".")[0],
    )
    if module == PACKAGE and top in SLOW_TO_IMPORT:
        return "the package itself imports at once"
    if module == RULE_OPTIONS and (top in TENSORFLOW or (top == "ps_trainer" and part_of(imported.module) != "core")):
        return f"{module} imports the core only, as the simulation imports it"
    if top == "models" or f"{imported.module}.".startswith("ps_trainer.models."):
        return "ps_trainer reaches models through the registry only"
    if top == "absl" and imported.module.startswith("absl.flags") and part != "cli":
        return "flags belong to cli/"
    if top in TENSORFLOW and part in WITHOUT_TENSORFLOW:
        return f"{part} works without TensorFlow"
    if part == "simulation" and not module.startswith(REPLAY):
        if top in TENSORFLOW:
            return f"of the simulation only {REPLAY} needs TensorFlow"
        allowed = {"core", "disturbances", "simulation"}
        if top == "ps_trainer" and part_of(imported.module) not in allowed and not _is_in(RULE_OPTIONS, imported):
            return f"of the simulation only {REPLAY} may import more than the core, disturbances and {RULE_OPTIONS}"
    if (
        part == "cli"
        and not imported.is_lazy
        and (
            top in SLOW_TO_IMPORT
            or (top == "ps_trainer" and part_of(imported.module) in ALLOWED.keys() - WITHOUT_TENSORFLOW - {"cli"})
        )
    ):
        return "help must answer at once: import it in the function that needs it"
    if top != "ps_trainer":
        return ""
    target = part_of(imported.module)
    if module.startswith(GRAPH_PARTS) and target == part and not _is_in(GRAPH_PARTS, imported):
        return f"{GRAPH_PARTS} imports nothing else of training"
    if target in ALLOWED[part] | {part, "core"}:
        return ""
    if part == "simulation" and _is_in(RULE_OPTIONS, imported):
        return ""
    return f"{part} may import {', '.join(sorted(ALLOWED[part])) or 'the core'}"


def _is_in(module: str, imported: Import) -> bool:
    return f"{imported.module}.".startswith(f"{module}.")


def all_modules() -> list[tuple[str, pathlib.Path]]:
    """(dotted name, file) of every module of ps_trainer and models."""
    files = [path for top in ("ps_trainer", "models") for path in sorted((ROOT / top).rglob("*.py"))]
    return [(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path) for path in files]


def test_every_module_keeps_the_directions():
    modules = all_modules()
    assert {"ps_trainer.cli.main", "ps_trainer.cluster.config", "ps_trainer.config"} <= {name for name, _ in modules}
    found = [
        fault
        for name, path in modules
        for fault in faults(path.read_text(encoding="utf-8"), name, path.name == "__init__.py")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ps_trainer.cluster.config", "import tensorflow.compat.v1 as tf"),
        ("ps_trainer", "import numpy"),
        ("ps_trainer.training.worker", "from ps_trainer.api import result"),
        ("ps_trainer.launch.local", "def f():\n    import tensorflow"),
        ("ps_trainer.launch.local", "from ps_trainer.runtime import server"),
        ("ps_trainer.config", "from ps_trainer import cluster"),
        ("ps_trainer.store.packed", "from ps_trainer.updates.base import UpdateRule"),
        ("ps_trainer.store.packed", "from ..updates import base"),
        ("ps_trainer.store.packed", "from ps_trainer.data import digits"),
        ("ps_trainer.runtime.server", "from ps_trainer.training import worker"),
        ("ps_trainer.training.worker", "import ps_trainer.cli.flags"),
        ("ps_trainer.training.worker", "from absl import flags"),
        ("ps_trainer.training.worker", "from models import cnn"),
        ("ps_trainer.training.worker", "from ps_trainer.models import cnn"),
        ("ps_trainer.simulation.events", "import tensorflow.compat.v1 as tf"),
        ("ps_trainer.simulation.events", "from ps_trainer.store import base"),
        ("ps_trainer.simulation.replay", "from ps_trainer.updates import base"),
        ("ps_trainer.simulation.rules.update_per_push", "from ps_trainer.updates import ssp"),
        ("ps_trainer.updates.options", "from ps_trainer.updates import base"),
        ("ps_trainer.updates.options", "import tensorflow.compat.v1 as tf"),
        ("ps_trainer.disturbances.delays", "import tensorflow"),
        ("ps_trainer.cli.task", "from ps_trainer.runtime import server"),
        ("ps_trainer.cli.task", "import rich.table"),
        ("ps_trainer.cli.experiment", "from ps_trainer.experiments import harness"),
        ("ps_trainer.training.worker", "from ps_trainer.experiments import clusters"),
        ("ps_trainer.training.worker", "from ps_trainer.inference import predictor"),
        ("ps_trainer.training.graph_parts.step_calls", "from ps_trainer.training import loop"),
        ("ps_trainer.inference.predictor", "from ps_trainer.runtime import control"),
        ("ps_trainer.experiments.harness.invocation", "from ps_trainer.training import worker"),
        ("models.cnn", "from . import mlp"),
        ("models.cnn", "from models import layers"),
        ("models.cnn", "from ps_trainer.models import layers"),
        ("models.cnn", "from ps_trainer import options"),
        ("models.cnn", "import absl.logging"),
    ],
)
def test_finds_an_import_against_the_directions(module, source):
    assert faults(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ps_trainer.cluster.config", "from ps_trainer.errors import ClusterConfigError"),
        ("ps_trainer.training.task", "from ps_trainer.training import worker"),
        ("ps_trainer.inference.predictor", "from ps_trainer.training import components"),
        ("ps_trainer.training.graph", "from ps_trainer.training.graph_parts import step_calls"),
        ("ps_trainer.training.graph_parts.step_calls", "from ps_trainer.training.graph_parts import step_fetches"),
        ("ps_trainer.cli.task", "def f():\n    from ps_trainer.training import task"),
        ("ps_trainer", "from ps_trainer.api.result import Result"),
        ("ps_trainer.api.processes", "from ps_trainer.cli.local import LocalFlags"),
        ("ps_trainer.updates.sync", "from ps_trainer.store.base import ParameterStore"),
        ("ps_trainer.simulation.replay", "import tensorflow\nfrom ps_trainer.store import base"),
        ("ps_trainer.simulation.events", "from ps_trainer.disturbances import delays"),
        ("ps_trainer.simulation.rules.update_per_push", "from ps_trainer.updates.options import SspOptions"),
        ("ps_trainer.store.packed", "from . import base"),
        ("ps_trainer.experiments.toolkit.clusters", "from ps_trainer.launch import command"),
        ("ps_trainer.launch.local", "from ps_trainer.cluster import ports\nfrom absl import logging"),
        ("models.cnn", "import tensorflow.compat.v1 as tf\nfrom . import layers\nimport dataclasses"),
    ],
)
def test_accepts_an_import_along_the_directions(module, source):
    assert not faults(source, module)
