"""The table of other systems, from the CSV files of the step-rate benchmark."""

from __future__ import annotations

import csv
import pathlib

import pytest

from benchmarks import peer_table
from benchmarks.anatomy import summary
from benchmarks.contenders import PEERS_MODE, Cell
from benchmarks.report import write_csv
from benchmarks.step_rate_rows import rows
from benchmarks.step_rate_run import Measurement

ROOT = pathlib.Path(__file__).resolve().parents[2]
CELL = Cell("table", PEERS_MODE, num_ps=1, num_workers=2)


def measured(*rates: float) -> list[Measurement]:
    return [Measurement((rate, rate), 5.0, 0.0042, 0.0) for rate in rates]


def test_later_files_win_and_the_table_has_rates_of_all_workers(tmp_path, capsys):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    write_csv(rows(CELL._replace(workload="deep"), {"async": measured(7.0), "raw_socket": measured(9.0)}), first)
    figures = {"async": measured(400.0, 500.0, 450.0), "torch_ddp": measured(900.0), "bare_ops": measured(500.0)}
    write_csv(rows(CELL, {"async": measured(1.0), "stock": measured(2.0)}), tmp_path / "old.csv")
    write_csv(rows(CELL, figures), second)
    assert peer_table.main([str(tmp_path / "old.csv"), str(first), str(second)]) == 0
    assert capsys.readouterr().out == (
        "| workload | `async` | `stock` | `torch_ddp` | `bare_ops` | `async` ÷ best peer | `async` ÷ bare ops |\n"
        "| --- | --: | --: | --: | --: | --: | --: |\n"
        "| 40 dense layers 64×64 (`deep`) | 14.0 (14.0–14.0), 4.2 ms | – | – | – | – | – |\n"
        "| table 1,000,000×64, 32 rows a step (`table`) | 900 (800–1,000), 4.2 ms | 4.0 (4.0–4.0), 4.2 ms"
        " | 1,800 (1,800–1,800), 4.2 ms | 1,000 (1,000–1,000), 4.2 ms | 0.50 | 0.90 |\n"
    )
    write_csv(rows(CELL, {**figures, "async_one_step": measured(475.0)}), second)
    assert peer_table.main([str(second)]) == 0
    assert "| `async` ÷ bare ops | `async_one_step` ÷ bare ops |" in (shown := capsys.readouterr().out)
    assert shown.endswith("| 0.50 | 0.53 | 0.90 | 0.95 |\n")
    write_csv(rows(CELL, {**figures, "bare_ops_loop": measured(1000.0)}), second)
    assert peer_table.main([str(second)]) == 0
    assert "| `async` ÷ bare ops | `async` ÷ bare ops in a loop |" in (shown := capsys.readouterr().out)
    assert "| `bare_ops` | `bare_ops_loop` |" in shown
    assert shown.endswith("| 0.50 | 0.90 | 0.45 |\n")
    assert peer_table.main(["--brief", str(second)]) == 0
    assert capsys.readouterr().out == (
        "| steps/s of both workers | `async` | PyTorch DDP |\n"
        "| --- | --: | --: |\n"
        "| table 1,000,000×64, 32 rows a step | 900 | 1,800 |\n"
    )


def test_the_pages_have_the_tables_of_the_stored_results():
    lines = peer_table.read([ROOT / "benchmarks" / "results" / "peers.csv"])
    assert peer_table.brief_table(lines) in (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert peer_table.table(lines) in page
    lines_16bit = peer_table.read([ROOT / "benchmarks" / "results" / "peers_16bit.csv"])
    for line in peer_table.table(lines_16bit).splitlines()[2:]:
        title, *rates = line.split(" | ")[:6]
        name = title[title.index("(") + 1 : -1]
        assert f"| {name} | {' | '.join(rates)} |" in page
    lines_loop = peer_table.read([ROOT / "benchmarks" / "results" / "peers_loop.csv"])
    for line in peer_table.table(lines_loop).splitlines()[2:]:
        title, ours, torch, *limits = line.split(" | ")[:5]
        name = title[title.index("(") + 1 : -1]
        assert f"| {name} | {' | '.join([ours, *limits, torch])} |" in page


def test_the_page_has_the_rates_of_each_worker():
    with (ROOT / "benchmarks" / "results" / "peers_workers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for workload in {row["workload"] for row in rows}:
        cells = []
        for row in (row for row in rows if row["workload"] == workload):
            median, least, most = (round(float(row[f"steps_per_sec{end}"])) for end in ("", "_min", "_max"))
            cells.append(f"{median:,} ({least:,}–{most:,})")
        assert f"| `{workload}` | {cells[0]}, {cells[1]} | {cells[2]} | {cells[3]} |" in page


@pytest.mark.parametrize("program", [peer_table, summary])
def test_a_file_that_is_none_of_results_ends_with_one_line(program, tmp_path, capsys):
    other = tmp_path / "other.csv"
    other.write_text("path,mode\n")
    image = tmp_path / "image.png"
    image.write_bytes(b"\x89PNG\xff")
    for path, message in (
        (tmp_path / "none", "none: No such file or directory"),
        (tmp_path, f"{tmp_path}: Is a directory"),
        (other, "lacks the columns "),
        (image, "image.png is not a CSV file: "),
    ):
        with pytest.raises(SystemExit) as ended:
            program.main([str(path)])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err.splitlines()[-1]


def test_results_without_peers_are_an_error(tmp_path, capsys):
    write_csv(rows(CELL._replace(workload="deep", mode="async"), {"packed": measured(7.0)}), tmp_path / "own.csv")
    with pytest.raises(SystemExit) as ended:
        peer_table.main([str(tmp_path / "own.csv")])
    assert ended.value.code == 2
    assert "no results of step_rate --peers in " in capsys.readouterr().err.splitlines()[-1]
