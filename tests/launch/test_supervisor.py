from __future__ import annotations

import json
import signal

import pytest

from ps_trainer.launch.signals import SignalRecorder
from ps_trainer.launch.status import Board
from ps_trainer.launch.supervisor import POLL_SECS, Limits, Supervisor
from tests.launch.fakes import ScriptedTask


class Watcher:
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def update(self):
        pass

    def on_failure(self, outcome):
        self.told.append(("failure", outcome.culprit.name))

    def on_interrupt(self, signum):
        self.told.append(("interrupt", signum))


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, secs):
        self.now += secs


@pytest.fixture
def supervise(tmp_path):
    def run(*tasks, limits=None, watcher=None, clock=None):
        clock = clock or Clock()
        supervisor = Supervisor(
            tasks=tasks,
            board=Board(tasks, tmp_path, max_steps=None),
            watcher=watcher or Watcher(),
            signals=SignalRecorder(clock),
            limits=limits or Limits(),
            clock=clock,
            sleep=clock.sleep,
        )
        for task in tasks:
            write_peer_failure(task, tmp_path)
        return supervisor.run()

    return run


def write_peer_failure(task, folder):
    if getattr(task, "claims_peer_failure", False):
        line = json.dumps({"kind": "state", "state": "another task failed", "peer_failure": True})
        (folder / f"{task.name}.jsonl").write_text(line + "\n")


def peer_failure(task):
    task.claims_peer_failure = True
    return task


def test_done_when_every_task_ended_with_0(supervise):
    outcome = supervise(
        ScriptedTask("ps-0", (3, 0)), ScriptedTask("worker-0", (2, 0)), ScriptedTask("worker-1", (1, 0))
    )
    assert (outcome.exit_code, outcome.culprit) == (0, None)


def test_first_to_fail_is_the_culprit(supervise):
    outcome = supervise(
        ScriptedTask("ps-0", (3, -signal.SIGKILL)), ScriptedTask("worker-0"), ScriptedTask("worker-1", (2, 1))
    )
    assert outcome.culprit.name == "worker-1"


@pytest.mark.parametrize(
    "exits, culprit",
    [
        ({"ps-0": 1, "worker-0": 1, "worker-1": -signal.SIGSEGV}, "worker-1"),
        ({"ps-0": 1, "worker-0": 1, "worker-1": 1}, "ps-0"),
        ({"ps-0": -signal.SIGKILL, "worker-0": -signal.SIGABRT, "worker-1": 1}, "ps-0"),
        ({"ps-0": 0, "worker-0": 0, "worker-1": 1}, "worker-1"),
    ],
)
def test_among_several_dead_a_signal_then_the_ps_is_to_blame(supervise, exits, culprit):
    outcome = supervise(*(ScriptedTask(name, (1, code)) for name, code in exits.items()))
    assert outcome.culprit.name == culprit


def test_task_that_failed_because_of_another_is_not_the_culprit(supervise):
    outcome = supervise(
        peer_failure(ScriptedTask("ps-0", (1, 1))),
        peer_failure(ScriptedTask("worker-0", (2, 1))),
        ScriptedTask("worker-1", (10, 2)),
    )
    assert outcome.culprit.name == "worker-1"
    assert outcome.exit_code == 2


def test_first_one_is_blamed_when_no_cause_shows_up_in_time(supervise):
    clock = Clock()
    limits = Limits(settle=1.0)
    outcome = supervise(
        ScriptedTask("ps-0"), peer_failure(ScriptedTask("worker-0", (1, 1))), limits=limits, clock=clock
    )
    assert outcome.culprit.name == "worker-0"
    assert clock.now == pytest.approx(limits.settle, abs=2 * POLL_SECS)


@pytest.mark.parametrize("code, expected", [(1, 1), (2, 2), (3, 1), (143, 1), (-9, 1)])
def test_exit_code_is_2_only_for_wrong_usage(supervise, code, expected):
    assert supervise(ScriptedTask("ps-0"), ScriptedTask("worker-0", (1, code))).exit_code == expected


def test_others_are_ended_after_the_failure_was_told(supervise):
    watcher = Watcher()
    running = ScriptedTask("worker-0")
    running.terminate = lambda: (watcher.told.append(("end", "worker-0")), ScriptedTask.terminate(running))
    supervise(ScriptedTask("ps-0"), running, ScriptedTask("worker-1", (1, 1)), watcher=watcher)
    assert watcher.told[:2] == [("failure", "worker-1"), ("end", "worker-0")]


def test_ps_that_does_not_end_after_the_workers_is_the_culprit(supervise):
    clock = Clock()
    outcome = supervise(
        ScriptedTask("ps-0", (2, 0)), ScriptedTask("ps-1"), ScriptedTask("worker-0", (1, 0)), clock=clock
    )
    assert (outcome.exit_code, outcome.culprit.name) == (1, "ps-1")
    assert outcome.problem == "still runs 30 s after the last worker ended"
    assert clock.now == pytest.approx(30, abs=2 * POLL_SECS)
    assert not outcome.culprit.is_running


def test_evaluator_has_a_deadline_of_its_own(supervise):
    tasks = ScriptedTask("ps-0", (1, 0)), ScriptedTask("worker-0", (1, 0)), ScriptedTask("evaluator-0")
    clock = Clock()
    outcome = supervise(*tasks, limits=Limits(evaluator_exit=50.0), clock=clock)
    assert (outcome.exit_code, outcome.culprit.name) == (1, "evaluator-0")
    assert clock.now == pytest.approx(50.0, abs=2 * POLL_SECS)


def test_tasks_that_will_not_end_are_killed_within_ten_seconds(supervise):
    clock = Clock()
    tasks = [ScriptedTask(name) for name in ("ps-0", "worker-0")]
    asked = []
    for task in tasks:
        task.terminate = lambda task=task: asked.append((task.name, clock.now))
        task.kill = lambda task=task: (asked.append((f"kill {task.name}", clock.now)), task.end(-signal.SIGKILL))
    supervise(*tasks, ScriptedTask("worker-1", (1, 1)), clock=clock)
    limits = Limits()
    assert [name for name, _ in asked] == ["worker-0", "ps-0", "kill ps-0", "kill worker-0"]
    times = [time for _, time in asked]
    assert times == pytest.approx([0, limits.workers_end, limits.all_end, limits.all_end], abs=2 * POLL_SECS)
    assert clock.now < 10


@pytest.mark.parametrize("broken", ["update", "on_failure"])
def test_exception_in_the_display_leaves_nothing(supervise, broken):
    watcher = Watcher()

    def fail(*args):
        raise BrokenPipeError

    setattr(watcher, broken, fail)
    tasks = [ScriptedTask("ps-0"), ScriptedTask("worker-0"), ScriptedTask("worker-1", (5, 1))]
    with pytest.raises(BrokenPipeError):
        supervise(*tasks, watcher=watcher)
    assert not any(task.is_running for task in tasks)
