"""The fault table of TF1 scripts, whose processes are started as a user starts them."""

from __future__ import annotations

import subprocess  # noqa: F401 - makes these tests count as tests of processes

import pytest

from benchmarks import script_faults

LIMIT_SECS = 120.0


@pytest.mark.parametrize(
    ("case", "codes"),
    [
        # tests/processes/test_tf1_scripts.py has the same script with the same codes and steps.
        pytest.param("sync", "ps-0 0, worker-0 0, worker-1 0", marks=pytest.mark.full),
        # tests/processes/test_tf1_scripts.py kills the ps task of a script, too.
        pytest.param("ps_killed", "worker-0 1, worker-1 1", marks=pytest.mark.full),
        ("no_ps", "worker-0 1"),
    ],
)
def test_a_script_with_one_import_changed_ends_with_the_code_of_its_case(tmp_path, case, codes):
    row = script_faults.run("tutorial", case, "drop_in", tmp_path / "run", LIMIT_SECS)
    assert row.codes == codes
    assert row.ended_secs < LIMIT_SECS
    if case == "sync":
        assert row.steps == f"{script_faults.NUM_STEPS}, {script_faults.NUM_STEPS}"


def test_a_task_that_has_not_ended_is_reported_as_running(tmp_path):
    row = script_faults.run("tutorial", "no_ps", "stock", tmp_path / "run", limit_secs=1.0)
    assert (row.codes, row.ended_secs, row.steps, row.checkpoint) == ("worker-0 running", None, "0", False)
    assert "worker-0 running" in row.line()


def test_unknown_cases_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        script_faults.parse_plan(["--cases=earthquake"])
    assert "unknown 'earthquake'; known: async, sync, late" in capsys.readouterr().err
