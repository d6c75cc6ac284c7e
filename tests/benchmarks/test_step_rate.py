"""The command: flags, order of runs, rows and exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks import settings, step_rate
from benchmarks.contenders import CONTENDERS, REPOSITORY, Cell
from benchmarks.report import Report
from benchmarks.step_rate_run import RunTiming
from tests.benchmarks.fakes import Fake, reporting

TIMING = RunTiming(warmup_secs=0.0, window_secs=3.0, deadline_secs=60.0)
SETTING = settings.RULES["async"]
CELLS = [Cell("deep", "async", num_ps=1, num_workers=1), Cell("wide", "sync", num_ps=1, num_workers=1)]


def make_plan(folder, *contenders: Fake, repetitions: int = 2) -> step_rate.StepRatePlan:
    by_name = {c.name: c for c in contenders}
    matches = [step_rate.Match(f"{cell.workload}-{cell.mode}-1ps-1w", cell, by_name) for cell in CELLS]
    return step_rate.StepRatePlan(matches, repetitions, TIMING, folder)


def run(plan: step_rate.StepRatePlan) -> int:
    return step_rate.run(plan, Report("benchmarks.step_rate", [], plan.folder))


def rows_in(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_default_plan_is_every_cell_and_contender_three_times():
    plan = step_rate.parse_plan([])
    cells = [match.cell for match in plan.matches]
    assert len(cells) == len(set(cells)) == len({match.name for match in plan.matches}) == 2 * 2 * 2
    assert {(c.num_ps, c.num_workers) for c in cells} == {(1, 2), (2, 2)}
    own = {mode: [who for who, one in CONTENDERS.items() if mode in one.modes] for mode in ("async", "sync")}
    assert own["async"] == ["stock", "drop_in", "drop_in_packed", "packed", "per_variable"]
    assert own["sync"] == [*own["async"], "sync_replicas"]
    assert all(list(match.contenders) == own[match.cell.mode] for match in plan.matches)
    assert plan.repetitions == 3
    assert plan.folder.is_absolute()


def test_quick_is_shorter_and_other_flags_override_it():
    plan = step_rate.parse_plan(["--repetitions=2", "--quick"])
    assert {match.cell.num_ps for match in plan.matches} == {1}
    assert plan.repetitions == 2
    assert plan.timing.window_secs < step_rate.parse_plan([]).timing.window_secs


def test_flags_choose_the_cells():
    plan = step_rate.parse_plan(["--workloads=wide", "--modes=sync", "--ps=3,3", "--workers=4", "--contenders=packed"])
    (match,) = plan.matches
    assert match.cell == Cell("wide", "sync", 3, 4)
    assert list(match.contenders) == ["packed"]
    (only,) = step_rate.parse_plan(["--workloads=deep", "--ps=1", "--contenders=sync_replicas"]).matches
    assert only.cell.mode == "sync"


def test_rules_take_turns_with_async_in_small_groups_each_once(monkeypatch):
    monkeypatch.setattr(settings, "RULES", dict.fromkeys(("async", "a", "b", "c", "d"), SETTING))
    plan = step_rate.parse_plan(["--rules=all"])
    assert [list(match.contenders) for match in plan.matches] == [["async", "a", "b", "c"], ["async", "d"]]
    assert {match.cell for match in plan.matches} == {Cell("deep", "rules", num_ps=1, num_workers=2)}
    assert len({match.name for match in plan.matches}) == 2
    (only,) = step_rate.parse_plan(["--rules=async"]).matches
    assert list(only.contenders) == ["async"]


def test_rules_have_a_ratio_to_the_async_of_their_group(tmp_path, capsys):
    fast, slow = Fake("async", [reporting(40)]), Fake("ssp", [reporting(30)])
    assert run(make_plan(tmp_path / "out", fast, slow, repetitions=1)) == 0
    out = capsys.readouterr().out
    rows = [(r["who"], r["ratio_to_async"], r["ratio_to_stock"]) for r in rows_in(out)]
    assert rows == 2 * [("async", 1.0, None), ("ssp", 30 / 40, None)]
    assert "÷ async" in out


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--workloads=deep,tall", "unknown 'tall'; known: deep, wide"),
        ("--modes=both", "known: async, sync"),
        ("--contenders=me", "known: stock, drop_in, drop_in_packed, packed, per_variable, sync_replicas"),
        ("--ps=one", "'one' is not a list of whole numbers"),
        ("--ps=0", "a number below 1"),
        ("--workers=2,-1", "a number below 1"),
        ("--repetitions=0", "--repetitions: 0 must be at least 1"),
        ("--seconds=0", "--seconds: 0 must be more than 0"),
        ("--warmup_secs=-1", "--warmup_secs=-1 must be at least 0"),
        ("--out_dir=benchmarks", "benchmarks exists"),
        ("--rules=async,no_rule", "unknown 'no_rule'; known: async, "),
    ],
)
def test_wrong_flag_ends_with_a_message_before_a_run_starts(flag, message, capsys, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(SystemExit) as ended:
        step_rate.parse_plan([flag])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_contenders_take_turns_and_have_a_row_per_cell(tmp_path, capsys):
    stock, ours = Fake("stock", [reporting(10)]), Fake("packed", [reporting(25)])
    assert run(make_plan(tmp_path / "out", stock, ours)) == 0
    out = capsys.readouterr().out
    rows = rows_in(out)
    assert [(r["workload"], r["who"], r["ratio_to_stock"]) for r in rows] == [
        ("deep", "stock", 1.0),
        ("deep", "packed", 25 / 10),
        ("wide", "stock", 1.0),
        ("wide", "packed", 25 / 10),
    ]
    assert rows == rows_in((tmp_path / "out" / "results.jsonl").read_text())
    assert "÷ stock" in out
    runs = rows_in((tmp_path / "out" / "runs.jsonl").read_text())
    turns = [(r["repetition"], r["who"]) for r in runs if r["workload"] == "deep"]
    assert turns == [(0, "stock"), (0, "packed"), (1, "stock"), (1, "packed")]


def test_failed_run_leaves_no_number_and_exit_code_1(tmp_path, capsys):
    good, bad = Fake("stock", [reporting(10)]), Fake("packed", ["raise SystemExit('out of luck')"])
    assert run(make_plan(tmp_path / "out", good, bad)) == 1
    captured = capsys.readouterr()
    assert [r["who"] for r in rows_in(captured.out)] == ["stock", "stock"]
    assert "deep-async-1ps-1w-packed-0 failed" in captured.err
    assert "out of luck" in captured.err
    assert len(bad.folders) == len(CELLS)  # no second run in a cell after a failure


def test_run_of_another_system_that_fails_is_made_once_more(tmp_path, capsys):
    first_fails = "import sys\nif '-again' not in sys.argv[1]: raise SystemExit('crashed')\n" + reporting(25)
    other = Fake("torch_ddp", [first_fails])
    other.attempts = 2
    assert run(make_plan(tmp_path / "out", Fake("stock", [reporting(10)]), other, repetitions=1)) == 0
    captured = capsys.readouterr()
    assert [r["ratio_to_stock"] for r in rows_in(captured.out) if r["who"] == "torch_ddp"] == [2.5, 2.5]
    assert captured.err.count("torch_ddp-0 failed, and is made again: ") == len(CELLS)
    assert len(other.folders) == 2 * len(CELLS)


def test_contender_that_fails_later_loses_its_row(tmp_path, capsys):
    second_time_fails = "import os, sys\nif '-packed-1' in sys.argv[1]: raise SystemExit('second time')\n" + reporting(
        25
    )
    plan = make_plan(tmp_path / "out", Fake("stock", [reporting(10)]), Fake("packed", [second_time_fails]))
    assert run(plan) == 1
    assert [r["who"] for r in rows_in(capsys.readouterr().out)] == ["stock", "stock"]


def test_other_rows_have_no_ratio_when_stock_fails(tmp_path, capsys):
    bad, good = Fake("stock", ["raise SystemExit(1)"]), Fake("packed", [reporting(25)])
    assert run(make_plan(tmp_path / "out", bad, good)) == 1
    assert {(r["who"], r["ratio_to_stock"]) for r in rows_in(capsys.readouterr().out)} == {("packed", None)}


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_benchmark_and_its_tasks(tmp_path, signum):
    script = f"""
import sys
from benchmarks import contenders, step_rate
from tests.benchmarks.fakes import Fake
write_pid = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
step_rate.CONTENDERS = {{"stock": Fake("stock", [write_pid, write_pid])}}
sys.exit(step_rate.main(["--out_dir={tmp_path}/out"]))
"""
    script = script.replace('["--out', '["--contenders=stock", "--out')
    process = subprocess.Popen([sys.executable, "-c", script], cwd=REPOSITORY)
    try:
        deadline = time.monotonic() + 120
        while len(pids := [p.read_text() for p in tmp_path.glob("out/runs/*/report-*") if p.read_text()]) < 2:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signum)
        assert process.wait(timeout=60) != 0
    finally:
        process.kill()
        process.wait()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    assert json.loads((tmp_path / "out" / "provenance.json").read_text())["cores"] >= 1
