from __future__ import annotations

import signal

import pytest

from ps_trainer.launch.restarts import PEER_SHARE, STEADY_SECS, Restarts
from tests.launch.fakes import ScriptedTask


def ended(name="worker-1", exit_code=1, ran_secs=1.0):
    task = ScriptedTask(name)
    task.started_at, task.ended_at, task.exit_code = 0.0, ran_secs, exit_code
    return task


def test_by_default_no_task_is_restarted():
    assert Restarts().delay_for(ended()) is None
    assert Restarts().counts == {}


def test_delays_double_up_to_eight_seconds_and_end_with_the_number_allowed():
    restarts = Restarts(6)
    assert [restarts.delay_for(ended()) for _ in range(7)] == [1, 2, 4, 8, 8, 8, None]
    assert restarts.counts == {"worker-1": 6}


def test_each_task_has_a_number_of_its_own():
    restarts = Restarts(1)
    assert restarts.delay_for(ended("worker-1")) == 1
    assert restarts.delay_for(ended("ps-0")) == 1
    assert restarts.delay_for(ended("ps-0")) is None
    assert restarts.counts == {"ps-0": 1, "worker-1": 1}


def test_failures_of_other_tasks_have_a_limit_of_their_own():
    restarts = Restarts(1)
    delays = [restarts.delay_for(ended(), is_peer_failure=True) for _ in range(PEER_SHARE + 1)]
    assert delays == [1, 2, 4] + [8] * (PEER_SHARE - 3) + [None]
    assert restarts.delay_for(ended()) == 8
    assert restarts.delay_for(ended()) is None
    assert restarts.counts == {"worker-1": PEER_SHARE + 1}


def test_delays_restart_at_the_shortest_after_a_task_that_ran_for_long():
    restarts = Restarts(9)
    assert [restarts.delay_for(ended()) for _ in range(3)] == [1, 2, 4]
    assert restarts.delay_for(ended(ran_secs=STEADY_SECS)) == 1
    assert restarts.delay_for(ended()) == 2


@pytest.mark.parametrize(("exit_code", "is_restarted"), [(0, False), (2, False), (1, True), (-9, True), (143, True)])
def test_tasks_that_are_done_or_have_wrong_input_are_not_restarted(exit_code, is_restarted):
    assert (Restarts(1).delay_for(ended(exit_code=exit_code)) is not None) == is_restarted


def test_task_that_was_asked_to_end_is_not_restarted():
    task = ended(exit_code=-signal.SIGTERM)
    task.is_asked_to_end = True
    assert Restarts(1).delay_for(task) is None


def test_messages():
    restarts = Restarts(2)
    task = ended(exit_code=-signal.SIGKILL)
    assert restarts.problem(task) == "killed (SIGKILL)"
    assert restarts.restart_message(task, restarts.delay_for(task)) == "restarted in 1 s (restart 1 of 2)"
    assert restarts.problem(task) == "killed (SIGKILL), after 1 restart"
    assert restarts.restart_message(task, restarts.delay_for(task)) == "restarted in 2 s (restart 2 of 2)"
    assert restarts.problem(task) == "killed (SIGKILL), after 2 restarts"
    delay_secs = restarts.delay_for(task, is_peer_failure=True)
    assert (
        restarts.restart_message(task, delay_secs, is_peer_failure=True) == "restarted in 4 s (another task's failure)"
    )
