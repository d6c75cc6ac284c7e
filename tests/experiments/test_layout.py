"""Every experiment has the same files, or the two of a small one, and no two public classes share a name."""

from __future__ import annotations

import ast
import pathlib
from collections import Counter

import pytest

from ps_trainer import component_tables
from ps_trainer.experiments.harness import base, dependencies

EXPERIMENTS = pathlib.Path(base.__file__).parents[1]
FILES = {"__init__.py", "experiment.py", "cases.py", "claims.py", "tables.py", "plots.py", "texts.py"}
OF_SMALL = {"__init__.py", "runs.py", "experiment.py"}
MAX_SMALL_LINES = 300  # of a file
OPTIONAL = {
    "records.py",  # settings and figures, where `cases.py` would be too long with them
    "searches.py",  # trainings on pilot seeds, where these choose learning rates
}


@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_every_experiment_has_the_same_files(name):
    paths = list((EXPERIMENTS / name).glob("*.py"))
    files = {path.name for path in paths} - OPTIONAL
    assert files == (OF_SMALL if "runs.py" in files else FILES)
    if files == OF_SMALL:
        assert max(path.read_text(encoding="utf-8").count("\n") for path in paths) <= MAX_SMALL_LINES
    assert {f"{module}.py" for module in dependencies.PRESENTING} < FILES


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*/records.py")), ids=lambda path: path.parent.name)
def test_records_are_in_one_file_of_an_experiment(path):
    kinds = (path, path.with_name("cases.py"))
    trees = {file.name: ast.parse(file.read_text(encoding="utf-8")) for file in kinds}
    bases = {
        name: {ast.unparse(base) for node in tree.body if isinstance(node, ast.ClassDef) for base in node.bases}
        for name, tree in trees.items()
    }
    assert "Record" not in bases["cases.py"]
    assert not {"Case", "real_clusters.RealCase"} & bases["records.py"]


def test_a_public_class_has_a_name_of_its_own():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in EXPERIMENTS.rglob("*.py")]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(classes).items() if count > 1 and not name.startswith("_")] == []


def test_the_short_forms_of_all_experiments_are_planned_for_half_an_hour():
    experiments = [component_tables.EXPERIMENTS.load(name)() for name in component_tables.EXPERIMENTS.names()]
    mins = {
        each.name: sum(run.expected_secs for run in each.runs(range(each.num_quick_seeds), quick=True)) / 60
        for each in experiments
    }
    assert max(mins.values()) <= 5, mins
    assert sum(mins.values()) <= 30, mins


@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_every_claim_of_an_experiment_has_a_key_of_its_own(name):
    keys = [claim.key for claim in component_tables.EXPERIMENTS.load(name).claims]
    assert len(set(keys)) == len(keys) > 0
