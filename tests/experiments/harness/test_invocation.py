"""A whole call of `experiment`: files, exit codes, continuation and rejected input."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import signal

import pytest
from rich.console import Console

from ps_trainer.errors import Interrupted, OptionError, RunError, UsageError
from ps_trainer.experiments.harness import invocation, plots, provenance
from ps_trainer.experiments.harness.claims import Claim, ClaimFinding, JudgedClaim, Measure
from ps_trainer.experiments.harness.invocation import Request

COMMAND = ["python", "-m", "ps_trainer", "experiment", "dice"]


@pytest.fixture
def call(dice, tmp_path):
    """Runs the tiny experiment; returns exit code and output."""

    def run(**request):
        out = io.StringIO()
        request = Request(**{"out_dir": tmp_path / "out", "num_seeds": 1, **request})
        code = invocation.run([dice()], request, COMMAND, Console(file=out, width=200))
        return code, out.getvalue()

    return run


def test_a_call_leaves_a_report_and_an_index(call, tmp_path):
    code, printed = call()
    assert code == 0
    assert (tmp_path / "out" / "index.html").exists()
    assert (tmp_path / "out" / "dice" / "report.html").exists()
    assert "[dice](dice/report.md)" in (tmp_path / "out" / "index.md").read_text()
    assert "dice: shape reproduced" in printed
    assert "2 runs to do" in printed
    assert f"open {tmp_path / 'out' / 'index.html'}" in printed


def test_each_run_names_the_commit_that_made_it(call, tmp_path, monkeypatch):
    origin = {**provenance.provenance(COMMAND), "commit": "c" * 40, "has_uncommitted_changes": False}
    monkeypatch.setattr(invocation, "provenance", lambda command: origin)
    call()
    for path in (tmp_path / "out" / "dice" / "runs").glob("*/result.json"):
        assert json.loads(path.read_text())["commit"] == "c" * 40


def test_a_second_call_repeats_no_run(call, dice):
    call()
    code, printed = call()
    assert (code, len(dice.executed)) == (0, 2)
    assert "dice: 2 of 2 runs are there already" in printed


def test_a_refuted_claim_is_a_failure_only_with_check(call, dice, monkeypatch):
    monkeypatch.setattr(dice, "bonus", 1)
    code, printed = call()
    assert code == 0
    assert "dice: not reproduced" in printed
    assert "refuted" in printed
    assert call(check=True)[0] == 1


def test_each_finding_is_printed_with_its_claim_and_kinds_other_than_literature(call, dice, monkeypatch):
    (part,) = dice.parts
    mean, gravity = part.claims
    for finding in ClaimFinding:
        claims = (dataclasses.replace(mean, measure=lambda cases: [Measure("k=2", 0.0)]), gravity)
        monkeypatch.setattr(
            Claim, "check", lambda claim, measured, why="", finding=finding: JudgedClaim(claim, finding, "x")
        )
        monkeypatch.setattr(type(part), "claims", claims)
        _, printed = call()
        assert re.search(
            rf"^  {finding.value} +The mean of a die with k sides is \(k \+ 1\)/2: x$", printed, re.MULTILINE
        )
        assert re.search(rf"^  {finding.value} +Dice fall \(theory\): x$", printed, re.MULTILINE)


def test_a_claim_that_holds_passes_the_check(call):
    assert call(check=True)[0] == 0


def test_a_failed_run_is_named_and_fails_the_call(call, dice):
    dice.failing = {"d6-0": OptionError("no such die")}
    code, printed = call()
    assert code == 1
    assert "dice d6-0 failed: no such die" in printed
    assert "dice: run failed: d6-0" in printed
    dice.failing = {}
    assert call()[0] == 0
    assert dice.executed == ["d4-0", "d6-0", "d6-0"]


def test_a_failed_report_keeps_the_runs(call, dice, monkeypatch, tmp_path):
    def analyse(self, results):
        raise ZeroDivisionError

    monkeypatch.setattr(dice, "analyse", analyse)
    code, printed = call()
    assert code == 1
    assert "ZeroDivisionError" in printed
    assert "run failed: report" in (tmp_path / "out" / "index.md").read_text()
    monkeypatch.undo()


def test_without_matplotlib_no_run_starts(call, dice, monkeypatch, tmp_path):
    def refuse():
        raise UsageError("no matplotlib")

    monkeypatch.setattr(plots, "check_available", refuse)
    with pytest.raises(UsageError, match="no matplotlib"):
        call()
    assert dice.executed == []
    assert not (tmp_path / "out").exists()


def test_sigterm_ends_the_call_and_the_next_call_continues(call, dice, monkeypatch):
    execute = dice.execute

    def killed(self, run, folder, needed=None):
        if run.key == "d6-0":
            os.kill(os.getpid(), signal.SIGTERM)
        return execute(self, run, folder)

    monkeypatch.setattr(dice, "execute", killed)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught:
        call()
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    monkeypatch.setattr(dice, "execute", execute)
    code, printed = call()
    assert code == 0
    assert "dice: 1 of 2 runs are there already" in printed
    assert dice.executed == ["d4-0", "d6-0"]


def test_the_index_keeps_the_conclusions_of_earlier_calls(call, dice, tmp_path, monkeypatch):
    monkeypatch.setattr("ps_trainer.component_tables.EXPERIMENTS._targets", {"dice": "", "coins": ""})
    call()
    monkeypatch.setattr(dice, "name", "coins")
    call()
    text = (tmp_path / "out" / "index.md").read_text()
    assert "dice/report.md" in text
    assert "coins/report.md" in text


def test_a_users_experiment_is_created_from_its_target():
    made = invocation.create(["tests.experiments.fakes:Dice", "tests.experiments.fakes:Dice"])
    assert [one.name for one in made] == ["dice"]


@pytest.mark.parametrize("error", [RunError("x"), OSError("disk full")])
def test_failures_of_any_kind_have_an_exit_code(call, dice, error):
    dice.failing = {"d4-0": error}
    assert call()[0] == 1
