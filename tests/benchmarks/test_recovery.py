"""The driver that measures recoveries: its flags, its rows from a run's files, and one real run."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks import recovery
from benchmarks.disturbed_run import DisturbedRun, fill
from ps_trainer.launch.hosts_iproute import NetworkSupport


def plan(tmp_path, *flags):
    return recovery.parse_plan([f"--out_dir={tmp_path / 'out'}", *flags])


@pytest.mark.parametrize(
    "flag", ["--updates=easgd", "--faults=kill", "--at_step=0", "--at_step=2500", "--deadline_secs=0"]
)
def test_wrong_flags_end_with_2(tmp_path, flag):
    with pytest.raises(SystemExit) as ended:
        plan(tmp_path, flag)
    assert ended.value.code == 2


def test_silences_have_a_length_and_cuts_need_links(tmp_path):
    asked = plan(tmp_path, "--at_step=7")
    assert "--fault=kill:chief@step=7" in recovery.flags_of(asked, "sync", "kill:chief")
    cut = recovery.flags_of(asked, "sync", "cut:ps:1")
    assert "--fault=cut:ps:1@step=7,secs=8" in cut and "--hosts=netns" in cut


def test_without_links_cuts_are_left_out_and_a_message_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recovery.hosts_iproute, "probe", lambda: NetworkSupport("no root", has_netem=False))
    assert plan(tmp_path, "--faults=kill:ps:0,cut:ps:1").faults == ["kill:ps:0"]
    assert "left out: cut:ps:1: no root" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("times", "secs"),
    [
        ([8.0, 9.0, 9.9, 10.2, 10.5], 0.0),  # no interruption
        ([9.0, 9.9, 14.0, 14.1], 4.0),
        ([9.9, 10.1, 13.0, 13.1, 14.0], 3.0),  # the worker continued for a moment
        ([9.9, 12.0, 15.0, 15.1], 5.0),  # the longest counts
        ([8.0, 9.9], None),
        ([9.9, 10.1], None),  # the worker never continued
        ([12.5, 12.6], 0.0),  # the worker had not begun before
    ],
)
def test_an_interruption_ends_with_the_step_after_it(times, secs):
    assert recovery.secs_until_back(times, 10.0, ended_at=20.0 if secs is None else times[-1]) == secs


def _step(wall_time, global_step):
    return {"wall_time": wall_time, "worker": 0, "global_step": global_step}


@pytest.fixture
def logdir(tmp_path):
    """The files of a run: worker 1 was killed 5 s ago, and the chief reported the loss after a second."""
    at = time.time() - 5.0
    files = {
        "metrics/launcher.jsonl": [{"event": "kill", "task": "worker-1", "wall_time": at}],
        "metrics/worker-0.jsonl": [
            {"kind": "state", "wall_time": at - 9.0, "state": "initialised, at step 0"},
            {"kind": "state", "wall_time": at + 2.0, "state": "restored x, at step 2"},
        ],
        "steps/worker-0.jsonl": [_step(at - 0.1, 4), _step(at + 0.1, 5), _step(at + 2.1, 3), _step(at + 2.9, 3)],
        "steps/worker-1.jsonl": [_step(at - 0.2, 4), _step(at + 3.0, 4)],
    }
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "summary.json").write_text(
        json.dumps({"status": "done", "global_step": 4, "restarts": {"worker-1": 1}})
    )
    (tmp_path / "logs").mkdir()
    for task, secs, text in [
        ("worker-0", -1.0, "worker 7 lost: before"),
        ("worker-0", 1.0, "worker 1 lost: its port refuses"),
        ("ps-0", 2.0, "worker 1 lost: its port refuses"),
        ("worker-1", 0.5, "lost: said by the one that was hit"),
        ("ps-0", 0.2, "saved nothing"),
    ]:
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(at + secs)) + f"{(at + secs) % 1:.6f}"[1:]
        with (tmp_path / "logs" / f"{task}.log").open("a") as log:
            log.write(f"E{stamp} 140517625243840 ps.py:186] {text}\n")
    return tmp_path


def examine(logdir):
    run = DisturbedRun(9.0, json.loads((logdir / "summary.json").read_text()), [], [], "")
    row = recovery.RecoveryRow(update="sync", fault="kill:worker:1")
    return fill(row, run, lambda row, run: recovery.examine(row, logdir, run))


def test_the_files_of_a_run_become_a_row(logdir):
    row = examine(logdir)
    assert row.noticed_secs == pytest.approx(1.0, abs=1e-3)
    assert (row.chief_secs, row.worker_secs) == (pytest.approx(2.1), pytest.approx(3.0))
    assert (row.rolled_back, row.restarts, row.problem) == (3, 1, "")


def test_a_run_that_was_not_done_is_a_problem(logdir):
    (logdir / "summary.json").write_text(json.dumps({"status": "failed", "global_step": 4}))
    assert examine(logdir).problem == "failed"


def test_a_run_without_its_files_is_a_problem(logdir):
    (logdir / "metrics" / "launcher.jsonl").unlink()
    assert "cannot be examined: FileNotFoundError" in examine(logdir).problem


@pytest.mark.process
def test_a_killed_ps_is_measured(tmp_path):
    flags = ["--updates=async", "--faults=kill:ps:1", "--at_step=50", "--max_steps=150", "--deadline_secs=180"]
    assert recovery.main([*flags, f"--out_dir={tmp_path / 'out'}"]) == 0
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["runs"]
    assert row["restarts"] == 1 and row["rolled_back"] >= 0
    assert 0 < row["noticed_secs"] <= row["chief_secs"]
    assert "| async | `kill:ps:1` |" in (tmp_path / "out" / "results.md").read_text()
    assert (tmp_path / "out" / "results.csv").read_text().startswith("update,wall_secs,restarts")
