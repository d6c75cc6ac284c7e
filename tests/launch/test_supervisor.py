from __future__ import annotations

import json
import signal

import pytest

from ps_trainer.errors import RunError
from ps_trainer.launch.event_log import EventLog
from ps_trainer.launch.restarts import Restarts
from ps_trainer.launch.signals import SignalRecorder
from ps_trainer.launch.status import Board
from ps_trainer.launch.supervisor import POLL_SECS, ShutdownDeadlines, TaskSupervisor
from tests.launch.fakes import ScriptedTask


class RecordingObserver:
    """Records its calls."""

    def __init__(self):
        self.told = []

    def update(self):
        pass

    def on_event(self, task, text):
        self.told.append(("event", task.name, text))

    def on_failure(self, outcome):
        self.told.append(("failure", outcome.culprit.name))

    def on_interrupt(self, signum):
        self.told.append(("interrupt", signum))


class FakeTime:
    """Time that passes only by sleeping."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, secs):
        self.now += secs


@pytest.fixture
def supervise(tmp_path):
    def run(*tasks, deadlines=None, observer=None, fake_time=None, max_restarts=0, injector=None):
        fake_time = fake_time or FakeTime()
        supervisor = TaskSupervisor(
            board=Board(tasks, tmp_path, max_steps=None),
            observer=observer or RecordingObserver(),
            signals=SignalRecorder(fake_time),
            deadlines=deadlines or ShutdownDeadlines(),
            restarts=Restarts(max_restarts),
            injector=injector,
            log=EventLog(tmp_path),
            time_fn=fake_time,
            sleep=fake_time.sleep,
        )
        for task in tasks:
            write_peer_failure(task, tmp_path)
            write_states(task, tmp_path)
        return supervisor.run()

    return run


def write_peer_failure(task, folder):
    if getattr(task, "claims_peer_failure", False):
        line = json.dumps({"kind": "state", "state": "failed: another task failed", "peer_failure": True})
        (folder / f"{task.name}.jsonl").write_text(line + "\n")


def write_states(task, folder):
    lines = [json.dumps({"kind": "state", "state": state}) for state in getattr(task, "states", [])]
    if lines:
        (folder / f"{task.name}.jsonl").write_text("\n".join(lines) + "\n")


def that_says(task, *states):
    task.states = states
    return task


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


def test_first_task_to_fail_is_blamed_when_no_cause_shows_up_in_time(supervise):
    fake_time = FakeTime()
    deadlines = ShutdownDeadlines(settle=1.0)
    outcome = supervise(
        ScriptedTask("ps-0"), peer_failure(ScriptedTask("worker-0", (1, 1))), deadlines=deadlines, fake_time=fake_time
    )
    assert outcome.culprit.name == "worker-0"
    assert fake_time.now == pytest.approx(deadlines.settle, abs=2 * POLL_SECS)


@pytest.mark.parametrize("code, expected", [(1, 1), (2, 2), (3, 1), (143, 1), (-9, 1)])
def test_exit_code_is_2_only_for_wrong_usage(supervise, code, expected):
    assert supervise(ScriptedTask("ps-0"), ScriptedTask("worker-0", (1, code))).exit_code == expected


def test_others_are_ended_after_the_failure_was_reported(supervise):
    observer = RecordingObserver()
    running = ScriptedTask("worker-0")
    running.terminate = lambda: (observer.told.append(("end", "worker-0")), ScriptedTask.terminate(running))
    supervise(ScriptedTask("ps-0"), running, ScriptedTask("worker-1", (1, 1)), observer=observer)
    assert observer.told[:2] == [("failure", "worker-1"), ("end", "worker-0")]


def test_ps_that_does_not_end_after_the_workers_is_the_culprit(supervise):
    fake_time = FakeTime()
    outcome = supervise(
        ScriptedTask("ps-0", (2, 0)), ScriptedTask("ps-1"), ScriptedTask("worker-0", (1, 0)), fake_time=fake_time
    )
    assert (outcome.exit_code, outcome.culprit.name) == (1, "ps-1")
    assert outcome.problem == "still runs 30 s after the last worker was done"
    assert fake_time.now == pytest.approx(30, abs=2 * POLL_SECS)
    assert not outcome.culprit.is_running


def test_evaluator_has_a_deadline_of_its_own(supervise):
    tasks = ScriptedTask("ps-0", (1, 0)), ScriptedTask("worker-0", (1, 0)), ScriptedTask("evaluator-0")
    fake_time = FakeTime()
    outcome = supervise(*tasks, deadlines=ShutdownDeadlines(evaluator_exit=50.0), fake_time=fake_time)
    assert (outcome.exit_code, outcome.culprit.name) == (1, "evaluator-0")
    assert fake_time.now == pytest.approx(50.0, abs=2 * POLL_SECS)


def test_tasks_that_will_not_end_are_killed_within_ten_seconds(supervise):
    fake_time = FakeTime()
    tasks = [ScriptedTask(name) for name in ("ps-0", "worker-0")]
    asked = []
    for task in tasks:
        task.terminate = lambda task=task: asked.append((task.name, fake_time.now))
        task.kill = lambda task=task: (asked.append((f"kill {task.name}", fake_time.now)), task.end(-signal.SIGKILL))
    supervise(*tasks, ScriptedTask("worker-1", (1, 1)), fake_time=fake_time)
    deadlines = ShutdownDeadlines()
    assert [name for name, _ in asked] == ["worker-0", "ps-0", "kill ps-0", "kill worker-0"]
    times = [time for _, time in asked]
    assert times == pytest.approx([0, deadlines.workers_end, deadlines.all_end, deadlines.all_end], abs=2 * POLL_SECS)
    assert fake_time.now < 10


def test_dead_task_is_restarted_after_a_delay_and_a_message_says_so(supervise, tmp_path):
    observer, fake_time = RecordingObserver(), FakeTime()
    worker = ScriptedTask("worker-1", (4, -signal.SIGKILL), (4, 1), (4, 0))
    outcome = supervise(
        ScriptedTask("ps-0", (80, 0)),
        ScriptedTask("worker-0", (80, 0)),
        worker,
        observer=observer,
        fake_time=fake_time,
        max_restarts=2,
    )
    assert (outcome.exit_code, outcome.culprit) == (0, None)
    assert worker.num_starts == 3
    assert observer.told == [
        ("event", "worker-1", "restarted in 1 s (restart 1 of 2)"),
        ("event", "worker-1", "restarted in 2 s (restart 2 of 2)"),
    ]
    assert fake_time.now >= 1 + 2
    events = [json.loads(line) for line in (tmp_path / "launcher.jsonl").read_text().splitlines()]
    assert [(e["event"], e["task"], e["number"], e["delay_secs"], e["ended"]) for e in events] == [
        ("restart", "worker-1", 1, 1.0, "killed (SIGKILL)"),
        ("restart", "worker-1", 2, 2.0, "failed (exit 1)"),
    ]


def test_run_fails_when_the_restarts_are_used_up(supervise):
    worker = ScriptedTask("worker-1", (1, 1), (1, 1))
    outcome = supervise(ScriptedTask("ps-0"), ScriptedTask("worker-0"), worker, max_restarts=1)
    assert (outcome.exit_code, outcome.culprit) == (1, worker)
    assert outcome.problem == "failed (exit 1), after 1 restart"


@pytest.mark.parametrize("max_restarts", [0, 3])
def test_wrong_usage_is_not_restarted(supervise, max_restarts):
    worker = ScriptedTask("worker-1", (1, 2))
    outcome = supervise(ScriptedTask("ps-0"), ScriptedTask("worker-0"), worker, max_restarts=max_restarts)
    assert (outcome.exit_code, outcome.culprit, worker.num_starts) == (2, worker, 1)


def test_whole_job_can_be_restarted(supervise):
    tasks = [ScriptedTask(name, (3, 1), (30, 0)) for name in ("ps-0", "worker-0", "worker-1")]
    assert supervise(*tasks, max_restarts=1).exit_code == 0
    assert [task.num_starts for task in tasks] == [2, 2, 2]


def test_task_that_failed_because_of_another_keeps_its_restarts(supervise):
    tasks = [peer_failure(ScriptedTask(name, (4, 1), (30, 0))) for name in ("ps-0", "worker-0")]
    culprit = ScriptedTask("worker-1", (3, -signal.SIGKILL), (50, 0))
    observer = RecordingObserver()
    assert supervise(*tasks, culprit, observer=observer, max_restarts=1).exit_code == 0
    assert [text for _, _, text in observer.told] == [
        "restarted in 1 s (restart 1 of 1)",
        "another task failed; restarted in 1 s (another task's failure)",
        "another task failed; restarted in 1 s (another task's failure)",
    ]


def test_once_the_chief_is_done_no_task_is_restarted(supervise):
    worker = ScriptedTask("worker-1", (5, -signal.SIGKILL))
    outcome = supervise(ScriptedTask("ps-0"), ScriptedTask("worker-0", (4, 0)), worker, max_restarts=3)
    assert (outcome.exit_code, outcome.culprit, worker.num_starts) == (1, worker, 1)


@pytest.mark.parametrize("max_restarts", [0, 3])
def test_a_worker_that_dies_when_it_is_done_is_neither_a_failure_nor_restarted(supervise, max_restarts):
    worker = that_says(ScriptedTask("worker-1", (5, -signal.SIGKILL)), "training", "done", "evaluating a share")
    outcome = supervise(
        ScriptedTask("ps-0", (22, 0)), ScriptedTask("worker-0", (20, 0)), worker, max_restarts=max_restarts
    )
    assert (outcome.exit_code, worker.num_starts) == (0, 1)


@pytest.mark.parametrize("states", [("training",), ("done", "failed: the run failed after worker-1 was done")])
def test_a_worker_that_is_not_done_or_fails_after_that_makes_the_run_fail(supervise, states):
    worker = that_says(ScriptedTask("worker-1", (5, 1)), *states)
    assert supervise(ScriptedTask("ps-0", (22, 0)), ScriptedTask("worker-0", (20, 0)), worker).culprit is worker


def test_the_chief_may_not_die_when_it_is_done(supervise):
    chief = that_says(ScriptedTask("worker-0", (5, 1)), "done")
    assert supervise(ScriptedTask("ps-0", (22, 0)), chief).culprit is chief


def test_a_worker_that_is_done_and_frozen_is_killed_after_the_run(supervise):
    worker, fake_time = that_says(ScriptedTask("worker-1"), "done"), FakeTime()
    outcome = supervise(ScriptedTask("ps-0", (4, 0)), ScriptedTask("worker-0", (3, 0)), worker, fake_time=fake_time)
    assert outcome.exit_code == 0 and worker.is_asked_to_end
    assert fake_time.now == pytest.approx(ShutdownDeadlines().helper_exit, abs=10 * POLL_SECS)


def test_a_frozen_ps_task_is_named_although_a_worker_that_is_done_is_frozen_too(supervise):
    worker, ps, fake_time = that_says(ScriptedTask("worker-1"), "done"), ScriptedTask("ps-0"), FakeTime()
    outcome = supervise(ps, ScriptedTask("worker-0", (3, 0)), worker, fake_time=fake_time)
    assert (outcome.exit_code, outcome.culprit) == (1, ps)
    assert fake_time.now < 2 * ShutdownDeadlines().ps_exit


def test_restart_that_training_did_not_wait_for_is_not_a_failure(supervise):
    worker = ScriptedTask("worker-1", (3, -signal.SIGKILL), None)
    ps = peer_failure(ScriptedTask("ps-0", (10, 1)))
    outcome = supervise(ps, ScriptedTask("worker-0", (6, 0)), worker, max_restarts=3)
    assert (outcome.exit_code, worker.num_starts, ps.num_starts) == (0, 1, 1)


def test_worker_that_comes_back_after_training_is_asked_to_end(supervise):
    worker = ScriptedTask("worker-1", (3, -signal.SIGKILL), None)
    ps = peer_failure(ScriptedTask("ps-0", (40, 1)))
    outcome = supervise(ps, ScriptedTask("worker-0", (35, 0)), worker, max_restarts=3)
    assert (outcome.exit_code, worker.num_starts, ps.num_starts) == (0, 2, 1)
    assert worker.is_asked_to_end


def test_ps_that_ends_after_all_workers_have_failed_for_good_is_not_restarted(supervise):
    ps = peer_failure(ScriptedTask("ps-0", (3, 1), None))
    chief, worker = ScriptedTask("worker-0", (3, 1)), ScriptedTask("worker-1", (3, 2))
    chief.is_asked_to_end = True  # so that it is not restarted either
    assert supervise(ps, chief, worker, max_restarts=3).exit_code == 2
    assert ps.num_starts == 1


def test_task_waiting_for_its_restart_is_not_started_when_the_run_is_interrupted(supervise):
    observer, fake_time = RecordingObserver(), FakeTime()
    worker = ScriptedTask("worker-1", (1, 1), None)
    culprit = ScriptedTask("worker-0", (3, 2))
    assert (
        supervise(
            ScriptedTask("ps-0"), culprit, worker, observer=observer, fake_time=fake_time, max_restarts=1
        ).exit_code
        == 2
    )
    assert worker.num_starts == 1


@pytest.mark.parametrize("broken", ["update", "on_failure"])
def test_exception_in_the_display_leaves_nothing(supervise, broken):
    observer = RecordingObserver()

    def fail(*args):
        raise BrokenPipeError

    setattr(observer, broken, fail)
    tasks = [ScriptedTask("ps-0"), ScriptedTask("worker-0"), ScriptedTask("worker-1", (5, 1))]
    with pytest.raises(BrokenPipeError):
        supervise(*tasks, observer=observer)
    assert not any(task.is_running for task in tasks)


def test_a_fault_that_cannot_be_ended_leaves_no_task(supervise):
    class Injector:
        secs_to_next = 1.0

        def begin(self):
            pass

        def prepare(self, task):
            pass

        def tick(self, tell):
            pass

        def end(self):
            raise RunError("the link of worker-1 cannot be set")

    tasks = [ScriptedTask("ps-0"), ScriptedTask("worker-0", (1, 1)), ScriptedTask("worker-1")]
    with pytest.raises(RunError, match="the link of worker-1"):
        supervise(*tasks, injector=Injector())
    assert not any(task.is_running for task in tasks)
