"""The command `python -m benchmarks.anatomy`: flags, rows and exit code; these tests train nothing."""

from __future__ import annotations

import csv

import pytest

from benchmarks.anatomy import __main__ as command
from benchmarks.anatomy import rows
from benchmarks.anatomy.call_record import Edge, OpCost
from benchmarks.anatomy.step_anatomy import CallAnatomy, Messages, StepAnatomy
from benchmarks.contenders import CellJob
from benchmarks.settings import RULES, WITHOUT_TABLES
from benchmarks.step_rate_run import Measurement
from benchmarks.thread_cpu import ThreadKind
from ps_trainer import component_tables
from ps_trainer.errors import OptionError, RunError

TO_PS = Edge("RecvTensor", "worker-0", "ps-0", "gradient")
OPS = {("worker-0", "ConcatV2"): OpCost(2, 50, 4096), ("ps-0", "Cast"): OpCost(1, 8, 16)}


def anatomy(num_tensors: int) -> StepAnatomy:
    messages = [Messages(TO_PS._replace(tensor=f"gradient{number}"), 1, 100) for number in range(num_tensors)]
    return StepAnatomy("worker-0", [CallAnatomy(0.5, messages, OPS, num_fetched=3)])


def shown(path: str, step: StepAnatomy) -> list[rows.AnatomyRow]:
    return [row for row in rows.step_rows(path, step) if not row.is_detail]


def test_rows_are_per_step():
    by_what = {}
    for row in shown("p", anatomy(2)):
        by_what.setdefault(row.what, []).append((row.task, row.name, row.per_step, row.bytes_per_step))
    assert by_what == {
        "call": [("worker-0", "session call 1", 0.5, None)],
        "fetch": [("worker-0", "tensors returned to Python", 1.5, None)],
        "RPC": [
            ("worker-0", "RunGraph", 0.5, None),
            ("worker-0", "CleanupGraph", 0.5, None),
            ("ps-0", "RecvTensor", 1.0, None),
        ],
        "message": [("worker-0", "gradient0", 0.5, 50.0), ("worker-0", "gradient1", 0.5, 50.0)],
        "copy": [("worker-0", "ConcatV2", 1.0, 2048.0)],
        "ops": [("worker-0", "all", 1.0, None), ("ps-0", "all", 0.5, None)],
    }


def test_rows_tell_how_many_steps_a_call_makes():
    made = anatomy(1)
    many = made._replace(calls=[made.calls[0]._replace(per_step=1 / 50, num_steps=50)])
    assert {row.steps_per_call for row in rows.step_rows("p", made)} == {1}
    found = rows.step_rows("p", many)
    assert {row.steps_per_call for row in found} == {50}
    (call,) = (row for row in found if row.what == "call")
    assert call.per_step == 1 / 50
    assert "| path | steps in a call | what |" in rows.AnatomyRow.table(found)
    assert call.line().startswith("| p | 50 | call |")


def test_many_messages_are_one_line_of_the_table():
    messages = [row for row in shown("p", anatomy(80)) if row.what == "message"]
    assert [(row.name, row.per_step, row.bytes_per_step) for row in messages] == [("80 tensors", 40, 4000)]


def test_cpu_time_is_split_between_workers_and_ps_tasks():
    measurement = Measurement((100.0, 120.0), 3.0, 0.005, 0.0, ps_cpu_secs_per_step=0.002)
    found = {(row.what, row.task): (row.micros_per_step, row.per_step) for row in rows.cpu_rows("p", measurement)}
    assert found == {
        ("CPU", "workers"): (pytest.approx(3000), None),
        ("CPU", "ps tasks"): (pytest.approx(2000), None),
        ("rate", "workers"): (None, pytest.approx(110)),
    }


def test_cpu_time_is_split_by_threads_without_those_that_use_little():
    threads = {
        ThreadKind("ps", "tf_Compute"): 0.001,
        ThreadKind("worker", "python"): 0.0005,
        ThreadKind("worker", "tf_Compute"): 0.002,
        ThreadKind("ps", "python"): 0.00001,
    }
    measurement = Measurement((100.0,), 3.0, 0.004, 0.0, 0.001, threads)
    found = [row for row in rows.cpu_rows("p", measurement) if row.what == "threads"]
    assert [(row.task, row.name, row.micros_per_step) for row in found] == [
        ("workers", "tf_Compute", pytest.approx(2000)),
        ("workers", "python", pytest.approx(500)),
        ("ps tasks", "tf_Compute", pytest.approx(1000)),
    ]


def test_rates_are_shares_of_the_limits():
    own, limit = (
        rows.cpu_rows(name, Measurement((rate,), 3.0, 0.01, 0.0)) for name, rate in (("p", 90.0), ("l", 120.0))
    )
    (share,) = rows.share_rows("p", own, limit)
    assert (share.path, share.what, share.name, share.per_step) == ("p", "share", "of l", 0.75)
    assert share.steps_per_call is None
    (share,) = rows.share_rows("p", rows.cpu_rows("p", Measurement((90.0,), 3.0, 0.01, 0.0), 50), limit)
    assert share.steps_per_call == 50


def test_all_paths_are_every_rule():
    assert [path.rule for path in command._paths("all")] == list(RULES)


def test_a_colocated_path_has_no_ps_tasks():
    (path,) = command._paths("sync/packed/deep/colocated")
    assert (str(path), path.config().placement) == ("sync/packed/deep/colocated", "colocated")
    assert command._paths("sync/packed/deep")[0].config().placement == "data_parallel"


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("async/packed", "'async/packed' is not rule/layout/workload, such as async/packed/deep"),
        ("no_rule/packed/deep", "unknown 'no_rule' in 'no_rule/packed/deep'; known: async, "),
        ("async/packed/huge", "unknown 'huge' in 'async/packed/huge'; known: deep, "),
        ("async/packed/deep/near", "unknown 'near' in 'async/packed/deep/near'; known: colocated"),
        (
            "all_reduce/packed/table",
            "all_reduce cannot train the embedding table of 'table' in 'all_reduce/packed/table'; workloads without"
            " one: deep, ",
        ),
        (
            "hybrid/packed/deep",
            "hybrid needs an embedding table, and 'deep' in 'hybrid/packed/deep' has none; workloads with one:"
            " deep_table, ",
        ),
    ],
)
def test_a_wrong_path_ends_with_a_message(paths, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([f"--paths={paths}", f"--out_dir={tmp_path / 'out'}"])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flag", ["--cpu_secs=-1", "--cpu_secs=nan", "--cpu_secs=x"])
def test_a_window_is_a_number_of_at_least_0(flag, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([flag, f"--out_dir={tmp_path / 'out'}"])
    assert ended.value.code == 2
    assert "argument --cpu_secs: " in capsys.readouterr().err.splitlines()[-1]


def test_the_rules_that_cannot_train_tables_are_named():
    rules = {name: component_tables.UPDATES.load(name) for name in RULES}
    assert {name for name, rule in rules.items() if not rule.holds_tables} == set(WITHOUT_TABLES)
    assert {name for name, rule in rules.items() if rule.needs_tables} == {
        name for name, setting in RULES.items() if setting.needs_table
    }


@pytest.mark.parametrize(("flags", "steps"), [([], 0), (["--steps_per_call=1"], 1)])
def test_counts_and_processes_make_as_many_steps_in_a_call_as_the_flag_says(tmp_path, monkeypatch, flags, steps):
    from benchmarks.anatomy import traced_cluster

    commands, counted = [], []

    def trace(config, *_):
        counted.append(config.steps_per_call)
        made = anatomy(1)
        return made._replace(calls=[made.calls[0]._replace(num_steps=50)])

    def measure(contender, cell, timing, folder, *, has_threads):
        job = CellJob(cell, ("host:1",), ("host:2", "host:3"), folder)
        commands.append(contender.worker_command(job, 0))
        assert has_threads
        return Measurement((100.0, 100.0), 3.0, 0.005, 0.0)

    monkeypatch.setattr(traced_cluster, "trace", trace)
    monkeypatch.setattr(command, "measure", measure)
    assert command.main(["--paths=async/packed/deep", *flags, f"--out_dir={tmp_path / 'out'}"]) == 0
    *limits, own = [" ".join(one) for one in commands]
    assert counted == [steps]
    assert f"--steps_per_call={steps}" in own.split()
    assert len(limits) == len(command.LIMITS)
    assert ["--steps_per_call=50" in one.split() for one in limits] == ["in a loop" in name for name in command.LIMITS]
    with (tmp_path / "out" / "results.csv").open() as file:
        modes = {(row["path"], row["steps_per_call"]) for row in csv.DictReader(file)}
    assert modes == {("async/packed/deep", "50"), *((f"{name}/deep", "") for name in command.LIMITS)}


def test_a_failed_path_leaves_the_others(tmp_path, monkeypatch, capsys):
    traced = []

    def trace(config, num_ps, num_workers, worker):
        traced.append((config.update, num_ps, worker))
        if config.update == "sync":
            raise RunError("no steps")
        if config.update == "ssp":
            raise OptionError("no such option")
        return anatomy(1)

    from benchmarks.anatomy import traced_cluster

    monkeypatch.setattr(traced_cluster, "trace", trace)
    out_dir = tmp_path / "out"
    paths = "--paths=sync/packed/deep,ssp/packed/deep,async/packed/deep,async/packed/deep/colocated"
    assert command.main([paths, "--cpu_secs=0", f"--out_dir={out_dir}"]) == 1
    errors = capsys.readouterr().err
    assert "error: sync/packed/deep failed: no steps" in errors
    assert "error: ssp/packed/deep failed: no such option" in errors
    with (out_dir / "results.csv").open() as file:
        assert {row["path"] for row in csv.DictReader(file)} == {"async/packed/deep", "async/packed/deep/colocated"}
    # The first worker may hold all colocated parameters, and send nothing.
    assert traced == [("sync", 1, 0), ("ssp", 1, 0), ("async", 1, 0), ("async", 0, 1)]
