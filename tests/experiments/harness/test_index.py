"""The page over all experiments."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

from ps_trainer.experiments.harness import index
from ps_trainer.experiments.harness.claims import ClaimLine
from ps_trainer.experiments.harness.conclusion import Conclusion
from ps_trainer.experiments.harness.provenance import provenance

ORIGIN = provenance(["python", "-m", "ps_trainer", "experiment", "all"])
CONCLUSION = Conclusion(
    name="dice",
    title="Throws dice",
    source="Pacioli 1494",
    quick=False,
    verdict="partly",
    question="Are dice fair?",
    answer="They are.",
    claims=[
        ClaimLine(sentence="Dice are fair", measured="all 2 inside", outcome="ok", kind="literature"),
        ClaimLine(sentence="Dice are red", measured="1 of 2 outside", outcome="refuted", kind="extension"),
    ],
    num_runs=7,
    run_secs=125.0,
    contended=["d6-1"],
    failures=[],
)
FAILED = dataclasses.replace(
    CONCLUSION,
    name="coins",
    verdict="run failed: heads",
    answer="",
    claims=[],
    failures=["heads"],
    contended=[],
    quick=True,
)


def save(folder, conclusion):
    (folder / conclusion.name).mkdir()
    (folder / conclusion.name / "conclusion.json").write_text(json.dumps(dataclasses.asdict(conclusion)))


def test_conclusions_are_read_in_the_order_of_their_names(tmp_path):
    save(tmp_path, CONCLUSION)
    save(tmp_path, FAILED)
    assert index.read(tmp_path, ["coins", "cards", "dice"]) == [FAILED, CONCLUSION]


def test_the_index_has_a_row_per_experiment_and_one_per_claim(tmp_path):
    index.write(tmp_path, [CONCLUSION], ORIGIN)
    lines = (tmp_path / "index.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and "---" not in line]
    assert rows[1] == "| [dice](dice/report.md) | Are dice fair? | They are. | partly | – | – | 0 of 1 ok | 2 |"
    assert rows[-2:] == [
        "| dice | Dice are fair | literature | all 2 inside | ok |",
        "| dice | Dice are red | extension | 1 of 2 outside | refuted |",
    ]
    assert "1 experiment, 7 runs, 2:05." in "\n".join(lines)
    assert '<a href="dice/report.html">dice</a>' in (tmp_path / "index.html").read_text()


def test_an_experiment_without_a_report_is_not_linked(tmp_path):
    index.write(tmp_path, [FAILED], ORIGIN)
    text = (tmp_path / "index.md").read_text()
    assert "| coins | Are dice fair? |  | run failed: heads | – | – | – | 2 |" in text
    assert "Quick forms" in text


def test_symbols_are_explained_below_the_heading_that_pages_link_to(tmp_path):
    index.write(tmp_path, [CONCLUSION], ORIGIN)
    assert "\n## Symbols and levels\n\n| symbol or word | meaning |\n" in (tmp_path / "index.md").read_text()
    assert '<h2 id="symbols-and-levels">' in (tmp_path / "index.html").read_text()


def test_conclusions_of_older_versions_have_no_question(tmp_path):
    old = dataclasses.asdict(CONCLUSION)
    del old["question"], old["answer"]
    (tmp_path / "dice").mkdir()
    (tmp_path / "dice" / "conclusion.json").write_text(json.dumps(old))
    (conclusion,) = index.read(tmp_path, ["dice"])
    assert (conclusion.question, conclusion.answer) == ("", "")


def test_amended_claims_are_listed_with_their_reason():
    amended = SimpleNamespace(sentence="Dice are fair", amended="2026-01-01: fifty throws in place of ten")
    kept = SimpleNamespace(sentence="Dice fall", amended="")
    table = index.amendments([SimpleNamespace(name="dice", claims=[kept, amended])])
    assert table.rows == [["dice", "Dice are fair", "2026-01-01: fifty throws in place of ten"]]
