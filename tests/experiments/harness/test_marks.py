"""Marks on an existing page."""

from __future__ import annotations

import re
import subprocess

import pytest

from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness import marks
from ps_trainer.experiments.harness.marks import Mark
from ps_trainer.experiments.harness.provenance import REPOSITORY
from ps_trainer.experiments.harness.publish import RESULTS

PAGE = """# Apples

`apples`. Verdict: partly.

![Height](plots/apples-height-L0.png)

*Height* (L0 virtual time). They fall.

made by commit 1111111, 2020
"""


def mark(after="`apples`", commit="1111111", text="They fell from another tree."):
    return Mark(page="page.md", after=after, commit=commit, date="2021-01-01", text=text)


def test_a_mark_stands_below_its_line_until_the_result_is_measured_again():
    marked = marks.with_marks(PAGE, [mark(), mark("*Height* (L0", text="Wind.")])
    assert "Verdict: partly.\n\n> **Made before a change, by commit 1111111; changed 2021-01-01.** They fell" in marked
    assert "They fall.\n\n> **Made before a change" in marked
    assert marks.with_marks(marked, [mark(), mark("*Height* (L0", text="Wind.")]) == marked
    assert marks.with_marks(marked, []) == PAGE
    again = marked.replace("made by commit 1111111", "made by commit 3333333")
    assert "Made before" not in marks.with_marks(again, [mark()])


def test_a_mark_stands_only_on_what_its_commit_made_and_below_one_line():
    assert marks.with_marks(PAGE, [mark(commit="3333333")]) == PAGE
    with pytest.raises(UsageError, match="0 lines .* begin with '`pears`'"):
        marks.with_marks(PAGE, [mark(after="`pears`")])
    with pytest.raises(UsageError, match="2 lines .* begin with '`apples`'"):
        marks.with_marks(PAGE + PAGE, [mark()])


def git(*args):
    return subprocess.run(["git", *args], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(
    git("rev-parse", "--is-shallow-repository").stdout.strip() != "false", reason="needs the history of the repository"
)
def test_the_pages_say_which_of_their_commits_are_not_in_the_history():
    page = "".join(page.read_text(encoding="utf-8") for page in (REPOSITORY / RESULTS).glob("*.md"))
    named = set(re.findall(r"commit ([0-9a-f]{7})\b", page, re.IGNORECASE))
    lost = {commit for commit in named if git("merge-base", "--is-ancestor", commit, "HEAD").returncode}
    assert named
    assert lost == set(re.findall(r"Commit ([0-9a-f]{7}) is not in the history", page))
