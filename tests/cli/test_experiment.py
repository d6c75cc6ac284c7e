"""The command `experiment`: names, flags and exit codes, with a stand-in for the code that runs experiments."""

from __future__ import annotations

import os
import pathlib

import pytest

from ps_trainer import component_tables
from ps_trainer.cli import main
from ps_trainer.experiments.harness import invocation, plots
from ps_trainer.experiments.harness.invocation import Request

DICE = "tests.experiments.fakes:Dice"


@pytest.fixture
def calls(monkeypatch):
    """Stands in for `invocation.run`, which returns 1; holds (names, request, command) of each call."""
    made = []

    def run(experiments, request, command):
        made.append(([one.name for one in experiments], request, command))
        return 1

    monkeypatch.setattr(invocation, "run", run)
    experiments = {"dice": DICE, "coins": "tests.experiments.fakes:Dice"}
    monkeypatch.setattr(component_tables.EXPERIMENTS, "_targets", experiments)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    return made


def call(*arguments):
    return main.main(["ps_trainer", "experiment", *arguments])


def test_flags_become_a_request(calls):
    flags = ["--quick", "--out_dir=a b", "--seeds=2", "--check", "--keep_runs", "--plain"]
    assert call("dice", *flags) == 1
    request = Request(quick=True, out_dir=pathlib.Path("a b"), num_seeds=2, check=True, keep_runs=True, plain=True)
    assert calls == [(["dice"], request, ["ps_trainer", "experiment", "dice", *flags])]


def test_without_flags_the_experiments_own_defaults_hold(calls):
    assert call(DICE) == 1
    assert calls[0][:2] == (["dice"], Request())


def test_all_means_every_registered_one(calls):
    call("all")
    assert calls[0][0] == ["dice", "dice"]  # both names stand for the same class here


def test_runs_see_no_gpu(calls):
    call("dice")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing name of an experiment; give all, list, or some of dice, coins"),
        (["dcie"], "experiment dcie: no such experiment; did you mean dice? known: dice, coins"),
        (["list", "dice"], "experiment list dice: give list without other names"),
        (["dice", "--quik"], "unknown flag --quik; did you mean --quick?"),
        (["dice", "--seeds=many"], "--seeds"),
        (["no_module_of_this_name:Dice"], "no module named 'no_module_of_this_name'"),
    ],
)
def test_wrong_input_ends_with_2_and_a_line(calls, capsys, arguments, message):
    assert call(*arguments) == 2
    assert message in capsys.readouterr().err
    assert calls == []


def test_without_matplotlib_the_command_ends_before_any_run(calls, capsys, monkeypatch):
    monkeypatch.setattr(plots.importlib.util, "find_spec", lambda name: None)
    assert call("dice") == 2
    assert "pip install 'ps_trainer[plots]'" in capsys.readouterr().err
    assert calls == []


def test_list_prints_names_titles_and_sources(calls, capsys):
    assert call("list") == 0
    out = capsys.readouterr().out
    assert out.startswith("dice\n    Throws dice and looks at the mean\n    Pacioli 1494")
    assert calls == []


def test_help_describes_the_flags(capsys):
    assert call("--helpfull") == 0
    out = capsys.readouterr().out
    for part in ("experiment NAME… | all", "--[no]quick", "--out_dir", "--seeds", "--[no]check"):
        assert part in out


def test_registered_experiments_have_the_name_under_which_they_are_registered():
    for name in component_tables.EXPERIMENTS.names():
        assert component_tables.EXPERIMENTS.load(name).name == name
