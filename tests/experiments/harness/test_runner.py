"""Runs one after the other: finished runs are skipped, and a failed run is kept and does not stop the rest."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from ps_trainer import component_tables
from ps_trainer.errors import Interrupted, RunError
from ps_trainer.experiments.harness.cpu import CpuUse
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.progress import PlainProgress
from ps_trainer.experiments.harness.runner import contended_sentence, execute, others_sentence, prepare, waits_sentence
from tests.experiments.fakes import DieSettings


def job_of(dice, folder, **changes):
    return prepare(dice(), folder, **{"quick": False, "num_seeds": 2, "keep_runs": False, **changes})


def execute_job(job):
    out = io.StringIO()
    progress = PlainProgress(Console(file=out, width=200))
    progress.plan(job.missing)
    return execute(job, progress), out.getvalue()


def test_every_run_is_done_once_and_kept(dice, tmp_path):
    executed, _ = execute_job(job_of(dice, tmp_path))
    assert dice.executed == ["d4-0", "d4-1", "d6-0", "d6-1"]
    assert [result.run.key for result in executed.results] == dice.executed
    assert executed.failures == []
    again = job_of(dice, tmp_path)
    assert again.missing == []
    assert execute_job(again)[0].results == executed.results
    assert len(dice.executed) == 4
    assert (tmp_path / "dice" / "runs" / "d6-1" / "log.txt").exists()


@pytest.mark.parametrize(("changes", "seeds"), [({"num_seeds": None}, 3), ({"num_seeds": None, "quick": True}, 1)])
def test_without_a_number_of_seeds_the_experiments_own_number_holds(dice, tmp_path, changes, seeds):
    job = job_of(dice, tmp_path, **changes)
    assert len(job.seeds) == seeds
    assert len(job.runs) == seeds * (1 if job.quick else 2)


def test_more_seeds_are_added_to_the_existing_ones(dice, tmp_path):
    execute_job(job_of(dice, tmp_path, num_seeds=1))
    more = job_of(dice, tmp_path, num_seeds=2)
    assert [run.key for run in more.missing] == ["d4-1", "d6-1"]


def test_a_failed_run_is_reported_and_repeated_while_the_others_are_kept(dice, tmp_path):
    dice.failing = {"d4-1": RunError("worker-0 fell over\n--- the end of the log\nsegmentation fault")}
    executed, printed = execute_job(job_of(dice, tmp_path))
    assert [result.run.key for result in executed.results] == ["d4-0", "d6-0", "d6-1"]
    (failure,) = executed.failures
    assert failure.key == "d4-1"
    assert "segmentation fault" in failure.reason
    assert "dice d4-1 failed: worker-0 fell over" in printed
    assert "segmentation fault" in printed
    assert (tmp_path / "dice" / "runs" / "d4-1" / "log.txt").read_text() == "thrown"
    assert "RunError" in (tmp_path / "dice" / "runs" / "d4-1" / "error.txt").read_text()
    dice.failing = {}
    assert [run.key for run in job_of(dice, tmp_path).missing] == ["d4-1"]


def test_a_defect_keeps_its_traceback(dice, tmp_path):
    dice.failing = {"d4-0": ZeroDivisionError("by nothing")}
    executed, printed = execute_job(job_of(dice, tmp_path))
    assert "fakes.py" in executed.failures[0].reason
    assert "ZeroDivisionError: by nothing" in printed


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(15)])
def test_an_interrupted_experiment_continues_where_it_was(dice, tmp_path, error):
    dice.failing = {"d6-0": error}
    with pytest.raises(type(error)):
        execute_job(job_of(dice, tmp_path))
    dice.failing = {}
    dice.executed.clear()
    executed, _ = execute_job(job_of(dice, tmp_path))
    assert dice.executed == ["d6-0", "d6-1"]
    assert len(executed.results) == 4


def test_changed_code_is_reported_and_measured_again(dice, tmp_path, monkeypatch):
    execute_job(job_of(dice, tmp_path))
    monkeypatch.setattr("ps_trainer.experiments.harness.runner.code_version", lambda *_: "changed")
    job = job_of(dice, tmp_path)
    assert len(job.missing) == 4
    assert len(job.remarks) == 4
    assert "d4-0 is done again: measured by other code" in job.remarks[0]
    kept = job_of(dice, tmp_path, keep_runs=True)
    assert (kept.missing, kept.remarks) == ([], [])
    assert len(kept.old_versions) == 1


def test_two_runs_of_one_key_are_an_error(dice, tmp_path, monkeypatch):
    monkeypatch.setattr(dice, "runs", lambda self, seeds, *, quick, runs=dice.runs: 2 * runs(self, seeds, quick=quick))
    with pytest.raises(ValueError, match="more than one run has a key"):
        job_of(dice, tmp_path)


def waiting(monkeypatch, *shares):
    """Lets the tasks of the next attempts wait for cores for these shares of a step; the last one repeats."""
    left = list(shares)

    def between(*_):
        return CpuUse(0.2, 1.0, 0.1, left.pop(0) if len(left) > 1 else left[0])

    monkeypatch.setattr("ps_trainer.experiments.harness.cpu.CpuMeter.between", between)


def test_a_run_whose_tasks_waited_is_made_again_three_times_and_then_shown(dice, tmp_path, monkeypatch):
    waiting(monkeypatch, 0.09)
    monkeypatch.setattr(dice, "level", Level.PROCESSES)
    executed, printed = execute_job(job_of(dice, tmp_path, num_seeds=1))
    assert dice.executed == 4 * ["d4-0"] + 4 * ["d6-0"]
    assert [(result.num_attempts, result.is_contended) for result in executed.results] == [(4, True), (4, True)]
    said = contended_sentence(executed.results)
    assert "The times of 2 of 2 runs are not comparable" in said
    assert "d4-0 (tasks waited for cores for 9.00 % of their steps)" in said
    assert printed.count("dice d4-0 is made again: tasks waited for cores for 9.00 % of their steps") == 3
    assert "not comparable: tasks waited for cores for 9.00 % of their steps" in printed
    assert contended_sentence(executed.results[:0]) == ""
    assert job_of(dice, tmp_path, num_seeds=1).missing == []  # another call does not try it again


def test_repetitions_that_were_in_vain_are_not_tried_with_the_next_seed(dice, tmp_path, monkeypatch):
    waiting(monkeypatch, *4 * [0.09], 0.09, 0.01, 0.09, 0.01)
    monkeypatch.setattr(dice, "level", Level.PROCESSES)
    executed, _ = execute_job(job_of(dice, tmp_path, num_seeds=2))
    assert dice.executed == [*4 * ["d4-0"], *2 * ["d6-0"], "d4-1", "d6-1"]
    assert [result.is_contended for result in executed.results] == [True, False, True, False]


@pytest.mark.parametrize(("level", "attempts"), [(Level.SHAPED, 1), (Level.PROCESSES, 4)])
def test_waits_of_network_threads_do_not_count_on_shaped_hosts(dice, tmp_path, monkeypatch, level, attempts):
    use = CpuUse(0.2, 1.0, 0.1, delayed_share=0.09, network_delayed_share=0.08)
    monkeypatch.setattr("ps_trainer.experiments.harness.cpu.CpuMeter.between", lambda *_: use)
    monkeypatch.setattr(dice, "level", level)
    executed, _ = execute_job(job_of(dice, tmp_path, num_seeds=1))
    assert [result.num_attempts for result in executed.results] == 2 * [attempts]


def test_the_first_attempt_whose_tasks_hardly_waited_counts(dice, tmp_path, monkeypatch):
    waiting(monkeypatch, 0.09, 0.03, 0.01)
    monkeypatch.setattr(dice, "level", Level.PROCESSES)
    executed, _ = execute_job(job_of(dice, tmp_path, num_seeds=1))
    assert dice.executed == [*3 * ["d4-0"], "d6-0"]
    assert [(result.num_attempts, result.is_contended) for result in executed.results] == [(3, False), (1, False)]
    assert contended_sentence(executed.results) == ""


def test_real_runs_that_are_compared_alternate(dice, tmp_path, monkeypatch):
    monkeypatch.setattr(dice, "level", Level.PROCESSES)
    execute_job(job_of(dice, tmp_path))
    assert dice.executed == ["d4-0", "d6-0", "d4-1", "d6-1"]


def test_a_run_gets_the_figures_of_the_run_that_it_needs(dice, tmp_path, monkeypatch):
    throws = dice.parts[0]
    two_sided = dataclasses.replace(dice().runs([0], quick=True)[0], key="d2", settings=DieSettings(sides=2))
    got = []

    def execute_with(run, folder, needed):
        got.append((run.key, needed.largest))
        return throws.execute(run, folder)

    monkeypatch.setattr(throws, "needed_by", lambda run: None if run.key == "d2" else two_sided)
    monkeypatch.setattr(throws, "execute_with", execute_with)
    execute_job(job_of(dice, tmp_path, num_seeds=1))
    assert dice.executed == ["d2", "d4-0", "d6-0"]
    assert got == [("d4-0", 2), ("d6-0", 2)]
    dice.failing = {"d2": RunError("no coin")}
    failed, _ = execute_job(job_of(dice, tmp_path / "again", num_seeds=1))
    assert [one.key for one in failed.failures] == ["d2", "d4-0", "d6-0"]
    assert "it needs the figures of d2, which failed" in failed.failures[1].reason


def test_the_cpu_use_of_other_processes_is_reported_for_real_runs(dice, tmp_path, monkeypatch):
    monkeypatch.setattr("ps_trainer.experiments.harness.cpu.CpuMeter.between", lambda *_: CpuUse(0.8, 3.0, 1.0))
    virtual, _ = execute_job(job_of(dice, tmp_path / "virtual"))
    assert others_sentence(virtual.results) == ""
    monkeypatch.setattr(dice, "level", Level.PROCESSES)
    real, _ = execute_job(job_of(dice, tmp_path / "real"))
    assert "While the 4 real runs were made, others had 20 % of the cores at the median" in others_sentence(
        real.results
    )


def test_the_waits_of_tasks_that_sleep_are_reported_and_so_is_that_they_are_not_known(dice, tmp_path, monkeypatch):
    virtual, _ = execute_job(job_of(dice, tmp_path / "virtual"))
    assert waits_sentence(virtual.results) == ""
    monkeypatch.setattr(dice, "level", Level.PROCESSES)
    use = CpuUse(0.8, 3.0, 1.0, 0.012)
    monkeypatch.setattr("ps_trainer.experiments.harness.cpu.CpuMeter.between", lambda *_: use)
    real, _ = execute_job(job_of(dice, tmp_path / "real"))
    assert "waited for cores for 1.2 % of a step at the median" in waits_sentence(real.results)
    monkeypatch.setattr(
        "ps_trainer.experiments.harness.cpu.CpuMeter.between", lambda *_: use._replace(delayed_share=None)
    )
    unknown, _ = execute_job(job_of(dice, tmp_path / "unknown"))
    assert waits_sentence(unknown.results) == "For how long those of 4 runs waited is not known, so they count."


def test_the_cpu_use_of_a_run_is_measured(dice, tmp_path):
    executed, _ = execute_job(job_of(dice, tmp_path))
    result = executed.results[0]
    assert result.wall_secs > 0
    assert result.cpu is None or 0 <= result.cpu.share <= 1


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_every_registered_experiment_can_be_prepared(name, quick, tmp_path):
    job = prepare(component_tables.EXPERIMENTS.create(name), tmp_path, quick=quick, num_seeds=None, keep_runs=False)
    assert job.missing == list(job.runs) != []
