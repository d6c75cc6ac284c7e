"""The table of the anatomy, from the CSV files of the benchmark."""

from __future__ import annotations

import pathlib

from benchmarks.anatomy import summary
from benchmarks.anatomy.rows import cpu_rows, step_rows
from benchmarks.anatomy.step_anatomy import StepAnatomy
from benchmarks.report import write_csv
from benchmarks.step_rate_run import Measurement
from tests.benchmarks.anatomy.test_command import anatomy

ROOT = pathlib.Path(__file__).resolve().parents[3]


def measured(rate: float) -> Measurement:
    return Measurement((rate, rate), 3.0, 0.005, 0.0, ps_cpu_secs_per_step=0.002)


def every_step(num_tensors: int) -> StepAnatomy:
    step = anatomy(num_tensors)
    return step._replace(calls=[step.calls[0]._replace(per_step=1)])


def test_a_path_has_a_line_and_a_limit_has_times_only(tmp_path, capsys):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    write_csv([*step_rows("a/b/c", every_step(80)), *cpu_rows("bare ops/c", measured(1200.0))], first)
    write_csv([*step_rows("a/b/c", every_step(20)), *cpu_rows("a/b/c", measured(99.0))], second)
    assert summary.main([str(first), str(second)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `a/b/c` | 0, 20 | 0, 2 | 4 | 2, 1 | 3.0, 2.0 | 99 |",
        "| `bare ops/c` | – | – | – | – | 3.0, 2.0 | 1,200 |",
    ]
    summary.main([str(first)])
    assert "| `a/b/c` | 0, 80 | 0, 8 | 4 | 2, 1 | – | – |" in capsys.readouterr().out
    write_csv(step_rows("a/b/c", every_step(80)), first)
    summary.main([str(first)])
    assert capsys.readouterr().out.endswith("| `a/b/c` | 0, 80 | 0, 8 | 4 | 2, 1 |\n")


def test_the_page_has_the_table_of_the_stored_results():
    table = summary.table(summary.read([ROOT / "benchmarks" / "results" / "anatomy.csv"]))
    assert table in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
