from __future__ import annotations

import subprocess
import sys

import pytest

from ps_trainer import component_tables
from ps_trainer.cli import check_model, main
from ps_trainer.cli.local import LocalFlags, create_hosts
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.launch import trial_build
from ps_trainer.launch.hosts import LocalHosts
from ps_trainer.training import components
from tests.testing.repetitions import repetitions


def test_by_default_tasks_share_this_machines_network():
    assert isinstance(create_hosts(LocalFlags()), LocalHosts)


@pytest.mark.parametrize(
    ("flags", "summary"),
    [
        ({}, "ps without limit, workers without limit"),
        ({"rate": "200mbit"}, "ps 200 mbit/s, workers 200 mbit/s"),
        ({"rate": "200mbit", "ps_rate": "1gbit"}, "ps 1000 mbit/s, workers 200 mbit/s"),
        ({"worker_rate": "12.5mbps"}, "ps without limit, workers 100 mbit/s"),
    ],
)
def test_rates_of_shaped_hosts(flags, summary):
    assert create_hosts(LocalFlags(hosts="netns", **flags)).summary == f"network namespaces, {summary}"


def test_unknown_hosts_name_the_known_ones():
    with pytest.raises(UnknownNameError, match="--hosts=netsn: unknown; did you mean netns. known: local, netns"):
        create_hosts(LocalFlags(hosts="netsn"))


@pytest.mark.parametrize("name", ["rate", "ps_rate", "worker_rate"])
def test_a_rate_without_shaped_hosts_says_what_to_add(name):
    with pytest.raises(OptionError, match=f"--{name}=200mbit needs a link .*add --hosts=netns"):
        create_hosts(LocalFlags(**{name: "200mbit"}))


@pytest.mark.parametrize("name", ["rate", "ps_rate", "worker_rate"])
def test_a_text_that_is_not_a_rate_is_an_error_that_names_its_flag(name):
    with pytest.raises(OptionError, match=f"--{name}='fast' is not a rate"):
        create_hosts(LocalFlags(hosts="netns", **{name: "fast"}))


WRONG_OPTIONS = {
    "--optimizer_option=momentun=0.9": "unknown key 'momentun'",
    "--model=mlp --model_option=hidden=0": "each value of hidden must be at least 1",
    "--model=bert --model_option=num_heads=7": "--model_option: ",
    "--dataset_option=foo=1": "--dataset_option foo=1",
    "--layout_option=foo=1": "--layout_option foo=1: unknown key 'foo'",
    "--layout_option=least_share_bytes=1": "least_share_bytes=1 has no effect, because the workers hold no parameters",
    "--schedule_option=foo=1": "--schedule_option foo=1",
    "--update=sync --update_option=replicas_to_aggregate=3": "replicas_to_aggregate=3 exceeds num_workers=2",
    "--gradient_transform=clip_norm:norm=0": "norm must be above 0",
    "--optimizer_for=*=sgd:foo=1": "unknown key 'foo'",
    "--devices_per_worker=48 --model=word2vec": "--batch_size=64 is not a multiple of it; give --batch_size=48 or",
    "--devices_per_worker=48 --model=word2vec --batch_size=32": "--batch_size=32 is not a multiple of it",
    "--dataset=mnist": "--data_dir is not given; dataset mnist needs --data_dir=<folder> with four files",
    "--dataset=text --data_dir=/no/such": "--data_dir=/no/such is not a folder; a text needs",
    "--update=easgd --optimizer=adam": "are SGD; use --optimizer=sgd (with",
    "--update=hogwild --optimizer=adam": "use --optimizer=lazy_adam, sgd or adagrad",
    "--update=downpour --optimizer_for=*=adam": "use --update=async, sync or another rule",
    "--update=all_reduce --gradient_transform=sign": "--gradient_transform sign",
    "--update=all_reduce --pull_dtype=bfloat16": "--pull_dtype=bfloat16 has no effect: under --update=all_reduce",
    "--update=model_averaging --gradient_transform=terngrad": "leave it out (clip_norm and",
    "--gradient_transform=dgc --optimizer=adam": "keeps the momentum on the worker",
    "--gradient_transform=error_feedback": "error_feedback has no loss to compensate for",
    "--update=backup --num_workers=1": "backup_workers=1 leaves none of num_workers=1",
    "--update=all_reduce --steps_per_call=7": "between two steps; use --steps_per_call=1 or 0",
    "--straggler=det:mean_ms=1 --steps_per_call=7": "--straggler delays each step on the host",
    "--init_from=/no/such": "--init_from=/no/such: ",
}


@pytest.mark.parametrize("args", WRONG_OPTIONS)
def test_a_wrong_option_of_a_component_is_rejected_before_anything_starts(tmp_path, capsys, args):
    import tensorflow  # noqa: F401, ICN001 - a launcher with TensorFlow in memory checks without a child process

    assert main.main(["ps_trainer", "local", "--nopreload", f"--logdir={tmp_path}/run", *args.split()]) == 2
    assert WRONG_OPTIONS[args] in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


CHECKED_BY_A_CHILD = [
    (
        ["--num_workers=3", "--update=backup", "--update_option=backup_workers=3"],
        "backup_workers=3 leaves none of num_workers=3",
    ),
    (["--dataset=mnist"], "--data_dir is not given; dataset mnist needs"),
]


@pytest.mark.parametrize(
    ("args", "message", "how"),
    repetitions([(*case, how) for how in ("--preload", "--nopreload") for case in CHECKED_BY_A_CHILD], every=3),
)
def test_a_launcher_without_tensorflow_checks_in_a_child_process(tmp_path, capsys, monkeypatch, args, message, how):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    assert main.main(["ps_trainer", "local", f"--logdir={tmp_path}/run", how, *args]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}") and captured.err.count("\n") == 1
    assert captured.out == ""  # no line about tasks and files of a run that does not start
    assert not (tmp_path / "run").exists()
    assert "tensorflow" not in sys.modules


def test_stages_that_do_not_fit_the_workers_are_rejected_before_anything_starts(tmp_path, capsys):
    import tensorflow  # noqa: F401, ICN001 - so that no child process imports it for the check

    args = ["--num_workers=3", "--model=mlp", "--model_option=num_stages=2", "--placement=model_parallel"]
    assert main.main(["ps_trainer", "local", "--nopreload", f"--logdir={tmp_path}/run", *args]) == 2
    assert "num_workers=3 is not a multiple of the model's 2 stages" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("update", component_tables.UPDATES.names())
def test_a_run_that_starts_without_a_check_would_pass_it(monkeypatch, update, num_workers):
    monkeypatch.setattr(subprocess, "run", None)
    names = {
        "optimizer": component_tables.OPTIMIZERS.names(),
        "optimizer_for": [(f"*={name}",) for name in component_tables.OPTIMIZERS.names()],
        "schedule": component_tables.SCHEDULES.names(),
        "layout": component_tables.LAYOUTS.names(),
        "placement": ("data_parallel", "colocated"),
    }
    configs = [TrainConfig(update=update, **{name: value}) for name, values in names.items() for value in values]
    unchecked = [config for config in configs if not trial_build.may_be_rejected(config, num_workers)]
    for config in unchecked:
        check_model.check_without_fork_server(config, [], num_workers)
        components.check_options(config, num_workers)
    assert TrainConfig(update=update) in unchecked or num_workers == 1
