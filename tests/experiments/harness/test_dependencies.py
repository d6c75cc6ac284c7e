"""The changes of the code that make a finished run invalid."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import pathlib
import subprocess
import sys

import pytest

from ps_trainer import component_tables
from ps_trainer.experiments.harness import dependencies
from ps_trainer.experiments.harness.labels import Level

PACKAGE = pathlib.Path(dependencies.__file__).resolve().parents[2]
EXPERIMENTS = component_tables.EXPERIMENTS.names()


@functools.cache
def version_of(name: str, level: Level) -> str:
    """The version of an experiment's runs."""
    return dependencies.code_version(component_tables.EXPERIMENTS.load(name), level)


def version_with(monkeypatch, name: str, path: str, added: str, level: Level = Level.PROCESSES) -> str:
    """The version of an experiment's runs when a file ends with additional code."""
    changed, read = PACKAGE / path, dependencies._read
    with monkeypatch.context() as patch:
        patch.setattr(dependencies, "_read", lambda file: read(file) + (added if file == changed else ""))
        return dependencies.code_version(component_tables.EXPERIMENTS.load(name), level)


def is_changed_by(monkeypatch, name: str, path: str, added: str = "\nX = 1\n", level: Level = Level.PROCESSES) -> bool:
    """Whether runs are repeated when a file ends with additional code."""
    assert (PACKAGE / path).exists()
    return version_with(monkeypatch, name, path, added, level) != version_of(name, level)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("backup_workers", "experiments/toolkit/statistics.py"),  # records.py imports WARMUP_SHARE from it
        ("backup_workers", "experiments/backup_workers/cases.py"),
        ("backup_workers", "experiments/backup_workers/records.py"),
        ("ps_bandwidth", "experiments/toolkit/skewed_model.py"),  # loaded by name
        ("ps_bandwidth", "experiments/toolkit/sized_settings.py"),  # imported by that model
        ("null_step", "experiments/toolkit/sized_models.py"),  # named in a text
        ("staleness_aware_rate", "experiments/toolkit/per_gradient.py"),
        ("staleness_quality", "experiments/toolkit/quadratic.py"),
        ("linear_scaling", "experiments/toolkit/target_trainings.py"),  # the base class of its part
    ],
)
def test_a_change_of_measuring_code_repeats_a_run(monkeypatch, name, path):
    assert is_changed_by(monkeypatch, name, path)


def modules_of(name: str) -> tuple[set[str], set[str]]:
    """The modules of an experiment that measure, and those that present: small experiments have one file of each."""
    if (PACKAGE / "experiments" / name / "runs.py").exists():
        return {"runs"}, {"experiment"}
    return {"experiment", "cases"}, set(dependencies.PRESENTING)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_depend_on_the_statistics_unless_their_runs_only_count_updates(monkeypatch, name):
    assert is_changed_by(monkeypatch, name, "experiments/toolkit/statistics.py") == (name != "staleness_quality")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_change_of_measured_code_repeats_runs_and_a_change_of_texts_keeps_them(monkeypatch, name):
    measuring, presenting = modules_of(name)
    for module in measuring:
        assert is_changed_by(monkeypatch, name, f"experiments/{name}/{module}.py"), module
    for module in presenting:
        assert not is_changed_by(monkeypatch, name, f"experiments/{name}/{module}.py"), module


@pytest.mark.parametrize(
    ("path", "added"),
    [
        ("experiments/harness/report.py", "\nX = 1\n"),
        ("experiments/staleness_quality/cases.py", "\nX = 1\n"),
        ("cli/local.py", "\nX = 1\n"),
        ("comparison/page.py", "\nX = 1\n"),
        ("experiments/backup_workers/cases.py", "\n# said of it\n"),
    ],
)
def test_a_change_of_a_runs_presentation_or_of_another_experiment_keeps_it(monkeypatch, path, added):
    assert not is_changed_by(monkeypatch, "backup_workers", path, added)


@pytest.mark.parametrize(
    ("path", "of_virtual_runs"),
    [
        ("models/cnn.py", True),
        ("runtime/watcher.py", False),
        ("launch/supervisor.py", False),
        ("updates/synchronous.py", False),
        ("updates/options.py", True),
        ("disturbances/delay_distributions.py", True),
        ("training/graph_parts/straggler.py", False),
        ("simulation/events.py", True),
        ("data/formats/digits.py", True),
    ],
)
def test_runs_in_virtual_time_depend_on_the_simulation_all_others_on_the_cluster_too(
    monkeypatch, path, of_virtual_runs
):
    assert is_changed_by(monkeypatch, "backup_workers", path)
    assert is_changed_by(monkeypatch, "backup_workers", path, level=Level.VIRTUAL) == of_virtual_runs


def test_the_version_does_not_depend_on_the_path_by_which_the_package_is_imported(tmp_path):
    code = (
        "from ps_trainer.component_tables import EXPERIMENTS\n"
        "from ps_trainer.experiments.harness.dependencies import code_version\n"
        "from ps_trainer.experiments.harness.labels import Level\n"
        "print(code_version(EXPERIMENTS.load('scaling_curve'), Level.SHAPED))"
    )
    versions = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(folder)},
            cwd=tmp_path,
            check=True,
            stdout=subprocess.PIPE,
            timeout=60,
        ).stdout
        for folder in (PACKAGE.parent, PACKAGE.parent / "src")
    }
    assert len(versions) == 1


def test_every_folder_of_the_package_says_which_runs_execute_it():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert dependencies._FOLDERS.keys() == folders | {""}


def test_a_new_folder_is_an_error_until_it_says_which_runs_execute_it(tmp_path, monkeypatch):
    (tmp_path / "tides").mkdir()
    (tmp_path / "tides" / "moon.py").write_text("")
    monkeypatch.setattr(dependencies, "_PACKAGE", tmp_path)
    dependencies._core_files.cache_clear()
    with pytest.raises(KeyError, match="tides"):
        dependencies._core_files(Level.VIRTUAL)


def test_runs_in_virtual_time_depend_on_what_the_simulation_imports_from_the_clusters_code():
    files = {path.relative_to(PACKAGE).as_posix() for path in dependencies._core_files(Level.VIRTUAL)}
    of_clusters = {
        path for path in files if path.partition("/")[0] in ("updates", "disturbances", "gradients", "cluster")
    }
    of_clusters = {path for path in of_clusters if not path.endswith("__init__.py")}
    assert of_clusters == {"updates/options.py", "disturbances/delays.py", "disturbances/delay_distributions.py"}
    assert not {path for path in files if path.partition("/")[0] in ("runtime", "training", "launch", "cli")}


def test_a_change_of_a_docstring_keeps_a_run(monkeypatch):
    (first, second) = ('"""A."""\nX = 1  # one\n', "X = (1)\n")
    assert dependencies._code_of(first) == dependencies._code_of(second) != dependencies._code_of("X = 2\n")


@pytest.fixture
def own_files_of(tmp_path, monkeypatch):
    """A function that writes a user's package, and names the files on which its class `mine.Mine` depends."""

    def own_files(**texts: str) -> set[str]:
        package = tmp_path / "own_lab"
        package.mkdir()
        for name, text in {"__init__": "", **texts}.items():
            (package / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        found = dependencies.own_files(importlib.import_module("own_lab.mine").Mine)
        return {str(path.relative_to(package)) for path in found}

    yield own_files
    for module in [name for name in sys.modules if name.startswith("own_lab")]:
        del sys.modules[module]


def test_a_users_experiment_depends_on_its_package(own_files_of):
    found = own_files_of(helper="WIDTH = 3\n", mine="from . import helper\n\nclass Mine:\n    pass\n")
    assert found == {"__init__.py", "helper.py", "mine.py"}


def test_a_users_experiment_depends_on_the_file_of_its_parts_and_not_on_its_own(own_files_of):
    mine = "from .runs import Throws\n\nclass Mine:\n    parts = (Throws(),)\n"
    assert own_files_of(runs="class Throws:\n    pass\n", mine=mine) == {"runs.py"}


def test_the_names_that_the_harness_exports_are_not_measured_code(monkeypatch):
    runs = PACKAGE / "experiments" / "linear_scaling" / "runs.py"
    assert "ps_trainer.experiments.harness" in dependencies.imports_of(runs)
    assert not is_changed_by(monkeypatch, "linear_scaling", "experiments/harness/__init__.py")


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if "runs" in modules_of(name)[0]])
def test_the_runs_of_a_small_experiment_do_not_import_the_file_that_presents_them(name):
    imported = dependencies.imports_of(PACKAGE / "experiments" / name / "runs.py")
    assert not [module for module in imported if module.startswith(f"ps_trainer.experiments.{name}")]


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if "runs" not in modules_of(name)[0]])
def test_no_run_executes_modules_that_are_not_among_its_dependencies(name):
    """Code that executes a run does not use the modules that present its results."""
    tree = ast.parse((PACKAGE / "experiments" / name / "experiment.py").read_text(encoding="utf-8"))
    presented = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if {(node.module or "").rpartition(".")[2], alias.name} & set(dependencies.PRESENTING)
        and ".harness" not in (node.module or "")
    }
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    assert {one.lower() for one in presented} >= set(dependencies.PRESENTING)  # `TEXTS` of `texts`
    todo, seen = [*functions.keys() & {"execute", "train", "training_of", "measured", "simulated"}], set()
    assert todo
    while todo:
        function = todo.pop()
        seen.add(function)
        used = {
            getattr(node, "id", getattr(node, "attr", ""))
            for body in functions[function]
            for node in ast.walk(body)
            if isinstance(node, (ast.Name, ast.Attribute))
        }
        assert not used & presented, f"{function} uses {used & presented}"
        todo += used & functions.keys() - seen
