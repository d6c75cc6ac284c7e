"""Plots mark the runs that gave up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.staleness_quality import plots
from ps_trainer.experiments.staleness_quality.cases import StaleTraining
from ps_trainer.experiments.staleness_quality.records import Kind, RateChoice

CAP = 600


def case(tau, updates, depth=4):
    settings = SimpleNamespace(kind=Kind.CONSTANT, tau=tau, depth=depth, optimizer="sgd", choice=RateChoice.FIXED)
    run = Run(key="k", level=Level.VIRTUAL, settings=settings)
    figures = [SimpleNamespace(target_version=None if one == CAP else one, cap=CAP) for one in updates]
    return StaleTraining(Results(RunResult(run, one, 1.0, None, None) for one in figures))


@pytest.mark.parametrize(("draw", "unit"), [(plots._draw_depths, 300), (plots._draw_kinds, 1)])
def test_a_case_of_which_most_runs_gave_up_is_an_unconnected_arrow(draw, unit):
    figure = Figure()
    draw(figure, [case(0, [300] * 3), case(4, [450, 450, CAP]), case(8, [450, CAP, CAP])])
    (axis,) = figure.axes
    joined = [line for line in axis.get_lines() if line.get_linestyle() == "-" and len(line.get_xdata())]
    assert {tau for line in joined for tau in line.get_xdata()} == {0, 4}
    arrows = [
        line for line in axis.get_lines() if line.get_marker() == r"$\uparrow$" and line.get_linestyle() == "None"
    ]
    points = {point for line in arrows for point in zip(line.get_xdata(), line.get_ydata(), strict=True)}
    assert (8, CAP / unit) in points
    assert "or more: runs gave up" in [text.get_text() for text in axis.get_legend().get_texts()]


def test_without_such_a_case_the_legend_does_not_mention_it():
    figure = Figure()
    plots._draw_depths(figure, [case(0, [300] * 3), case(4, [450] * 3)])
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["4 hidden layers"]
