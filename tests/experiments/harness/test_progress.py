"""The estimate of the time left, and the display."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.progress import LiveProgress, PlainProgress, TimeLeft, create_progress
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Run
from tests.experiments.fakes import FakeTime


def run(key, secs):
    return Run(key=key, level=Level.VIRTUAL, settings=Record(), expected_secs=secs)


def console(is_terminal=False):
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=100)


def text(shown):
    return shown.file.getvalue()


def test_before_the_first_run_the_time_left_is_the_expected_time():
    assert TimeLeft(30.0, FakeTime()).secs == 30.0


def test_the_time_left_follows_the_pace_of_earlier_runs_as_if_a_tenth_of_the_time_had_been_as_expected():
    fake_time = FakeTime()
    left = TimeLeft(10.0 + 40.0 + 50.0, fake_time)
    left.begin(10.0)
    fake_time.now += 4.0
    assert left.secs == 100.0 - 4.0
    fake_time.now += 26.0
    left.end()  # took 30 s where 10 s were expected: with the tenth, 40 s where 20 s were
    assert left.secs == 2 * (40.0 + 50.0)
    left.begin(40.0)
    fake_time.now += 15.0
    assert left.secs == 2 * (40.0 + 50.0) - 15.0
    fake_time.now += 1000.0  # an overdue run is expected to end at once
    assert left.secs == 2 * 50.0


def test_a_first_run_that_is_short_does_not_decide_about_all_others():
    fake_time = FakeTime()
    left = TimeLeft(1000.0, fake_time)
    left.begin(10.0)
    fake_time.now += 1.0
    left.end()
    assert left.secs == pytest.approx(990.0 * 101.0 / 110.0)


def test_plain_lines_report_finished_runs_and_the_time_left():
    fake_time, out = FakeTime(), console()
    with PlainProgress(out, fake_time) as progress:
        progress.plan([run("a", 10.0), run("b", 20.0)])
        progress.begin("dice", run("a", 10.0))
        fake_time.now += 5.0
        progress.end("dice", run("a", 10.0), "CPU-contended")
        progress.begin("dice", run("b", 20.0))
        fake_time.now += 70.0
        progress.end("dice", run("b", 20.0))
    assert text(out).splitlines() == [
        "2 runs to do, about 30.0 s",
        "[1/2] dice a  5.0 s  CPU-contended  12.3 s left",
        "[2/2] dice b  1:10",
    ]


def test_the_bar_shows_the_current_run_and_the_time_left():
    fake_time, out = FakeTime(), console(is_terminal=True)
    with LiveProgress(out, fake_time) as progress:
        progress.plan([run("a", 10.0), run("b", 20.0)])
        progress.begin("dice", run("a", 10.0))
        fake_time.now += 5.0
        progress.end("dice", run("a", 10.0))
        progress.begin("dice", run("b", 20.0))
    shown = text(out)
    assert "1/2 runs" in shown
    assert "dice b" in shown
    assert "12.3 s left" in shown  # 20 s at 8 for 13 expected


@pytest.mark.parametrize(
    ("is_terminal", "plain", "kind"),
    [(True, False, LiveProgress), (True, True, PlainProgress), (False, False, PlainProgress)],
)
def test_only_a_terminal_has_the_bar(is_terminal, plain, kind):
    assert type(create_progress(console(is_terminal), plain=plain)) is kind
