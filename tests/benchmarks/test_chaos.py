"""The chaos driver: its flags, the problems that it reports, and one short disturbed run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from benchmarks import chaos, leftovers
from benchmarks.chaos_cases import BARRIER, CASES, COLLECTIVE, NO_BARRIER, ROUNDS
from benchmarks.disturbed_run import DisturbedRun, fill
from ps_trainer import component_tables


def plan(tmp_path, *flags):
    return chaos.parse_plan([f"--out_dir={tmp_path / 'out'}", *flags])


@pytest.mark.parametrize(
    "flag", ["--kills=0", "--seeds=0", "--together=3", "--updates=hogwild", "--deadline_secs=0", "--seed=3"]
)
def test_wrong_flags_end_with_2(tmp_path, flag):
    with pytest.raises(SystemExit) as ended:
        plan(tmp_path, flag)
    assert ended.value.code == 2


def test_kills_and_seed_become_a_fault_and_the_undisturbed_run_has_none(tmp_path):
    asked = plan(tmp_path, "--kills=7", "--roles=ps+chief")
    assert "--fault=chaos:kills=7,together=1,roles=ps+chief,seed=3" in chaos.flags_of(asked, CASES["sync"], 3)
    assert not [flag for flag in chaos.flags_of(asked, CASES["sync"], -1) if flag.startswith("--fault")]


def test_a_step_of_several_batches_is_made_less_often(tmp_path):
    asked = plan(tmp_path, "--max_steps=6000")
    assert "--max_steps=6000" in chaos.flags_of(asked, CASES["ssp"], -1)
    flags = chaos.flags_of(asked, CASES["local_sgd"], -1)
    assert "--max_steps=1200" in flags  # 6000 batches in rounds of 5
    assert "--update_option=period=5" in flags


def test_every_family_has_cases_whose_rules_exist():
    assert {case.family for case in CASES.values()} == {NO_BARRIER, BARRIER, ROUNDS, COLLECTIVE}
    for case in CASES.values():
        component_tables.UPDATES.check(case.update)


@pytest.fixture
def logdir(tmp_path):
    """The files of a run of four steps with one kill, after which the run repeated the last two."""
    run = tmp_path / "run"
    for folder in ("metrics", "steps"):
        (run / folder).mkdir(parents=True)
    states = [(0.0, "initialised, at step 0"), (5.0, "restored x, at step 2")]
    (run / "metrics" / "worker-0.jsonl").write_text(
        "".join(json.dumps({"kind": "state", "wall_time": t, "state": s}) + "\n" for t, s in states)
    )
    steps = [(1.0, 1), (1.1, 2), (1.2, 3), (1.3, 4), (6.0, 3), (6.1, 4)]
    (run / "steps" / "worker-0.jsonl").write_text(
        "".join(json.dumps({"wall_time": t, "worker": 0, "global_step": s}) + "\n" for t, s in steps)
    )
    summary = {
        "status": "done",
        "global_step": 4,
        "metrics": {"accuracy": 0.95},
        "restarts": {"ps-0": 1},
        "faults": [{"fault": "chaos", "task": "ps-0", "global_step": 4}],
    }
    (run / "summary.json").write_text(json.dumps(summary))
    return run


def examine(tmp_path, logdir, undisturbed=0.95, **changes):
    asked = plan(tmp_path, "--kills=1", "--max_steps=4")
    summary = json.loads((logdir / "summary.json").read_text()) | changes
    run = DisturbedRun(9.0, summary, [], ["x.tmp"], "")
    row = chaos.ChaosRow(family=NO_BARRIER, update="async", seed=0)
    return fill(row, run, lambda row, run: chaos.examine(asked, row, logdir, run, undisturbed))


def test_row_holds_the_accounts_and_there_is_no_problem(tmp_path, logdir):
    row = examine(tmp_path, logdir)
    assert (row.problem, row.leftovers, row.wall_secs) == ("left: x.tmp", 1, 9.0)
    assert (row.kills, row.restarts, row.losses, row.applied, row.rolled_back) == (1, 1, 1, 4, 2)
    assert (row.logged, row.unlogged) == (6, 0)
    assert row.most_rolled_back_secs == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"status": "failed"}, "failed at step 4"),
        ({"global_step": 3}, "done at step 3"),
        ({"global_step": 40}, "36 steps are unaccounted for"),
        ({"metrics": {"accuracy": 0.93}}, "accuracy is 2.0 % lower"),
        ({"faults": [{"fault": "chaos", "task": "ps-0", "missed": "the run ended before"}]}, "only 0 kills happened"),
    ],
)
def test_reports_problems(tmp_path, logdir, changes, problem):
    row = examine(tmp_path, logdir, **changes)
    assert problem in row.problem
    assert not row.is_good


def test_finds_leftover_processes_and_files(tmp_path):
    logdir, temporary = tmp_path / "run", tmp_path / "tmp"
    (logdir / "checkpoints").mkdir(parents=True)
    temporary.mkdir()
    assert leftovers.processes(logdir, 0.0) == []
    assert leftovers.files(logdir, temporary) == []
    (logdir / "checkpoints" / "model.ckpt-5_temp").mkdir()
    (logdir / "summary.tmp").touch()
    (temporary / "left.py").touch()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"--logdir={logdir}"])
    try:
        deadline = time.monotonic() + 20.0
        while not leftovers.processes(logdir, 0.0):  # it is still a copy of this process for a moment
            assert time.monotonic() < deadline
    finally:
        process.kill()
        process.wait()
    assert leftovers.processes(logdir, 5.0) == []
    names = [os.path.basename(path) for path in leftovers.files(logdir, temporary)]
    assert sorted(names) == ["left.py", "model.ckpt-5_temp", "summary.tmp"]


def test_any_process_whose_output_goes_into_the_folder_is_a_leftover(tmp_path):
    logdir = tmp_path / "logdir"
    logdir.mkdir()
    with (logdir / "task.log").open("w") as log:
        process = subprocess.Popen(["sleep", "60"], stdout=log)
    try:
        assert len(leftovers.processes(logdir, 0.0)) == 1
        assert leftovers.processes(tmp_path / "other", 0.0) == []
    finally:
        process.kill()
        process.wait()
    assert leftovers.processes(logdir, 5.0) == []
