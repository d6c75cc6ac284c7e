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
    write_csv([*step_rows("a/b/c", every_step(20)), *cpu_rows("a/b/c", measured(99.0), 1)], second)
    assert summary.main([str(first), str(second)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `a/b/c` | 1 | 0, 20 | 0, 2 | 4 | 2, 1 | 3.0, 2.0 | 99 |",
        "| `bare ops/c` | – | – | – | – | – | 3.0, 2.0 | 1,200 |",
    ]
    summary.main([str(first)])
    assert "| `a/b/c` | 1 | 0, 80 | 0, 8 | 4 | 2, 1 | – | – |" in capsys.readouterr().out
    write_csv(step_rows("a/b/c", every_step(80)), first)
    summary.main([str(first)])
    assert capsys.readouterr().out.endswith("| `a/b/c` | 1 | 0, 80 | 0, 8 | 4 | 2, 1 |\n")


def test_a_path_has_a_line_for_each_number_of_steps_in_a_call(tmp_path, capsys):
    loop, single = tmp_path / "loop.csv", tmp_path / "single.csv"
    made = anatomy(1).calls[0]
    # In 50 steps, 51 rounds.
    message = made.messages[0]._replace(num_messages=51)
    many = StepAnatomy("worker-0", [made._replace(per_step=1 / 50, num_steps=50, messages=[message])])
    write_csv([*step_rows("a", many), *step_rows("b", every_step(1))], loop)
    write_csv(step_rows("a", every_step(1)), single)
    assert summary.main([str(loop), str(single)]) == 0
    lines = [line.split(" | ")[:3] for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["| path", "steps in a call", "messages to, from a worker"]
    assert lines[2:] == [["| `a`", "50", "0, 1.02"], ["| `a`", "1", "0, 1"], ["| `b`", "1", "0, 1"]]


def test_the_page_has_the_table_of_the_stored_results():
    table = summary.table(summary.read(sorted((ROOT / "benchmarks" / "results").glob("anatomy*.csv"))))
    assert table in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
