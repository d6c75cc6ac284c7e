"""The pages in docs/: generated ones are current, and every command that a page shows exists with its flags."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import pathlib
import re
import shlex
import subprocess
import sys
from collections import Counter

import pytest

from ps_trainer import component_tables
from ps_trainer.cli import main

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
RESULTS = ROOT / "docs" / "results"
PROGRAM = re.compile(r"^(?:ps_trainer|python -m ps_trainer) (\w+)(.*)$")


def commands(text: str) -> list[tuple[str, str]]:
    """(command, rest of the line) of each call of ps_trainer in the shell blocks of a page."""
    shell = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    for name, value in re.findall(r'^(\w+)="(.*)"$', shell, flags=re.MULTILINE):
        shell = shell.replace(f"${name}", value)
    lines = [part.strip() for part in re.split(r"[;|\n]|\bdo\b", shell)]
    return [match.groups() for line in lines if (match := PROGRAM.match(line))]


def help_of(command: str) -> str:
    """The help text of a command; raises SystemExit or returns an empty text for an unknown one."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main.main(["ps_trainer", command, "--helpfull"])
    return out.getvalue()


GENERATORS = ["generate_reference.py", "generate_notebook.py", "draw_diagrams.py", "draw_step_rate.py"]


@pytest.mark.parametrize("script", GENERATORS)
def test_generated_files_are_current(script):
    result = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_no_page_has_an_anchor_twice(page):
    anchors = re.findall(r'<a id="([^"]+)">', page.read_text(encoding="utf-8"))
    assert [name for name, count in Counter(anchors).items() if count > 1] == []


def test_screenshot_is_the_last_whole_frame_in_which_every_worker_trains():
    spec = importlib.util.spec_from_file_location("draw_screenshot", ROOT / "docs" / "draw_screenshot.py")
    screenshot = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(screenshot)
    rows = [" worker-0  training   12\r\n", " worker-1  training   12\r\n", " worker-2  training   12\r\n"]
    below = "[####  ] {}/3,000 steps  90 steps/s\r\nevaluation at step 5: accuracy 0.5"
    erase = "\r\x1b[2K" + "\x1b[1A\x1b[2K" * 4
    frames = [
        "".join(rows) + below.format("10"),
        "".join(rows) + below.format("2,690"),
        "".join(rows) + below.format("2,710"),  # beyond nine tenths
        "".join(rows[:2]) + " worker-2  done\r\n" + below.format("2,600"),
    ]
    assert screenshot.choose_frame(erase.join(frames)) == frames[1].replace("\r\n", "\n")


def test_reference_sends_no_reader_to_the_code():
    for page in (ROOT / "docs" / "reference").glob("*.md"):
        text = page.read_text(encoding="utf-8").partition("change the code's docstrings. -->")
        assert "docstring" not in (text[2] or text[0]), page.name


def test_pages_show_commands():
    assert sum(len(commands(page.read_text(encoding="utf-8"))) for page in PAGES) > 20


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT / "docs")))
def test_commands_and_flags_exist(page):
    for command, rest in commands(page.read_text(encoding="utf-8")):
        text = help_of(command)
        assert text, command
        for flag in re.findall(r"--(\w+)", " ".join(shlex.split(rest))):
            assert re.search(rf"--(\[no\])?{flag.removeprefix('no')}\b", text), f"{command} has no flag --{flag}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^([\w-]+/[\w*-]+)$", index, flags=re.MULTILINE)
    assert {page for entry in listed for page in (ROOT / "docs").glob(f"{entry}.md")} == set(PAGES) - {
        ROOT / "docs/index.md"
    }


def test_models_that_the_results_cite_by_number_are_explained():
    pages = "".join(page.read_text(encoding="utf-8") for page in RESULTS.glob("*.md"))
    cited = set(re.findall(r"\bA\d{1,2}\b", pages))
    guide = (ROOT / "docs" / "howto" / "run-an-experiment.md").read_text(encoding="utf-8")
    assert cited and cited <= set(re.findall(r"^\| (A\d+) \|", guide, re.MULTILINE))


@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_guide_to_experiments_has_the_question_and_the_minutes_of_each(name):
    guide = (ROOT / "docs" / "howto" / "run-an-experiment.md").read_text(encoding="utf-8")
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    minutes = re.search(r"makes these \d+ runs in (\d+) min", page)[1]
    assert f"| `{name}` | {component_tables.EXPERIMENTS.load(name).texts.question} | {minutes} |\n" in guide


def test_index_of_the_results_has_the_figures_of_the_pages():
    index = (RESULTS / "index.md").read_text(encoding="utf-8")
    names = component_tables.EXPERIMENTS.names()
    pages = "".join((RESULTS / f"{name}.md").read_text(encoding="utf-8") for name in names)
    runs = [(int(count), int(minutes)) for count, minutes in re.findall(r"makes these (\d+) runs in (\d+) min", pages)]
    num_runs, (hours, minutes) = sum(count for count, _ in runs), divmod(sum(minutes for _, minutes in runs), 60)
    assert len(runs) == len(names)
    assert f"{num_runs:,} runs, {hours} hours and {minutes} minutes" in index
    claims = (RESULTS / "all-claims.md").read_text(encoding="utf-8")
    lines = [line.removesuffix(" |").split(" | ") for line in claims.splitlines() if line.startswith("| ")]
    # After the header and the line below it; the lists of amended and of withdrawn claims have fewer columns.
    rows = [cells[-1] for cells in lines[2:] if len(cells) == len(lines[0])]
    outcomes = {word: rows.count(word) for word in ("ok", "partly", "undecided", "refuted", "not testable")}
    assert sum(outcomes.values()) == len(rows)
    counts = ", ".join(f"{count} {'are' if count > 1 else 'is'} {word}" for word, count in outcomes.items() if count)
    with (RESULTS / "limits.csv").open(encoding="utf-8", newline="") as file:
        withdrawn = sum(bool(row["withdrawn"]) for row in csv.DictReader(file))
    assert f"Of {len(rows)} claims, {counts}; {withdrawn} more were [withdrawn]" in " ".join(index.split())
