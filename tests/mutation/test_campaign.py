"""A campaign on a small repository: caught mutants and their tests, survivors, and an untouched working tree."""

from __future__ import annotations

import subprocess

import pytest

from tests.mutation import campaign as campaign_lib
from tests.mutation.campaign import Campaign, write_table

CODE = '''"""A module."""


def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)


def is_large(value):
    return value > 10
'''

TESTS = """from package.sums import numbers


def test_is_large():  # not at the bound
    assert numbers.is_large(11) and not numbers.is_large(9)


def test_mean_is_not_negative():  # of no use against most mutants
    assert numbers.mean([1, 3]) >= 0


def test_mean():
    assert numbers.mean([1, 3]) == 2


def test_that_fails_by_itself():
    assert False
"""


@pytest.fixture
def campaign(tmp_path):
    repository = tmp_path / "repository"
    for name, text in {
        "package/__init__.py": "",
        "package/sums/__init__.py": "",
        "package/sums/numbers.py": CODE,
        "tests/__init__.py": "",
        "tests/sums/__init__.py": "",
        "tests/sums/test_numbers.py": TESTS,
    }.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git = ["git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *arguments], check=True)
    return Campaign(repository=repository, commit="HEAD", package="package", folders=("sums",), work=tmp_path / "work")


def mutant_of(campaign, after):
    campaign.export()
    (mutant,) = [mutant for place in campaign.places() for mutant in place if mutant.after == after]
    return mutant


def test_a_caught_mutant_has_the_test_that_failed(campaign):
    verdict = campaign.try_out(mutant_of(campaign, "(total * len(values))"))
    assert (verdict.outcome, verdict.by) == ("failed", "tests/sums/test_numbers.py::test_mean")
    assert verdict.why == "assert 8 == 2"
    assert verdict.reached_by == 2


def test_a_mutant_that_no_test_notices_survives(campaign):
    verdict = campaign.try_out(mutant_of(campaign, "(value >= 10)"))
    assert (verdict.outcome, verdict.by, verdict.reached_by) == ("survived", "", 1)


def test_a_mutant_that_never_ends_is_caught_by_a_timeout(campaign, monkeypatch):
    monkeypatch.setattr(campaign_lib, "_MIN_LIMIT_SECS", 0.5)
    mutant = mutant_of(campaign, "total -= value")._replace(after="\n        while True: pass")
    verdict = campaign.try_out(mutant)
    # Which test comes first depends on how long the tests took, so on the machine's load.
    assert verdict.outcome == "timeout"
    assert verdict.by.startswith("tests/sums/test_numbers.py::test_")


def test_a_mutant_that_kills_the_process_is_caught(campaign):
    mutant = mutant_of(campaign, "total -= value")._replace(after="import os; os.kill(os.getpid(), 9)")
    assert campaign.try_out(mutant).outcome == "crash"


def test_a_mutant_that_cannot_be_imported_is_caught(campaign):
    mutant = mutant_of(campaign, "total -= value")._replace(after="return return")
    assert campaign.try_out(mutant)[:2] == ("failed", "tests/sums/test_numbers.py")


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("pytest.ini", "[pytest]\naddopts = --no-such-option\n", 4),
        ("conftest.py", "def pytest_collection_modifyitems(items):\n    items.clear()\n", 5),
        ("conftest.py", "def pytest_collection_finish(session):\n    raise KeyError\n", 3),
    ],
)
def test_a_session_in_which_pytest_fails_says_nothing_about_the_mutant(campaign, file, text, code):
    mutant = mutant_of(campaign, "(value >= 10)")
    campaign.tests_of("sums")
    (campaign.tree / file).write_text(text)
    printed = []
    ((_, verdict),) = campaign.run([mutant], say=printed.append)
    assert (verdict.outcome, verdict.why) == ("error", f"pytest ended with exit code {code}")
    assert f"error pytest ended with exit code {code} (" in printed[0]
    (campaign.tree / file).unlink()
    ((_, verdict),) = campaign.run([mutant])
    assert verdict.outcome == "survived"


def test_a_test_that_fails_by_itself_catches_nothing(campaign):
    campaign.export()
    assert "tests/sums/test_numbers.py::test_that_fails_by_itself" not in campaign.tests_of("sums")


def test_picks_the_same_places_for_the_same_seed_and_none_twice(campaign):
    campaign.export()
    picked = campaign.pick(5, 4)
    assert picked == campaign.pick(5, 4)
    assert len({(mutant.line, mutant.start) for mutant in picked}) == 4
    assert any(campaign.pick(seed, 4) != picked for seed in range(10))


def test_an_excluded_file_has_no_places(campaign):
    campaign.export()
    assert campaign.places()
    assert campaign.__class__(**{**vars(campaign), "excluded": ("package/sums/numbers.py",)}).places() == []


def test_continues_where_it_was_stopped_and_leaves_the_files_unchanged(campaign, tmp_path):
    mutants = [mutant_of(campaign, after) for after in ("(total * len(values))", "(value >= 10)")]
    (campaign.tree / "package/sums/numbers.py").write_text("left by a campaign that was killed")
    campaign.export()
    first = campaign.run(mutants[:1], say=lambda line: None)
    printed = []
    results = campaign.run(mutants, say=printed.append)
    assert results[0] == first[0]  # including its measured time
    assert [line.split(": ")[1].split()[0] for line in printed] == ["failed", "survived"]
    assert (campaign.tree / "package/sums/numbers.py").read_text() == CODE
    assert (campaign.repository / "package/sums/numbers.py").read_text() == CODE
    write_table(tmp_path / "table.csv", results)
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert lines[0] == "number,place,kind,before,after,outcome,by,why,reached_by,secs"
    assert lines[2].startswith("2,package/sums/numbers.py:12,comparison,value > 10,(value >= 10),survived,,,1,")
