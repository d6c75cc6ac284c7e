"""The commands of the contenders."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest

from benchmarks import settings
from benchmarks.contenders import (
    BATCH_SIZE,
    CONTENDERS,
    LEARNING_RATE,
    MODES,
    REPOSITORY,
    RULES_MODE,
    SIZES,
    Cell,
    CellJob,
    rule_contenders,
)
from ps_trainer.cli import flags
from ps_trainer.config import TrainConfig

FOLDER = pathlib.Path("/nowhere/run")
OUR_LAYOUTS = ["packed", "per_variable"]


def job(workload: str = "deep", mode: str = "async") -> CellJob:
    hosts = ("a:1", "a:2"), ("b:3", "b:4")
    return CellJob(Cell(workload, mode, num_ps=2, num_workers=2), *hosts, FOLDER)


def flags_of(command: list[str]) -> dict[str, str]:
    pairs = [argument[2:].split("=", maxsplit=1) for argument in command if argument.startswith("--")]
    return {pair[0]: pair[-1] for pair in pairs}


@pytest.mark.parametrize("who", CONTENDERS)
def test_every_task_knows_the_cluster_and_its_index(who):
    contender = CONTENDERS[who]
    for command in (contender.ps_command(job(), 1), contender.worker_command(job(), 1)):
        given = flags_of(command)
        assert (given["ps_hosts"], given["worker_hosts"], given["task_index"]) == ("a:1,a:2", "b:3,b:4", "1")


@pytest.mark.parametrize("who", CONTENDERS)
def test_programs_exist(who):
    for command in (CONTENDERS[who].ps_command(job(), 0), CONTENDERS[who].worker_command(job(), 0)):
        name = command[2].replace(".", "/") + ".py" if command[1] == "-m" else command[1]
        assert (REPOSITORY / name).is_file()


@pytest.mark.parametrize("layout", OUR_LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", SIZES)
def test_our_worker_flags_make_a_valid_configuration(layout, mode, workload):
    command = CONTENDERS[layout].worker_command(job(workload, mode), 0)
    is_cluster_flag = tuple(f"--{name}=" for name in ("ps_hosts", "worker_hosts", "task_index"))
    argv = [argument for argument in command[1:] if not argument.startswith(is_cluster_flag)]
    (config,) = flags.parse(argv, "usage", TrainConfig).groups
    config.check()
    assert (config.update, config.layout, config.optimizer) == (mode, layout, "sgd")
    assert (config.batch_size, config.learning_rate) == (BATCH_SIZE, LEARNING_RATE)
    assert config.dataset_option == (f"width={SIZES[workload].width}",)


def test_a_rule_is_a_contender_of_its_own_with_its_options(monkeypatch):
    setting = dataclasses.replace(settings.RULES["ssp"], options=("name=ssp", "k=1"))
    monkeypatch.setitem(settings.RULES, "ssp", setting)
    ((_, contenders),) = rule_contenders(["ssp"], group_size=2)
    rule = contenders["ssp"]
    command = rule.worker_command(job(mode=RULES_MODE), 0)
    assert (rule.name, flags_of(command)["update"], flags_of(command)["layout"]) == ("ssp", "ssp", "packed")
    assert [argument for argument in command if argument.startswith("--update_option")] == [
        "--update_option=name=ssp",
        "--update_option=k=1",
    ]


def test_rules_are_grouped_around_async_and_rules_for_tables_have_a_workload_with_tables():
    groups = rule_contenders(["ssp", "async", "hybrid", "backup", "sync"], group_size=2)
    assert [(workload, list(contenders)) for workload, contenders in groups] == [
        ("deep", ["async", "ssp", "backup"]),
        ("deep", ["async", "sync"]),
        ("deep_table", ["async", "hybrid"]),
    ]
    command = groups[2][1]["hybrid"].worker_command(job("deep_table", RULES_MODE), 0)
    assert flags_of(command)["model"] == "benchmarks.workloads:DeepTable"


def test_stock_is_synchronous_only_when_asked():
    assert "--sync" not in CONTENDERS["stock"].worker_command(job(mode="async"), 0)
    assert "--sync" in CONTENDERS["stock"].worker_command(job(mode="sync"), 0)


@pytest.mark.parametrize("layout", OUR_LAYOUTS)
def test_reports_of_ours_lie_in_the_logdir(layout):
    assert CONTENDERS[layout].report_path(job(), 1) == FOLDER / "metrics" / "worker-1.jsonl"
    assert f"--logdir={FOLDER}" in CONTENDERS[layout].worker_command(job(), 1)
