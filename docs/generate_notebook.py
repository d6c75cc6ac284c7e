"""Writes the notebooks of docs/, each from the page of the same name: the lab, and the guide to the Python API.

    python docs/generate_notebook.py            # writes the notebooks
    python docs/generate_notebook.py --check    # exits with 1 if a notebook is out of date

Text becomes text. Commands of a shell and blocks of Python become code. In the lab the numbers of steps become a
parameter in the first cell, so that a short form of the lab can run. A test calls the check and runs the cells.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
LAB = DOCS / "tutorials" / "async-vs-sync.md"
PYTHON = DOCS / "howto" / "use-from-python.md"
SYNC_STEPS = 400

PARAMETERS = f"""\
# Parameters of the notebook. Asynchronous runs make four times as many updates as synchronous ones. With other numbers
# the rates and losses differ from those in the answers.
SYNC_STEPS = {SYNC_STEPS}
SIMULATED_UPDATES = 10000
"""
HELPER = '''\
import os
import subprocess

os.environ["SYNC_STEPS"] = str(SYNC_STEPS)
os.environ["ASYNC_STEPS"] = str(4 * SYNC_STEPS)
os.environ["SIMULATED_UPDATES"] = str(SIMULATED_UPDATES)


def sh(command):
    """Runs a command of the shell, and prints its output below the cell."""
    result = subprocess.run(command, shell=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(result.stdout)
    assert result.returncode == 0, f"exit code {result.returncode}: {command}"
'''


def main(argv: list[str]) -> int:
    """Writes or checks the notebooks; returns the exit code."""
    code = 0
    for page, first_cells in ((LAB, [(PARAMETERS, ["parameters"]), (HELPER, [])]), (PYTHON, [])):
        file = page.with_suffix(".ipynb")
        text = json.dumps(notebook(page.read_text(encoding="utf-8"), first_cells), indent=1, ensure_ascii=False) + "\n"
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        if "--check" in argv:
            name = file.relative_to(DOCS.parent)
            print(f"{name} is out of date; run: python docs/generate_notebook.py", file=sys.stderr)
            code = 1
        else:
            file.write_text(text, encoding="utf-8")
    return code


def notebook(page: str, first_cells: Sequence[tuple[str, list[str]]]) -> dict[str, Any]:
    """The notebook of a page, as the JSON of the notebook format 4.5.

    Args:
        page: Text of the page.
        first_cells: Source and tags of the cells before the page's first code.
    """
    cells = []
    for kind, source, tags in _cells(page, first_cells):
        cell: dict[str, Any] = {
            "cell_type": kind,
            "id": f"cell-{len(cells)}",
            "metadata": {"tags": tags} if tags else {},
        }
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append({**cell, "source": source.strip("\n").splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _cells(page: str, first_cells: Sequence[tuple[str, list[str]]]) -> Iterator[tuple[str, str, list[str]]]:
    """(type, source, tags) of each cell; the first cells come after the text before the first command."""
    parts = re.split(r"^```(sh|python)\n(.*?)^```\n", page, flags=re.MULTILINE | re.DOTALL)
    text, is_first = parts[0], True
    for language, code, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if language == "sh" and "pip install" in code:  # done before the notebook is opened
            text += f"```sh\n{code}```\n{after}"
            continue
        yield "markdown", text, []
        if is_first:
            for source, tags in first_cells:
                yield "code", source, tags
            is_first = False
        yield "code", code if language == "python" else "\n".join(_as_python(line) for line in code.splitlines()), []
        text = after
    yield "markdown", text, []


def _as_python(line: str) -> str:
    """A line of the shell as a statement of Python."""
    setting = re.fullmatch(r'(\w+)="(.*)"', line)
    if setting:
        return f'os.environ["{setting[1]}"] = "{setting[2]}"'
    line = line.replace(f"--max_steps={4 * SYNC_STEPS}", "--max_steps=$ASYNC_STEPS")
    line = line.replace("ps_trainer simulate", "ps_trainer simulate --max_updates=$SIMULATED_UPDATES")
    return f'sh("{line.replace(f"--max_steps={SYNC_STEPS}", "--max_steps=$SYNC_STEPS")}")'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
