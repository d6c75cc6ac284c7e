"""Peers as contenders: their commands, what they need, the rows with their ratios, and the history."""

from __future__ import annotations

import csv
import socket
import threading

import pytest

from benchmarks import peer_contenders, step_rate, step_rate_history, step_rate_rows
from benchmarks.contenders import PEERS_MODE, Cell, CellJob
from benchmarks.peer_contenders import PEER_CONTENDERS
from benchmarks.peer_workloads import PEER_WORKLOADS
from benchmarks.peers import install, raw_socket
from benchmarks.step_rate_run import Measurement
from ps_trainer.training.graph_parts import step_calls

CELL = Cell("table", PEERS_MODE, num_ps=1, num_workers=2)
PORTS = ("127.0.0.1:4000", "127.0.0.1:4001", "127.0.0.1:4002")
ORIGIN = {
    "commit": "0123456789",
    "has_uncommitted_changes": False,
    "started": "2026-11-24T10:00:00",
    "cpu": "some, CPU",
    "cores": 2,
    "load_average": [0.5, 1, 2],
}


def job(tmp_path) -> CellJob:
    return CellJob(CELL, PORTS[:1], PORTS[1:], tmp_path)


def measured(rate: float) -> list[Measurement]:
    return [Measurement((rate, rate), 5.0, 0.004, 0.0)] * 3


def test_only_runs_of_other_systems_are_made_again_after_a_failure():
    assert {name for name, contender in PEER_CONTENDERS.items() if contender.attempts > 1} == {
        "torch_ddp",
        "horovod",
        "paddle_ps",
    }


def test_every_contender_writes_a_report_and_knows_workload_and_place(tmp_path):
    for name, contender in PEER_CONTENDERS.items():
        commands = [contender.worker_command(job(tmp_path), index) for index in (0, 1)]
        assert commands[0] != commands[1], name
        if name != peer_contenders.RAW_SOCKET:
            assert any("workload=table" in part for part in commands[0]), name


def test_workers_without_ps_tasks_meet_at_the_first_worker(tmp_path):
    command = PEER_CONTENDERS["torch_ddp"].worker_command(job(tmp_path), 1)
    assert not PEER_CONTENDERS["torch_ddp"].has_ps
    assert {"--port=4001", "--rank=1", "--world_size=2", "--framework=ddp"} < set(command)
    assert command[0] == str(install.python("torch"))


@pytest.mark.parametrize("name", ["colocated", "colocated_16bit", "bare_ops_colocated"])
def test_colocated_parameters_need_no_ps_task(tmp_path, name):
    contender = PEER_CONTENDERS[name]
    command = contender.worker_command(job(tmp_path), 1)
    assert not contender.has_ps
    assert "--worker_hosts=127.0.0.1:4001,127.0.0.1:4002" in command
    assert ("--placement=colocated" in command) == (name != "bare_ops_colocated")
    assert not any(part.startswith("--ps_hosts") for part in command)
    assert ("--pull_dtype=bfloat16" in command) == (name == "colocated_16bit")


def test_bare_ops_in_a_loop_make_as_many_steps_in_a_call_as_async_makes_at_most(tmp_path):
    command = PEER_CONTENDERS["bare_ops_loop"].worker_command(job(tmp_path), 0)
    assert f"--steps_per_call={step_calls.AUTOMATIC_STEPS}" in command
    others = [PEER_CONTENDERS[name].worker_command(job(tmp_path), 0) for name in ("bare_ops", "bare_ops_colocated")]
    assert not any("steps_per_call" in part for other in others for part in other)
    assert "bare_ops_loop" in peer_contenders.LIMITS


def test_raw_socket_moves_the_bytes_of_the_workload(tmp_path):
    command = PEER_CONTENDERS["raw_socket"].worker_command(job(tmp_path), 0)
    assert f"--pull_bytes={32 * 64 * 4}" in command
    assert f"--push_bytes={32 * (64 * 4 + 16)}" in command
    assert "--port=4000" in command


def test_contenders_that_do_not_train_a_workload_are_left_out():
    assert set(peer_contenders.of_workload("table", list(PEER_CONTENDERS))) == set(PEER_CONTENDERS) - {
        "paddle_ps",
        "all_reduce",
    }
    assert set(peer_contenders.of_workload("deep", list(PEER_CONTENDERS))) == set(PEER_CONTENDERS)


def test_a_missing_environment_is_named_with_its_command_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(install, "FOLDER", tmp_path)
    out_dir = tmp_path / "out"
    with pytest.raises(SystemExit) as ended:
        step_rate.main(["--peers=async,torch_ddp,horovod", f"--out_dir={out_dir}"])
    assert ended.value.code == 2
    commands = "python -m benchmarks.peers.install horovod; python -m benchmarks.peers.install torch"
    assert f"--peers: first run {commands} (or name other contenders)" in capsys.readouterr().err
    assert not out_dir.exists()


def test_workloads_of_peers_need_the_flag(capsys):
    with pytest.raises(SystemExit) as ended:
        step_rate.parse_plan(["--workloads=deep,table"])
    assert ended.value.code == 2
    assert "--workloads: table needs --peers; without it: deep, wide" in capsys.readouterr().err


def test_peers_run_in_a_cell_for_each_workload():
    plan = step_rate.parse_plan(["--peers=async,bare_ops", "--workloads=table,wide", "--ps=1"])
    assert [match.cell for match in plan.matches] == [CELL, CELL._replace(workload="wide")]
    assert [list(match.contenders) for match in plan.matches] == [["async", "bare_ops"]] * 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--peers=async", "--rules=ssp"], "--peers: --rules would have no effect beside it; leave out one of them"),
        (
            ["--peers=async", "--modes=sync", "--contenders=packed"],
            "--peers: --modes, --contenders would have no effect",
        ),
        (["--rules=ssp", "--workloads=wide", "--ps=2"], "--rules: --workloads, --ps would have no effect beside it"),
        (["--peers=all_reduce", "--workloads=table"], "--peers: all_reduce can train none of --workloads=table"),
        (["--peers=async,all_reduce", "--workloads=table"], "--peers: all_reduce can train none of --workloads=table"),
        (["--contenders=sync_replicas", "--modes=async"], "--contenders=sync_replicas has none for --modes=async"),
    ],
)
def test_a_flag_that_would_be_ignored_is_an_error(flags, message, capsys):
    with pytest.raises(SystemExit) as ended:
        step_rate.parse_plan(flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_the_report_names_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(step_rate, "_run_match", lambda plan, match: {who: measured(7.0) for who in match.contenders})
    flags = ["--peers=all_reduce,async", "--workloads=table,deep", "--ps=1"]
    assert step_rate.main([*flags, f"--out_dir={tmp_path / 'out'}"]) == 0
    note = "Left out, as they do not train the workload: all_reduce on table."
    assert note in (tmp_path / "out" / "results.md").read_text(encoding="utf-8").splitlines()
    assert step_rate.parse_plan(["--peers=async", "--quick"]).notes == []
    plan = step_rate.parse_plan(["--peers=all_reduce,async", "--workloads=table,deep", "--ps=1"])
    assert [list(match.contenders) for match in plan.matches] == [["async"], ["all_reduce", "async"]]


def test_rows_have_ratios_to_stock_best_peer_and_engine():
    figures = {"async": 90.0, "stock": 60.0, "torch_ddp": 120.0, "bare_ops": 100.0, "raw_socket": 1000.0}
    rows = step_rate_rows.rows(CELL, {who: measured(rate) for who, rate in figures.items()})
    ours = rows[0]
    assert (ours.ratio_to_stock, ours.ratio_to_best_peer, ours.share_of_engine) == (90 / 60, 90 / 120, 90 / 100)
    assert ours.ratio_to_async is None
    assert ours.examples_per_sec == 90 * 2 * PEER_WORKLOADS["table"].batch_size
    table = ours.table(rows)
    assert "| ÷ stock | ÷ best peer | ÷ bare ops |" in table
    assert "| 1.50 | 0.75 | 0.90 |" in table
    assert ours.share_of_loop is None
    assert "in a loop" not in table


def test_bare_ops_in_a_loop_are_a_limit_of_their_own():
    figures = {"async": 90.0, "torch_ddp": 120.0, "bare_ops": 60.0, "bare_ops_loop": 150.0}
    rows = step_rate_rows.rows(CELL, {who: measured(rate) for who, rate in figures.items()})
    ours = rows[0]
    assert (ours.ratio_to_best_peer, ours.share_of_engine, ours.share_of_loop) == (90 / 120, 90 / 60, 90 / 150)
    table = ours.table(rows)
    assert "| ÷ stock | ÷ best peer | ÷ bare ops | ÷ bare ops in a loop |" in table
    assert "| – | 0.75 | 1.50 | 0.60 |" in table


def test_history_has_a_line_for_each_result(tmp_path):
    path = tmp_path / "history.csv"
    for row in step_rate_rows.rows(CELL, {"async": measured(90.0), "stock": measured(60.0)}):
        step_rate_history.add(path, ORIGIN, row)
    step_rate_history.add(path, ORIGIN | {"has_uncommitted_changes": True}, row)
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["commit"], line["who"], line["steps_per_sec"]) for line in lines] == [
        ("0123456", "async", "90.0"),
        ("0123456", "stock", "60.0"),
        ("0123456+", "stock", "60.0"),
    ]
    assert lines[0]["cpu"] == "some, CPU"
    assert lines[0]["ratio_to_stock"] == "1.5"
    assert lines[0]["share_of_engine"] == ""


def test_raw_socket_steps_move_all_bytes():
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=raw_socket.serve, args=(listener,), daemon=True).start()
    with raw_socket.connect(listener.getsockname()[1]) as connection:
        for _ in range(3):
            raw_socket.step(connection, bytearray(300_000), bytes(200_000))
        raw_socket.step(connection, bytearray(4), bytes(4))
