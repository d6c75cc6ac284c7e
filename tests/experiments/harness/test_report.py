"""The files of one experiment."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest
from rich.console import Console

from ps_trainer.errors import RunError
from ps_trainer.experiments.backups_at_scale.experiment import BackupsAtScale
from ps_trainer.experiments.harness import published_pages, report
from ps_trainer.experiments.harness.claims import ClaimLine, Elsewhere
from ps_trainer.experiments.harness.progress import PlainProgress
from ps_trainer.experiments.harness.provenance import provenance
from ps_trainer.experiments.harness.runner import execute, prepare

ORIGIN = provenance(["python", "-m", "ps_trainer", "experiment", "dice"])


@pytest.fixture
def write(dice, tmp_path):
    """Executes the experiment and writes its report; returns its folder and its findings."""

    def work(**changes):
        job = prepare(dice(), tmp_path, **{"quick": False, "num_seeds": 2, "keep_runs": False, **changes})
        progress = PlainProgress(Console(file=io.StringIO()))
        progress.plan(job.missing)
        conclusion, checked = report.write(job, execute(job, progress), ORIGIN)
        return job.folder, conclusion, checked

    return work


def test_the_report_names_claims_outcomes_numbers_and_their_origin(write):
    folder, conclusion, checked = write()
    text = (folder / "report.md").read_text()
    assert [one.finding.value for one in checked] == ["ok", "not testable"]
    assert text.startswith(
        "# Throws dice and looks at the mean\n\n**Question:** Are dice fair?\n\n**Answer:** The means"
    )
    assert "Verdict: shape reproduced." in text
    assert "Claims: literature: 1 ok; theory: 1 not testable. The verdict comes from those of the literature." in text
    assert "Seen: “The mean of a die with k sides is (k + 1)/2”: ok (all 2 inside, nearest: 0." in text
    assert "| The mean of a die with k sides is (k + 1)/2 | literature | all 2 inside" in text
    assert "| software does not fall | acceleration in m/s² is outside 9 to 10 | not testable |" in text
    assert "recalled, not read again (Pacioli 1494)" in text
    assert "the paper says" not in text
    assert "(L0 virtual time)" in text
    assert "Each side is as likely." in text
    assert "Something is added to each throw." not in text
    assert "4 runs with seeds 0 to 1, " in text
    assert "`python -m ps_trainer experiment dice`" in text
    assert "not comparable" not in text
    assert conclusion.verdict == "shape reproduced"


def test_sections_have_an_order(write):
    folder, *_ = write()
    text = (folder / "report.md").read_text()
    parts = (
        *("**Question:**", "**Answer:**", "Verdict:", "![Means & runs](means.png)"),
        *("## Background", "mean = (k + 1)/2", "[Symbols and levels](../index.md#symbols-and-levels)"),
        *("## What the sources found", "Pacioli (p. 1)", "## What was run", "Dice of software."),
        *("## What you see, and why", "**Holds** (literature)", "## Claims", "| claim |"),
        *("## Tables", "* Dice are `random.Random`.", "**Means**", "## Limits", "* Software does not fall."),
        *("## How to reproduce", "`ps_trainer experiment dice` makes these 4 runs in 1 minute on"),
        "* 4 runs with seeds 0 to 1, ",
    )
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "](../index.html#symbols-and-levels)" not in text
    assert 'href="../index.html#symbols-and-levels"' in (folder / "report.html").read_text()


def test_the_best_plot_is_not_among_the_others(write, dice, monkeypatch):
    monkeypatch.setattr(dice, "texts", dataclasses.replace(dice.texts, best_plot="no plot"))
    folder, *_ = write()
    text = (folder / "report.md").read_text()
    assert text.index("## More plots") < text.index("![Means & runs](means.png)") < text.index("## Tables")


def test_a_published_report_has_the_present_texts(write, dice):
    folder, *_ = write()
    page = published_pages.with_local_links((folder / "report.md").read_text())
    page = page.replace("](means.png)", "](plots/dice-means.png)")
    assert published_pages.with_texts(page, dice()) == page
    assert published_pages.with_captions(page.replace("Seen:", "Old:"), dice.captions) == page
    assert [line.outcome for line in published_pages.read_claims(page)] == ["ok", "not testable"]


def test_the_page_needs_no_other_file(write):
    folder, *_ = write()
    text = (folder / "report.html").read_text()
    assert "data:image/svg+xml;base64," in text
    assert "Throws dice and looks at the mean" in text
    assert "http" not in text.replace("http://www.w3.org", "")


def test_every_file_exists(write):
    folder, *_ = write()
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "report.md",
        "report.html",
        "results.csv",
        "steps.jsonl",
        "provenance.json",
        "conclusion.json",
        "means.png",
        "means.svg",
        "runs",
    }


def test_results_have_a_line_per_run_with_settings_and_figures(write):
    folder, *_ = write()
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == ["d4-0", "d4-1", "d6-0", "d6-1"]
    assert (rows[3]["sides"], rows[3]["seed"], rows[3]["largest"], rows[3]["level"]) == (
        "6",
        "1",
        "6",
        "L0 virtual time",
    )
    assert rows[0]["is_comparable"] == "True"
    assert "all" not in rows[0]  # not a scalar


def test_steps_carry_the_key_of_their_run(write):
    folder, *_ = write()
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert len(steps) == 4 * 5
    assert steps[5].keys() == {"run_id", "exp_id", "level", "seed", "local_step", "points"}
    assert (steps[5]["run_id"], steps[5]["exp_id"], steps[5]["local_step"]) == ("d4-1", "dice", 0)


def test_provenance_holds_command_seeds_and_each_runs_cpu_share(write):
    folder, *_ = write()
    origin = json.loads((folder / "provenance.json").read_text())
    assert origin["command"] == ORIGIN["command"]
    assert origin["seeds"] == [0, 1]
    assert origin["runs"]["d6-1"]["settings"] == {"sides": 6}
    assert origin["runs"]["d6-1"]["is_comparable"] is True
    assert "cpu_share" in origin["runs"]["d6-1"]


def test_a_broken_die_refutes_the_claim(write, dice, monkeypatch):
    monkeypatch.setattr(dice, "bonus", 1)
    folder, conclusion, checked = write()
    assert checked[0].finding.value == "refuted"
    assert conclusion.verdict == "not reproduced"
    assert conclusion.answer == "The means are not as they must be (in both cases)."
    text = (folder / "report.md").read_text()
    assert "2 of 2 outside" in text
    assert "Something is added to each throw." in text
    assert "Each side is as likely." not in text


def test_a_report_beside_it_has_the_outcome_of_a_claim_that_it_tests(write, dice, tmp_path, monkeypatch):
    monkeypatch.setattr(dice, "tested_elsewhere", (Elsewhere("the accuracy", "backups_at_scale", "accuracy"),))
    _, conclusion, _ = write()
    assert conclusion.verdict == "partly. Not tested: the accuracy (`backups_at_scale` tests it)"
    (claim,) = (claim for claim in BackupsAtScale.claims if claim.key == "accuracy")
    line = ClaimLine(sentence=claim.sentence, measured="-0.1", outcome="refuted")
    other = dataclasses.replace(conclusion, name="backups_at_scale", claims=[line])
    (tmp_path / "backups_at_scale").mkdir()
    (tmp_path / "backups_at_scale" / "conclusion.json").write_text(json.dumps(dataclasses.asdict(other)))
    _, conclusion, _ = write()
    assert conclusion.verdict == "partly. Tested in `backups_at_scale`: the accuracy, refuted"
    _, conclusion, _ = write(quick=True)  # a full run says nothing about a quick form
    assert conclusion.verdict.startswith("partly. Not tested: the accuracy")


def test_with_a_failed_run_there_is_no_verdict(write, dice):
    dice.failing = {"d6-1": RunError("fell off the table")}
    folder, conclusion, checked = write()
    assert conclusion.verdict == "run failed: d6-1"
    assert conclusion.failures == ["d6-1"]
    assert checked == []
    assert not (folder / "report.md").exists()
    assert len((folder / "results.csv").read_text().splitlines()) == 1 + 3


def test_the_conclusion_is_kept_for_the_index(write):
    folder, conclusion, _ = write(quick=True)
    kept = json.loads((folder / "conclusion.json").read_text())
    assert kept["quick"] is True
    assert kept["num_runs"] == 2
    assert kept["claims"][0]["outcome"] == "ok"
    assert kept["run_secs"] == pytest.approx(conclusion.run_secs)
    assert ", quick form" in (folder / "report.md").read_text()
    assert "`ps_trainer experiment dice --quick` makes" in (folder / "report.md").read_text()


def test_runs_of_other_commits_are_counted(write):
    write(commit="a" * 40)
    folder, *_ = write(num_seeds=3, commit="b" * 40)
    assert "* Other commits made some runs: 4 by commit aaaaaaa.\n" in (folder / "report.md").read_text()
    folder, *_ = write(commit="a" * 40)
    assert "Other commits" not in (folder / "report.md").read_text()
