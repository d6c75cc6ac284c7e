"""The notebooks are their pages', and their cells run in their order; the training of the lab is shorter here."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "docs" / "tutorials" / "async-vs-sync.ipynb"
PYTHON = ROOT / "docs" / "howto" / "use-from-python.ipynb"
SHORT = {"SYNC_STEPS": 30, "SIMULATED_UPDATES": 2000}


def code_cells(notebook: pathlib.Path = NOTEBOOK) -> list[dict]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_notebook_has_the_commands_of_the_page():
    page = NOTEBOOK.with_suffix(".md").read_text(encoding="utf-8")
    code = "\n".join("".join(cell["source"]) for cell in code_cells())
    assert code.count('sh("ps_trainer ') == page.count("\nps_trainer ") >= 11
    (parameters,) = [cell for cell in code_cells() if cell["metadata"].get("tags") == ["parameters"]]
    assert parameters == code_cells()[0]


@pytest.mark.process
def test_cells_run_and_the_answers_are_the_expected_ones(tmp_path, monkeypatch, capsys):
    """A kernel of Jupyter does the same: it runs the source of each cell in one namespace, in the notebook's folder."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    program = bin_dir / "ps_trainer"  # the console script, of this clone and this Python
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}:$PYTHONPATH" exec "{sys.executable}" -m ps_trainer "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}{os.pathsep}{os.environ['PATH']}")
    for name in ("COMMON", "ASYNC_STEPS", *SHORT):
        monkeypatch.setenv(name, "")  # so that the cells' values end with the test
    monkeypatch.chdir(tmp_path)
    first, *others = ["".join(cell["source"]) for cell in code_cells()]
    namespace: dict = {}
    exec(first, namespace)
    assert namespace.keys() >= SHORT.keys()
    namespace.update(SHORT)
    for number, source in enumerate(others):
        try:
            exec(compile(source, f"cell {number}", "exec"), namespace)
        except Exception as error:
            pytest.fail(f"{error}\nin the cell\n{source}\nafter\n{capsys.readouterr().out[-4000:]}")
    assert "the mean of the largest" in capsys.readouterr().out


# Like a kernel of Jupyter: the cells' names, classes among them, belong to the module `__main__`, and a cell ends with
# the value of its last expression.
KERNEL = """
import json, sys
for number, source in enumerate(json.load(sys.stdin)):
    exec(compile(source, f"cell {number}", "exec"), globals())
print("all cells ran")
"""


@pytest.mark.process
def test_cells_of_the_guide_to_the_api_run(tmp_path):
    sources = ["".join(cell["source"]) for cell in code_cells(PYTHON)]
    assert len(sources) >= 6
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        input=json.dumps(sources),
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "all cells ran"
    page = PYTHON.with_suffix(".md").read_text(encoding="utf-8")
    shown = re.compile(r"^step 200: loss 0\.\d+, accuracy 0\.9\d*; mean staleness 0\.00$", re.MULTILINE)
    assert shown.match(done.stdout) and shown.search(page)
    assert list(tmp_path.iterdir()) == []
