"""The notebooks are their pages', and their cells run in their order; the training of the lab is shorter here."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import sys

import pytest

from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.launch.command import cpu_environment
from ps_trainer.launch.forkserver import PROGRAM, ForkServer
from tests.testing.processes import START_SECS
from tests.testing.user_scripts import ScriptTask

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
@pytest.mark.full  # 40 CPU s; the other notebooks run in each `make test`
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
    first, shell, *others = ["".join(cell["source"]) for cell in code_cells()]
    namespace: dict = {}
    exec(first, namespace)
    assert namespace.keys() >= SHORT.keys()
    namespace.update(SHORT)
    exec(shell, namespace)
    with ForkServer(cpu_environment(os.environ), tmp_path / "forkserver.txt", "local") as server:
        server.wait_until_ready()
        namespace["sh"] = forking_shell(namespace["sh"], server, tmp_path / "output.txt")
        for number, source in enumerate(others):
            try:
                exec(compile(source, f"cell {number}", "exec"), namespace)
            except Exception as error:
                pytest.fail(f"{error}\nin the cell\n{source}\nafter\n{capsys.readouterr().out[-4000:]}")
    assert "the mean of the largest" in capsys.readouterr().out


def forking_shell(shell, server, output_path):
    """A shell that forks the launchers of runs: as fresh processes, each of them would import TensorFlow."""

    def call(command):
        program, *words = shlex.split(os.path.expandvars(command))
        if (program, words[0]) != ("ps_trainer", "local"):
            shell(command)
            return
        with output_path.open("wb") as output:
            code = server.popen([*PROGRAM, *words], stdout=output, env=cpu_environment(os.environ)).wait()
        print(output_path.read_text(encoding="utf-8"))
        assert code == 0, f"exit code {code}: {command}"

    return call


# Like a kernel of Jupyter: the cells' names, classes among them, belong to the module `__main__`, and a cell ends with
# the value of its last expression.
KERNEL = """
for number, source in enumerate(sources):
    exec(compile(source, f"cell {number}", "exec"), globals())
print("all cells ran")
"""


def output_of(kernel, sources, folder):
    """Runs cells in the empty folder `folder / "work"`, in a process forked from one that has imported TensorFlow."""
    script, work = folder / "kernel.py", folder / "work"
    work.mkdir()
    script.write_text(f"import os\nos.chdir({str(work)!r})\nsources = {sources!r}\n{kernel}", encoding="utf-8")
    task = ScriptTask("kernel", script, [], folder / "kernel.log", {"PYTHONPATH": str(ROOT)})
    try:
        assert task.wait(2 * START_SECS) == 0, task.log[-4000:]
    finally:
        task.kill()
    return task.log


@pytest.mark.process
def test_cells_of_the_guide_to_the_api_run(tmp_path):
    sources = ["".join(cell["source"]) for cell in code_cells(PYTHON)]
    assert len(sources) >= 6
    printed = output_of(KERNEL, sources, tmp_path)
    assert "all cells ran" in printed.splitlines()
    page = PYTHON.with_suffix(".md").read_text(encoding="utf-8")
    shown = re.compile(r"^step 200: loss 0\.\d+, accuracy 0\.9\d*; mean staleness 0\.00$", re.MULTILINE)
    assert shown.search(printed) and shown.search(page)
    assert list((tmp_path / "work").iterdir()) == []


# A kernel sets `sys.ps1`, and continues after an error in a cell.
CONSOLE = """
import sys
sys.ps1 = "In : "
for source in sources:
    try:
        exec(compile(source, "cell", "exec"), globals())
    except Exception:
        sys.last_value = sys.exc_info()[1]
        print("error:", str(sys.last_value).splitlines()[0])
print("all cells ran")
"""


@pytest.mark.process
def test_cells_of_a_tf1_script_run_and_errors_do_not_end_the_kernel(tmp_path):
    page = (ROOT / "docs" / "howto" / "migrate-tf1.md").read_text(encoding="utf-8")
    section = page.split("## Train from a notebook")[1].split("\n## ")[0]
    good = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(good) == 2
    # First with a ps task that dies under the steps.
    lost = [
        good[0].replace("cluster =", "train.configure(recover_timeout_secs=0)\ncluster ="),
        good[1].replace("value =", "ps.kill(); value ="),
    ]
    cells = []
    for job in (lost, good):
        ports = pick_free_ports(2)
        cells += [cell.replace("2222", str(ports[0])).replace("2223", str(ports[1])) for cell in job]
    printed = output_of(CONSOLE, [*cells, good[1]], tmp_path)  # the last one is refused: its job is over
    said = [line for line in printed.splitlines() if line.startswith(("[", "error:", "all cells"))]  # not TensorFlow
    lost_ps, trained, refused, end = said
    # The last step reads the weights before or after its update: 1 - 0.8**49 or 1 - 0.8**50.
    done_line = re.compile(r"\[(0\.999982\d*|0\.999985\d*) \1\] exit code of the ps: 0")
    assert done_line.fullmatch(trained)
    assert lost_ps.startswith("error: ps-0") and "make all steps in one session" in refused
    assert end == "all cells ran"
