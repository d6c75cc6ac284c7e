"""A disturbed run becomes problems and a row."""

from __future__ import annotations

import json

from benchmarks import disturbed_run
from benchmarks.disturbed_run import DisturbedRow
from ps_trainer.errors import RunError


def test_a_failed_run_is_a_problem_and_so_is_a_file_that_it_leaves(tmp_path):
    def run(flags, logdir, deadline_secs, *, cwd, environ):
        logdir.mkdir()
        summary = {"restarts": {"ps-0": 1, "worker-1": 2}, "faults": [{"task": "ps-0"}, {"missed": "it was late"}]}
        (logdir / "summary.json").write_text(json.dumps(summary))
        with open(f"{environ['TMPDIR']}/left", "w"):
            raise RunError("exit code 3\nthe end of the output")

    done = disturbed_run.train([], tmp_path / "run", 1.0, run)
    assert (done.wall_secs, done.kills) == (0.0, 1)
    row = disturbed_run.fill(DisturbedRow(update="async"), done, lambda row, done: (row, ["too few steps"]))
    assert row.problem == f"exit code 3; left: {tmp_path / 'run-tmp' / 'left'}; too few steps"
    assert (row.restarts, row.leftovers, row.orphans, row.is_good) == (3, 1, 0, False)


def test_a_run_that_ends_in_order_has_no_problem(tmp_path):
    done = disturbed_run.train([], tmp_path / "run", 1.0, lambda *args, **kwargs: 7.5)
    row = disturbed_run.fill(DisturbedRow(update="async"), done, lambda row, done: (row, []))
    assert (row.wall_secs, row.problem, row.is_good) == (7.5, "", True)
