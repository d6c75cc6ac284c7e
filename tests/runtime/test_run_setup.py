"""A chief decides whether an earlier run continues, and writes the record of a run that it begins."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from tests.testing.cluster import environment  # noqa: F401 - prepares TensorFlow's environment

from ps_trainer.runtime import run_setup  # isort: skip - after the environment
from ps_trainer.runtime.run_record import EvaluationCall, Hello, RunStart, RunStatus  # isort: skip
from tests.runtime.fakes import FakeControl, entry, incarnation, roster  # isort: skip

CONFIG = TrainConfig(logdir="runs/x", max_steps=10)
START = RunStart(step=5, how="initialised")


def cluster_of(num_ps=1, num_workers=2):
    hosts = [f"host{i}:2222" for i in range(num_ps + num_workers)]
    jobs = {"ps": tuple(hosts[:num_ps]), "worker": tuple(hosts[num_ps:])}
    return ClusterConfig(jobs=jobs, job_name="worker", task_index=0)


def begin(controls, cluster=None, config=CONFIG, **kwargs):
    return run_setup.begin_run(controls, cluster or cluster_of(num_ps=len(controls)), config, **kwargs)


def ready(num_ps=1):
    """Ps tasks with a ready run, and the run's record."""
    controls = [FakeControl(ps) for ps in range(num_ps)]
    run = begin(controls).run.replace(start=START, status=RunStatus.READY)
    controls[0].write_run(run)
    return controls, run


def test_a_fresh_ps_gets_a_new_run():
    ps_0 = FakeControl()
    found = begin([ps_0])
    assert (found.is_alive, found.was_lost) == (False, False)
    assert ps_0.fields["run"] == found.run
    assert found.run.status is RunStatus.STARTING
    assert found.run.incarnations == (incarnation(0),)
    assert found.run.agreement == CONFIG.agreement() | {"num_workers": 2}


def test_the_chiefs_addresses_tell_whether_a_run_spans_hosts():
    assert begin([FakeControl()]).run.spans_hosts
    jobs = {"ps": ("localhost:1",), "worker": ("localhost:2", "127.0.0.1:3")}
    at_home = ClusterConfig(jobs=jobs, job_name="worker", task_index=0)
    assert not begin([FakeControl()], at_home).run.spans_hosts
    controls, run = ready()
    assert run.spans_hosts and begin(controls, at_home).run == run  # its variables are there


def test_a_run_that_its_chief_never_ended_continues():
    controls, run = ready()
    found = begin(controls)
    assert found == run_setup.FoundRun(run, is_alive=True, was_lost=False)
    assert controls[0].fields["run"] == run  # other workers may still be training in it


def test_a_new_chief_does_not_continue_the_evaluation_of_a_dead_one():
    controls, run = ready()
    call = EvaluationCall(call_id="c", workers=(1,), parameters=0, num_test_examples=9, first_batch=0, num_parts=1)
    controls[0].write_run(run.replace(evaluation=call))
    assert begin(controls).run == controls[0].fields["run"] == run


def test_a_run_that_a_dead_chief_leaves_in_disorder_counts_as_lost():
    controls, run = ready()
    found = begin(controls, may_attach=False)
    assert (found.is_alive, found.was_lost) == (False, True)
    assert found.run.run_id != run.run_id and found.run.start == run.start


def test_a_run_whose_part_on_a_ps_is_lost_is_lost():
    controls, run = ready(num_ps=2)
    controls[1].fields["hello"] = Hello(incarnation="second")
    found = begin(controls)
    assert (found.is_alive, found.was_lost) == (False, True)
    assert found.run.run_id != run.run_id
    assert found.run.incarnations == (incarnation(0), "second")
    again = begin(controls)  # the chief was killed before it had initialised the state
    assert (again.is_alive, again.was_lost) == (False, True)


def test_the_restart_of_a_worker_that_holds_none_of_the_parameters_loses_nothing():
    controls = [FakeControl(ps) for ps in range(3)]
    run = begin(controls, num_holders=2).run.replace(start=START, status=RunStatus.READY)
    assert run.incarnations == (incarnation(0), incarnation(1))
    controls[0].write_run(run)
    controls[2].fields["hello"] = Hello(incarnation="second")
    assert run_setup.is_state_there(controls, run)
    assert begin(controls, num_holders=2) == run_setup.FoundRun(run, is_alive=True, was_lost=False)
    controls[1].fields["hello"] = Hello(incarnation="second")
    assert not run_setup.is_state_there(controls, run)
    assert begin(controls, num_holders=2).was_lost


def test_a_run_that_was_never_ready_had_no_state_to_lose():
    ps_0 = FakeControl()
    first = begin([ps_0])
    second = begin([ps_0])
    assert (second.is_alive, second.was_lost) == (False, False)
    assert second.run.run_id != first.run.run_id


def test_a_run_that_ended_is_replaced():
    controls, run = ready()
    controls[0].write_run(run.replace(status=RunStatus.ENDED))
    found = begin(controls)
    assert (found.is_alive, found.was_lost) == (False, False)
    assert found.run.run_id != run.run_id


@pytest.mark.parametrize("change", [{"logdir": "runs/y"}, {"logdir": None}, {"learning_rate": 0.5}])
def test_another_run_is_not_mistaken_for_this_one(change):
    controls, run = ready()
    found = begin(controls, config=dataclasses.replace(CONFIG, **change))
    assert (found.is_alive, found.was_lost) == (False, False)
    assert found.run.run_id != run.run_id


def test_another_number_of_workers_is_another_run():
    controls, _ = ready()
    assert not begin(controls, cluster_of(num_workers=3)).is_alive


def test_the_last_reports_of_a_run_are_those_of_its_workers_that_are_done():
    controls = [FakeControl(ps, roster=roster("r", w0="lost", w1="done", w2="training")) for ps in range(2)]
    controls[1].fields["roster"] = roster("r", w3="done")
    assert run_setup.last_reports_of_done(controls, "r") == {1: entry("done"), 3: entry("done")}
    assert run_setup.last_reports_of_done(controls, "another") == {}
