"""Rows, and the files of a report."""

from __future__ import annotations

import csv
import dataclasses
import json

import pytest

from benchmarks.report import Report, ResultColumn, Row
from ps_trainer.experiments.harness.provenance import origin_sentence


@dataclasses.dataclass(frozen=True, kw_only=True)
class TideRow(Row):
    COLUMNS = (
        ResultColumn("port", "port"),
        ResultColumn("m", "height", ".1f"),
        ResultColumn("km", "height", ".4f", 1000),
    )

    port: str
    height: float | None

    @property
    def is_good(self) -> bool:
        return self.height is not None


@pytest.fixture
def report(tmp_path):
    return Report("benchmarks.tides", ["--moon"], tmp_path / "new" / "out")


def test_all_files_hold_all_rows_after_each(report, tmp_path, capsys):
    out = tmp_path / "new" / "out"
    for number in (1, 2):
        report.add(TideRow(port="Brest", height=1.23456 * number))
        rows = json.loads((out / "results.json").read_text())["rows"]
        assert rows == [{"port": "Brest", "height": height} for height in (1.235, 2.469)[:number]]
        with (out / "results.csv").open(newline="") as file:
            assert list(csv.DictReader(file)) == [{name: str(value) for name, value in row.items()} for row in rows]
    report.notes.append("High water.")
    report.figures["moon"] = "full"
    assert report.finish() == 0
    results = json.loads((out / "results.json").read_text())
    assert (results["moon"], results["provenance"]["command"]) == ("full", "python -m benchmarks.tides --moon")
    table = "| port | m | km |\n| --- | --: | --: |\n| Brest | 1.2 | 0.0012 |\n| Brest | 2.5 | 0.0025 |\n"
    text = (out / "results.md").read_text()
    assert text == f"{table}\nHigh water.\n\n{origin_sentence(report.origin)}\n"
    assert capsys.readouterr().out.endswith(text)


def test_a_bad_row_is_exit_code_1_and_a_missing_value_a_dash(report, capsys):
    report.add(TideRow(port="a|b", height=None))
    assert report.finish() == 1
    assert "| a/b | – | – |" in capsys.readouterr().out


def test_a_failure_without_a_row_is_exit_code_1(report):
    assert report.finish(has_failed=True) == 1
