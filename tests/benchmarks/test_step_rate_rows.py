"""Rows and table made from measurements."""

from __future__ import annotations

import json

from benchmarks import step_rate_rows
from benchmarks.contenders import Cell
from benchmarks.step_rate_run import Measurement

CELL = Cell("deep", "sync", num_ps=2, num_workers=2)


def runs(*rates: float, cpu: float = 0.01) -> list[Measurement]:
    """Measurements with two workers, 1 step/s below and above each of `rates`."""
    return [Measurement((rate - 1.0, rate + 1.0), 6.0, cpu, 0.25) for rate in rates]


def test_row_holds_median_spread_and_ratio_of_medians():
    stock, packed = step_rate_rows.rows(CELL, {"stock": runs(50.0, 70.0, 40.0), "packed": runs(300.0, 100.0, 250.0)})
    assert (stock.workload, stock.mode, stock.ps, stock.workers, stock.who) == ("deep", "sync", 2, 2, "stock")
    assert (stock.steps_per_sec, stock.ratio_to_stock) == (50.0, 1.0)
    assert packed.steps_per_sec == 250.0
    assert (packed.steps_per_sec_min, packed.steps_per_sec_max) == (100.0, 300.0)
    assert packed.examples_per_sec == 250.0 * 2 * 32
    assert packed.ratio_to_stock == 250.0 / 50.0
    assert packed.repetitions == 3


def test_no_ratio_without_stock():
    (row,) = step_rate_rows.rows(CELL, {"packed": runs(100.0)})
    assert row.ratio_to_stock is None
    assert json.loads(row.line())["ratio_to_stock"] is None


def test_rules_have_a_ratio_to_async_in_row_and_table():
    slow, fast = step_rate_rows.rows(CELL, {"async": runs(200.0), "ssp": runs(150.0)})
    assert (slow.ratio_to_async, fast.ratio_to_async) == (1.0, 150.0 / 200.0)
    assert (slow.ratio_to_stock, fast.ratio_to_stock) == (None, None)
    table = slow.table([slow, fast])
    assert "÷ async" in table
    assert "0.75" in table


def test_json_line_has_the_promised_keys_and_four_digits():
    _, row = step_rate_rows.rows(CELL, {"stock": runs(30.0), "packed": runs(100.12345)})
    values = json.loads(row.line())
    assert "\n" not in row.line()
    assert {k: values[k] for k in ("workload", "mode", "ps", "workers", "who")} == {
        "workload": "deep",
        "mode": "sync",
        "ps": 2,
        "workers": 2,
        "who": "packed",
    }
    assert (values["steps_per_sec"], values["examples_per_sec"], values["ratio_to_stock"]) == (100.1, 6408.0, 3.337)


def test_table_has_the_figures_in_units():
    rows = step_rate_rows.rows(CELL, {"stock": runs(1050.0), "per_variable": runs(12100.0, cpu=0.0123)})
    head, _, _, line = rows[0].table(rows).splitlines()
    assert "÷ stock" in head
    cells = ["deep", "sync", "2", "2", "per_variable", "12100.0", "12100.0", "12100.0", "774400"]
    cells += [f"{12100 / 1050:.2f}", "12.3", "0.2"]
    assert line == f"| {' | '.join(cells)} |"
