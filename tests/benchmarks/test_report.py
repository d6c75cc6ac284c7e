"""Rows, files and table made from measurements."""

from __future__ import annotations

import csv
import io
import json

from benchmarks import report
from benchmarks.contenders import Cell
from benchmarks.measure import Measurement

CELL = Cell("deep", "sync", num_ps=2, num_workers=2)


def runs(*rates: float, cpu: float = 0.01) -> list[Measurement]:
    """Measurements whose two workers lie 1 step/s below and above each of `rates`."""
    return [Measurement((rate - 1.0, rate + 1.0), 6.0, cpu, 0.25) for rate in rates]


def test_row_holds_median_spread_and_ratio_of_medians():
    stock, packed = report.rows(CELL, {"stock": runs(50.0, 70.0, 40.0), "packed": runs(300.0, 100.0, 250.0)})
    assert (stock.workload, stock.mode, stock.ps, stock.workers, stock.who) == ("deep", "sync", 2, 2, "stock")
    assert (stock.steps_per_sec, stock.ratio_to_stock) == (50.0, 1.0)
    assert packed.steps_per_sec == 250.0
    assert (packed.steps_per_sec_min, packed.steps_per_sec_max) == (100.0, 300.0)
    assert packed.examples_per_sec == 250.0 * 2 * 32
    assert packed.ratio_to_stock == 250.0 / 50.0
    assert packed.repetitions == 3


def test_no_ratio_without_stock():
    (row,) = report.rows(CELL, {"packed": runs(100.0)})
    assert row.ratio_to_stock is None
    assert json.loads(report.to_json(row))["ratio_to_stock"] is None


def test_rules_have_a_ratio_to_async_in_row_and_table():
    slow, fast = report.rows(CELL, {"async": runs(200.0), "ssp": runs(150.0)})
    assert (slow.ratio_to_async, fast.ratio_to_async) == (1.0, 150.0 / 200.0)
    assert (slow.ratio_to_stock, fast.ratio_to_stock) == (None, None)
    file = io.StringIO()
    report.print_table([slow, fast], file)
    assert "÷ async" in file.getvalue()
    assert "0.75" in file.getvalue()


def test_json_line_has_the_promised_keys_and_four_digits():
    _, row = report.rows(CELL, {"stock": runs(30.0), "packed": runs(100.12345)})
    values = json.loads(report.to_json(row))
    assert "\n" not in report.to_json(row)
    assert {k: values[k] for k in ("workload", "mode", "ps", "workers", "who")} == {
        "workload": "deep",
        "mode": "sync",
        "ps": 2,
        "workers": 2,
        "who": "packed",
    }
    assert (values["steps_per_sec"], values["examples_per_sec"], values["ratio_to_stock"]) == (100.1, 6408.0, 3.337)


def test_results_come_back_from_both_files(tmp_path):
    rows = report.rows(CELL, {"stock": runs(50.0), "packed": runs(100.0)})
    report.write_results(rows, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    with (tmp_path / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert lines == [json.loads(report.to_json(row)) for row in rows]
    assert table == [{k: "" if v is None else str(v) for k, v in line.items()} for line in lines]


def test_table_cuts_nothing():
    rows = report.rows(CELL, {"stock": runs(1050.0), "per_variable": runs(12100.0, cpu=0.0123)})
    file = io.StringIO()
    report.print_table(rows, file)
    assert "…" not in file.getvalue()
    line = next(line for line in file.getvalue().splitlines() if "per_variable" in line)
    ratio = f"{12100 / 1050:.2f}"
    expected = [
        "deep",
        "sync",
        "2",
        "2",
        "per_variable",
        "12100.0",
        "(12100.0..12100.0)",
        "774400",
        ratio,
        "12.3",
        "0.2",
    ]
    assert line.split() == expected


def test_no_table_without_rows():
    file = io.StringIO()
    report.print_table([], file)
    assert file.getvalue() == ""
