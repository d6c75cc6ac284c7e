from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from ps_trainer.launch import view as view_lib
from ps_trainer.launch.status import Board
from ps_trainer.launch.supervisor import RunOutcome
from tests.launch.fakes import ScriptedTask


class Scene:
    """A board with a ps task and two workers, a time that the test moves, and the printed text."""

    def __init__(self, folder):
        self.folder = folder
        self.now = 0.0
        self.tasks = [ScriptedTask(name) for name in ("ps-0", "worker-0", "worker-1")]
        self.board = Board(self.tasks, folder, max_steps=1000)
        self.output = io.StringIO()
        for task in self.tasks:
            task.start()

    def fake_time(self):
        return self.now

    def create(self, view_type, width=80, **kwargs):
        return view_type(self.board, Console(file=self.output, width=width, **kwargs), self.fake_time)

    def write(self, name, **record):
        with (self.folder / f"{name}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    def lines(self):
        text = self.output.getvalue()
        self.output.seek(0)
        self.output.truncate()
        return text.splitlines()


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path)


def test_plain_view_prints_each_state_once(scene):
    view = scene.create(view_lib.PlainView)
    view.update()
    assert [line.split()[2:] for line in scene.lines()] == [[task.name, "starting"] for task in scene.tasks]
    scene.now = 1.5
    scene.write("worker-0", kind="state", state="waiting for ps-0")
    view.update()
    assert scene.lines() == ["    1.5 s  worker-0     waiting for ps-0"]
    scene.now = 2.0
    view.update()
    assert scene.lines() == []


def test_plain_view_prints_progress_of_a_worker_every_five_seconds(scene):
    view = scene.create(view_lib.PlainView)
    printed_at = []
    for second in range(12):
        scene.now = float(second)
        scene.write("worker-1", kind="train", global_step=10 * second, loss=0.5)
        view.update()
        printed_at += [second for line in scene.lines() if "step " in line]
    assert printed_at == [0, 5, 10]


def test_plain_progress_line_holds_the_numbers(scene):
    view = scene.create(view_lib.PlainView)
    scene.write(
        "worker-0",
        kind="train",
        global_step=120,
        steps_per_sec=55.1,
        examples_per_sec=1763.0,
        loss=0.31,
        staleness_mean=0.98,
    )
    view.update()
    expected = "step 120/1,000  55.1 steps/s  1,763 examples/s  loss 0.310  staleness 0.98"
    assert any(line.endswith(expected) for line in scene.lines())


def test_plain_view_prints_the_last_report_before_the_end(scene):
    view = scene.create(view_lib.PlainView)
    scene.write("worker-0", kind="train", global_step=1)
    view.update()
    scene.lines()
    scene.now = 1.0
    scene.write("worker-0", kind="train", global_step=1000)
    scene.tasks[1].end(0)
    view.update()
    assert [line.split(maxsplit=3)[3] for line in scene.lines()] == ["step 1,000/1,000", "done"]


def test_files_are_read_only_a_few_times_per_second(scene):
    view = scene.create(view_lib.PlainView)
    view.update()
    scene.lines()
    scene.write("worker-0", kind="state", state="training")
    scene.now = view_lib.REFRESH_SECS / 2
    view.update()
    assert scene.lines() == []
    scene.now = view_lib.REFRESH_SECS
    view.update()
    assert len(scene.lines()) == 1


@pytest.mark.parametrize("width", [80, 100])
def test_table_fits_the_terminal_with_its_numbers_whole(scene, width):
    view = scene.create(view_lib.LiveView, width=width)
    scene.write("worker-0", kind="state", state="waiting for ps-0 (localhost:41234) and for much else, as ever")
    scene.write(
        "worker-1",
        kind="train",
        global_step=234567,
        steps_per_sec=1234.5,
        examples_per_sec=123456.0,
        loss=0.01234,
        staleness_mean=12.5,
    )
    scene.board.refresh()
    Console(file=scene.output, width=width).print(view.render())
    lines = scene.lines()
    assert max(len(line) for line in lines) <= width
    worker_0, worker_1 = (next(line for line in lines if name in line) for name in ("worker-0", "worker-1"))
    assert "waiting" in worker_0
    assert worker_1.split()[1:7] == ["starting", "234,567", "1,234", "123,456", "0.01234", "12.50"]


def test_below_the_table_stand_progress_time_left_and_evaluation(scene):
    view = scene.create(view_lib.LiveView)
    scene.write("worker-0", kind="train", wall_time=0.0, global_step=200)
    scene.write("worker-0", kind="train", wall_time=1.0, global_step=250)
    scene.write("worker-0", kind="eval", global_step=250, metrics={"loss": 0.08, "accuracy": 0.979})
    scene.board.refresh()
    Console(file=scene.output, width=80).print(view.render())
    lines = [line.rstrip() for line in scene.lines()]
    bar = "#" * (20 * 250 // 1000)
    assert f"[{bar:<20}] 250/1,000 steps  50.0 steps/s  {(1000 - 250) / 50:.1f} s left" in lines
    assert lines[-1] == "evaluation at step 250: loss 0.08, accuracy 0.979"


def test_live_view_shows_the_cursor_at_the_end(scene):
    with pytest.raises(ZeroDivisionError), scene.create(view_lib.LiveView, force_terminal=True) as view:
        view.update()
        assert "\x1b[?25l" in scene.output.getvalue()
        raise ZeroDivisionError
    assert "\x1b[?25h" in scene.output.getvalue()


@pytest.mark.parametrize(
    "terminal, plain, kind",
    [(True, False, view_lib.LiveView), (True, True, view_lib.PlainView), (False, False, view_lib.PlainView)],
)
def test_table_only_on_a_terminal_and_on_request(scene, monkeypatch, terminal, plain, kind):
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=scene.output, force_terminal=terminal)
    assert type(view_lib.create_view(scene.board, console, plain=plain)) is kind


def test_plain_view_prints_an_event_at_once_after_the_tasks_own_changes(scene):
    view = scene.create(view_lib.PlainView)
    view.update()
    scene.lines()
    scene.now = 0.1  # not yet time for another look
    scene.tasks[2].end(-9)
    view.on_event(scene.tasks[2], "restarted in 1 s (restart 1 of 2)")
    assert scene.lines() == [
        "    0.1 s  worker-1     killed (SIGKILL)",
        "    0.1 s  worker-1     restarted in 1 s (restart 1 of 2)",
    ]


def test_live_view_prints_an_event_above_the_table(scene):
    view = scene.create(view_lib.LiveView, force_terminal=True, height=30)
    with view:
        view.update()
        scene.lines()
        view.on_event(scene.tasks[2], "SIGKILL at step 203, by --fault=kill:worker:1@step=200")
        text = "\n".join(scene.lines())
    assert text.index("SIGKILL at step 203, by --fault=kill:worker:1@step=200") < text.index("stale-")


def test_summary_names_restarted_tasks(scene):
    view = scene.create(view_lib.PlainView)
    scene.tasks[0].end(1)
    scene.tasks[0].start()
    for task in scene.tasks:
        task.end(0)
    view.finish(RunOutcome(exit_code=0), "runs/x")
    assert "restarts: ps-0 1" in scene.lines()


def test_failure_report_shows_markup_and_long_lines_of_the_log_as_they_are(scene, tmp_path):
    task = scene.tasks[1]
    task.log_path = tmp_path / "worker-0.log"
    lines = [f"line {i}" for i in range(99)] + ["[red]x[/red] [/nothing]", "y" * 200]
    task.log_path.write_text("\n".join(lines))
    task.end(1)
    view = scene.create(view_lib.PlainView)
    view.on_failure(RunOutcome(exit_code=1, culprit=task, problem=task.outcome()))
    printed = scene.lines()
    heading = printed.index(f"worker-0: failed (exit 1); last lines of {task.log_path}:")
    assert printed[heading + 1 :] == [f"  {line}" for line in lines[-view_lib.NUM_LOG_LINES :]] + [""]


def test_failure_report_states_that_the_log_is_empty(scene):
    view = scene.create(view_lib.PlainView)
    view.on_failure(RunOutcome(exit_code=1, culprit=scene.tasks[0], problem="killed (SIGKILL)"))
    assert "  (the log is empty)" in scene.lines()


def test_summary_gives_steps_and_rate_of_each_worker_and_the_last_evaluation(scene):
    view = scene.create(view_lib.PlainView)
    for name, steps in (("worker-0", 400), ("worker-1", 600)):
        scene.write(name, kind="train", wall_time=0.0, local_step=0)
        scene.write(name, kind="train", wall_time=10.0, local_step=steps, staleness_mean=1.0)
    scene.write("worker-0", kind="eval", global_step=1000, metrics={"accuracy": 0.978})
    for task in scene.tasks:
        task.end(0)
    scene.now = 65.0
    view.finish(RunOutcome(exit_code=0), "runs/first")
    assert scene.lines()[-4:] == [
        f"worker-0     400 steps  {400 / 10.0} steps/s  staleness 1.00  done",
        f"worker-1     600 steps  {600 / 10.0} steps/s  staleness 1.00  done",
        "evaluation at step 1,000: accuracy 0.978",
        "done after 1:05; files in runs/first",
    ]


def test_a_warning_is_repeated_at_the_end_although_other_states_follow(scene):
    view = scene.create(view_lib.PlainView)
    for state in ("training", "warning: the loss has grown", "evaluating"):
        scene.write("worker-0", kind="state", wall_time=1.0, state=state)
    view.finish(RunOutcome(exit_code=0), "runs/a")
    assert "worker-0: warning: the loss has grown" in scene.lines()


def test_a_note_is_shown_once_although_other_states_follow(scene):
    view = scene.create(view_lib.PlainView)
    for state in ("note: defaults of word2vec: --optimizer=adagrad", "training"):
        scene.write("worker-0", kind="state", wall_time=1.0, state=state)
    for _ in range(2):
        scene.now += 10.0
        view.update()
    assert scene.lines().count("defaults of word2vec: --optimizer=adagrad") == 1


def test_summary_counts_the_steps_before_a_rollback(scene):
    view = scene.create(view_lib.PlainView)
    report = {"kind": "train", "steps_per_sec": 100.0}
    scene.write("worker-0", **report, wall_time=0.0, local_step=500, staleness_mean=0.0)
    scene.write("worker-0", **report, wall_time=60.0, local_step=100, staleness_mean=3.0)
    for task in scene.tasks:
        task.end(0)
    view.finish(RunOutcome(exit_code=0), "runs/first")
    staleness = (500 * 0.0 + 100 * 3.0) / (500 + 100)
    assert f"worker-0     600 steps  100 steps/s  staleness {staleness:.2f}  done" in scene.lines()


@pytest.mark.parametrize(
    "secs, text",
    [(0.0, "0.0 s"), (59.94, "59.9 s"), (59.96, "1:00"), (65.4, "1:05"), (3599.7, "1:00:00"), (7322.0, "2:02:02")],
)
def test_duration(secs, text):
    assert view_lib.duration(secs) == text
