"""The faults of a drill, on tasks without processes and with a time that the test moves."""

from __future__ import annotations

import json
import signal

import pytest

from ps_trainer.disturbances import due_faults
from ps_trainer.disturbances import faults as faults_lib
from ps_trainer.disturbances.due_faults import DueFaults, Raise
from ps_trainer.launch.event_log import EventLog
from ps_trainer.launch.injector import Injector
from ps_trainer.launch.status import Board
from tests.launch.fakes import ScriptedTask

CLUSTER = faults_lib.ClusterShape(num_ps=1, num_workers=2, has_links=True)


class Drill:
    """An injector with its cluster of three tasks."""

    def __init__(self, folder, *texts):
        self.folder = folder
        self.now = 0.0
        self.told = []
        self.links = []
        self.tasks = {name: ScriptedTask(name, None, None, None) for name in ("ps-0", "worker-0", "worker-1")}
        self.injector = Injector(
            faults_lib.parse_all(texts, CLUSTER),
            tasks=list(self.tasks.values()),
            board=Board(list(self.tasks.values()), folder, max_steps=None),
            log=EventLog(folder, wall_time_fn=lambda: 1000.0 + self.now),
            set_link=lambda task, *, is_up: self.links.append((task, is_up)),
            time_fn=lambda: self.now,
        )
        self.injector.begin()
        for task in self.tasks.values():
            task.start()

    def record(self, task, /, **values):
        with (self.folder / f"{task}.jsonl").open("a") as file:
            file.write(json.dumps({"wall_time": 1.0, **values}) + "\n")

    def reach(self, step):
        self.record("worker-0", kind="reached", global_step=step)
        self.tick()

    def tick(self, at=None):
        self.now = self.now if at is None else at
        self.injector.tick(lambda task, text: self.told.append((task.name, text)))

    def events(self):
        path = self.folder / "launcher.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]


@pytest.fixture
def drill(tmp_path):
    return lambda *texts: Drill(tmp_path, *texts)


def test_kill_comes_when_the_first_worker_has_reached_the_step(drill):
    run = drill("kill:worker:1@step=200")
    run.reach(199)
    assert run.tasks["worker-1"].signals == []
    run.reach(203)
    assert run.tasks["worker-1"].signals == [signal.SIGKILL]
    assert run.told == [("worker-1", "SIGKILL at step 203, by --fault=kill:worker:1@step=200")]
    assert run.events() == [
        {
            "wall_time": 1000.0,
            "kind": "event",
            "event": "kill",
            "task": "worker-1",
            "global_step": 203,
            "fault": "kill:worker:1@step=200",
        }
    ]
    run.reach(300)
    assert len(run.tasks["worker-1"].signals) == 1


def test_a_reached_step_counts_even_when_training_rolls_back(drill):
    run = drill("kill:worker:1@step=200")
    run.tasks["worker-1"].poll()
    run.tasks["worker-1"].end(1)
    run.reach(200)
    run.reach(150)
    assert run.tasks["worker-1"].signals == []
    run.tasks["worker-1"].start()
    run.tick()
    assert run.tasks["worker-1"].signals == [signal.SIGKILL]


def test_time_counts_from_the_start_of_the_tasks(drill):
    run = drill("term:ps:0@after_secs=3")
    run.tick(at=2.9)
    assert run.tasks["ps-0"].signals == []
    run.tick(at=3.0)
    assert run.tasks["ps-0"].signals == [signal.SIGTERM]
    assert run.told == [("ps-0", "SIGTERM, by --fault=term:ps:0@after_secs=3")]


def test_frozen_task_continues_after_its_time(drill):
    run = drill("freeze:ps:0@step=5,secs=2")
    run.reach(5)
    assert run.injector.secs_to_next == 2
    run.tick(at=1.9)
    assert run.tasks["ps-0"].signals == [signal.SIGSTOP]
    run.tick(at=2.0)
    assert run.tasks["ps-0"].signals == [signal.SIGSTOP, signal.SIGCONT]
    assert [event["event"] for event in run.events()] == ["freeze", "continue"]
    assert run.injector.secs_to_next == float("inf")


def test_task_killed_while_it_was_frozen_does_not_continue(drill):
    run = drill("freeze:ps:0@step=5,secs=2", "kill:ps:0@step=6")
    run.reach(5)
    run.reach(6)
    run.tasks["ps-0"].poll()
    run.tasks["ps-0"].start()
    run.tick(at=2.0)
    assert run.tasks["ps-0"].signals == [signal.SIGSTOP, signal.SIGKILL]
    assert [event["event"] for event in run.events()] == ["freeze", "kill"]


def test_slow_ps_is_stopped_half_of_the_time(drill):
    run = drill("slow_ps:0@step=5,ms=100,secs=0.35")
    run.reach(5)
    for at in (0.05, 0.11, 0.15, 0.22, 0.33, 0.36, 0.5):
        run.tick(at=at)
    stop, go = signal.SIGSTOP, signal.SIGCONT
    assert run.tasks["ps-0"].signals == [stop, go, stop, go, go]
    assert [event["event"] for event in run.events()] == ["slow", "even"]


def test_cut_link_is_restored(drill):
    run = drill("cut:worker:1@step=5,secs=2")
    run.reach(5)
    assert run.links == [("worker-1", False)]
    run.tick(at=2.0)
    assert run.links == [("worker-1", False), ("worker-1", True)]
    assert [event["event"] for event in run.events()] == ["cut", "restore"]


def test_at_the_end_all_faults_are_undone_and_no_further_one_occurs(drill):
    run = drill("freeze:ps:0@step=5", "cut:worker:1@step=5", "kill:worker:0@step=9")
    run.reach(5)
    run.injector.end()
    assert run.tasks["ps-0"].signals == [signal.SIGSTOP, signal.SIGCONT]
    assert run.links[-1] == ("worker-1", True)
    run.reach(9)
    assert run.tasks["worker-0"].signals == []
    assert [result.as_json() for result in run.injector.report()] == [
        {"fault": "freeze:ps:0@step=5", "task": "ps-0", "global_step": 5},
        {"fault": "cut:worker:1@step=5", "task": "worker-1", "global_step": 5},
        {"fault": "kill:worker:0@step=9", "task": "worker-0", "missed": "the run ended before"},
    ]


def test_fault_waits_for_a_task_that_is_down(drill):
    run = drill("kill:worker:1@step=5")
    run.tasks["worker-1"].end(-signal.SIGKILL)
    run.reach(5)
    assert run.events() == []
    run.tasks["worker-1"].start()
    run.tick()
    assert run.tasks["worker-1"].signals == [signal.SIGKILL]


def test_two_kills_of_a_task_that_are_due_together_hit_two_processes(drill):
    run = drill("kill:worker:1@step=5", "kill:worker:1@step=6")
    run.reach(9)
    run.tick()
    assert len(run.events()) == 1
    run.tasks["worker-1"].poll()
    run.tick()
    run.tasks["worker-1"].start()
    run.tick()
    assert len(run.events()) == 2


def test_task_that_is_done_misses_its_fault(drill):
    run = drill("kill:worker:1@step=5")
    run.tasks["worker-1"].end(0)
    run.reach(5)
    assert [event["event"] for event in run.events()] == ["missed"]
    assert run.injector.report()[0].missed == "the task had ended before"


def test_worker_receives_its_order_to_raise_until_it_has_raised(drill):
    run = drill("raise:worker:1@step=100", "kill:ps:0@step=50")
    asked = []
    for name in ("worker-0", "worker-1", "ps-0"):
        run.injector.prepare(run.tasks[name])
        asked.append((run.tasks[name].env or {}).get(due_faults.VARIABLE))
    due = Raise(100, "raise:worker:1@step=100")
    assert [DueFaults.from_text(text) for text in asked[:2]] == [DueFaults((50, 100)), DueFaults((50, 100), (due,))]
    assert asked[2] is None
    run.record("worker-1", kind="event", event="raise", task="worker-1", global_step=101, fault=due.text)
    run.injector.prepare(run.tasks["worker-1"])
    assert DueFaults.from_text(run.tasks["worker-1"].env[due_faults.VARIABLE]).raises == ()
    assert run.injector.report()[0].as_json() == {"fault": due.text, "task": "worker-1", "global_step": 101}
