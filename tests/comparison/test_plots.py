"""The axes of plots: whole numbers where only these occur, and a scale also for one point."""

from __future__ import annotations

import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ps_trainer.comparison import plots, recorded_run
from tests.comparison.run_folder import report, write


def read(folder, *, staleness=None, steps=(100, 200, 300)):
    reports = [report(secs, step, step, 1.0, 100.0) for secs, step in enumerate(steps, start=1)]
    summary = {"workers": {"0": {"local_steps": steps[-1], "staleness": staleness or {"0": 1}}}}
    return recorded_run.read(write(folder, {"worker-0": reports}, summary=summary))


def axes_of(runs, name):
    (drawn,) = [one for one in plots.draw(runs) if one.name == name]
    drawn.figure.draw_without_rendering()
    return drawn.figure.axes


def labels(axis):
    first, last = axis.get_view_interval()
    shown = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return [label.get_text() for value, label in shown if first <= value <= last]


@pytest.mark.parametrize(
    ("histogram", "expected"),
    [
        ({"0": 9}, ["0", "1", "2", "3"]),
        ({"1": 6, "2": 3}, ["0", "1", "2", "3"]),
        ({"0": 50, "1": 50, "4": 40}, ["0", "1", "2", "3", "4"]),
        ({"0": 500, "1": 500, "17": 10}, ["0", "1", "2 and more"]),  # 10 of 1,010 are a tail
        ({"0": 500, "1": 500, "17": 11}, ["0", "4", "8", "12", "16"]),  # 11 of 1,011 are more than 1 %
        ({"0": 1, "40": 1}, ["0", "4", "8", "12", "16", "20", "24 and more"]),
    ],
)
def test_the_histogram_of_the_staleness_has_whole_numbers_and_no_long_tail(tmp_path, histogram, expected):
    (axes,) = axes_of([read(tmp_path, staleness=histogram)], "staleness")
    assert labels(axes.xaxis) == expected


def test_the_axis_of_the_histogram_ends_with_its_last_bar(tmp_path):
    runs = [read(tmp_path / "a", staleness={"0": 9}), read(tmp_path / "b", staleness={"1": 6, "5": 3})]
    (axes,) = axes_of(runs, "staleness")
    assert axes.get_xlim() == (-0.6, 5.6)


def test_a_single_report_has_axes_from_0_with_whole_steps(tmp_path):
    runs = [read(tmp_path / "a", steps=(1000,)), read(tmp_path / "b", steps=(1001,))]
    steps, examples, secs = axes_of(runs, "loss")
    assert labels(steps.xaxis) == ["0", "200", "400", "600", "800", "1000"]
    assert labels(examples.xaxis) == ["0", "2000", "4000", "6000", "8000", "10000"]
    for axes in (steps, examples, secs):
        assert axes.get_xlim()[0] == 0
        assert axes.get_xlim()[1] > max(line.get_xdata().max() for line in axes.lines)


def test_neighbouring_steps_have_whole_numbers(tmp_path):
    axes, _, _ = axes_of([read(tmp_path, steps=(1000, 1001, 1002))], "loss")
    assert {"1000", "1001", "1002"} <= set(labels(axes.xaxis)) and "." not in "".join(labels(axes.xaxis))


def test_a_continued_run_fills_its_axis(tmp_path):
    axes, _, _ = axes_of([read(tmp_path, steps=(10_100, 10_200, 10_300))], "loss")
    assert axes.get_xlim()[0] > 10_000


def test_the_layout_is_computed_once_for_both_files(tmp_path, monkeypatch):
    laid_out, execute = [], ConstrainedLayoutEngine.execute
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda *given: laid_out.append(given[1]) or execute(*given))
    drawn = next(plots.draw([read(tmp_path)]))
    for form in ("png", "svg"):
        drawn.save(tmp_path / f"loss.{form}", form)
    assert laid_out == [drawn.figure]
