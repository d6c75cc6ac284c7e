"""The page over all experiments."""

from __future__ import annotations

import dataclasses
import json

from ps_trainer.experiments.harness import index
from ps_trainer.experiments.harness.provenance import provenance
from ps_trainer.experiments.harness.report import ClaimLine, Conclusion

ORIGIN = provenance(["python", "-m", "ps_trainer", "experiment", "all"])
CONCLUSION = Conclusion(
    name="dice",
    title="Throws dice",
    source="Pacioli 1494",
    quick=False,
    verdict="partly",
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
    CONCLUSION, name="coins", verdict="run failed: heads", claims=[], failures=["heads"], contended=[], quick=True
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
    assert rows[1] == "| [dice](dice/report.md) | Pacioli 1494 | partly | 1 ok |  |  | 1 refuted | 2:05 | 1 of 7 runs |"
    assert rows[3:] == [
        "| dice | Dice are fair | literature | all 2 inside | ok |",
        "| dice | Dice are red | extension | 1 of 2 outside | refuted |",
    ]
    assert "1 experiment, 7 runs, 2:05." in "\n".join(lines)
    assert '<a href="dice/report.html">dice</a>' in (tmp_path / "index.html").read_text()


def test_an_experiment_without_a_report_is_not_linked(tmp_path):
    index.write(tmp_path, [FAILED], ORIGIN)
    text = (tmp_path / "index.md").read_text()
    assert "| coins | Pacioli 1494 | run failed: heads |  |  |  |  | 2:05 | none |" in text
    assert "Quick forms" in text
