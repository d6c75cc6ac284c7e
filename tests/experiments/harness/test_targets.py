"""Runs up to a target that some seeds miss: their cases, ratios, table cells and points in plots."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from ps_trainer.experiments.harness.cases import figures, find
from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.harness.tables import LowerBound
from ps_trainer.experiments.harness.targets import (
    Samples,
    TargetCase,
    draw_cases,
    draw_course,
    draw_samples,
    ratio,
    target_columns,
)
from tests.experiments.fakes import DieSettings

CAP = 100.0


class Climb(TargetCase):
    """Ways to a summit."""

    is_reached = property(lambda case: [steps is not None for steps in case.runs.figures("steps")])
    steps = figures("steps", missing=CAP)
    sides = property(lambda case: case.runs.setting("sides"))


def climb(steps, heights=(), sides=6):
    """A case whose seeds need these steps; None = not reached."""
    heights = heights or [[0.0]] * len(steps)
    made = [SimpleNamespace(steps=one, heights=own) for one, own in zip(steps, heights, strict=True)]
    return Climb(Results(RunResult(Run("run", DieSettings(sides=sides)), one, 1.0, None, None) for one in made))


def test_a_median_is_open_where_half_of_the_seeds_or_more_miss_the_target():
    assert climb([10.0, None, None]).samples("steps").is_open
    assert not climb([10.0, 20.0, None]).samples("steps").is_open
    assert climb([10.0, None]).samples("steps").is_open


def test_a_table_has_lower_bounds_where_seeds_miss_the_target():
    median, low, high, _ = climb([10.0, None, None]).cells("steps")
    assert (median, high) == (LowerBound(CAP), LowerBound(CAP))
    assert low == LowerBound(pytest.approx(10 + 0.2 * (CAP - 10)))
    assert climb([10.0, 20.0, 30.0]).cells("steps")[:3] == pytest.approx([20.0, 12.0, 28.0])
    median, _, high, _ = climb([10.0, 20.0, None]).cells("steps")
    assert (median, type(high)) == (20.0, LowerBound)


def test_a_table_has_no_geometric_mean_where_a_seed_misses_the_target():
    assert climb([10.0, 40.0]).cells("steps")[-1] == pytest.approx(20.0)
    assert climb([10.0, None]).cells("steps")[-1] is None
    assert [column.header for column in target_columns(".1f", "time", unit="s")] == [
        "time (s)",
        "p10 (s)",
        "p90 (s)",
        "geometric mean (s)",
    ]


def test_a_course_ends_with_the_first_seed():
    case = climb([1.0, 2.0, 3.0], [[0.0, 1.0], [0.0, 2.0, 9.0], [3.0, 3.0, 9.0]])
    median, low, high = case.course("heights")
    assert median.tolist() == [0.0, 2.0]
    assert low.tolist() == pytest.approx([0.0, 1.2]) and high.tolist() == pytest.approx([2.4, 2.8])


def test_a_course_is_drawn_as_a_line_and_a_pale_band_of_its_colour():
    axis = Figure().add_subplot()
    draw_course(axis, np.array([1.0, 2.0]), np.array([[2.0, 3.0], [1.0, 2.0], [4.0, 5.0]]), color="#0072B2")
    (line,), (band,) = axis.get_lines(), axis.collections
    np.testing.assert_array_equal(line.get_xydata(), [[1.0, 2.0], [2.0, 3.0]])
    assert {tuple(point) for point in band.get_paths()[0].vertices} == {(1.0, 1.0), (2.0, 2.0), (1.0, 4.0), (2.0, 5.0)}


def test_a_ratio_needs_two_cases_of_which_one_reaches_the_target():
    reached, lost = climb([10.0, 10.0, 20.0]), climb([None, None, None])
    (measure,) = ratio("n=2", reached, climb([5.0, 10.0, 10.0]), "steps")
    assert (measure.case, measure.value) == ("n=2", pytest.approx((10 * 10 * 20 / (5 * 10 * 10)) ** (1 / 3)))
    assert measure.interval.low < measure.value < measure.interval.high
    for pair in ((lost, lost), (None, reached), (lost, None)):
        assert ratio("n=2", *pair, "steps") == []


def test_a_ratio_to_seeds_that_gave_up_is_a_bound():
    reached, lost = climb([10.0, 10.0, 20.0]), climb([None, None, None])
    (over,), (under,) = ratio("n=2", lost, reached, "steps"), ratio("n=2", reached, lost, "steps")
    assert (over.sign, over.value, over.interval) == ("≥", CAP / 10, (CAP / 20, math.inf))
    assert (under.sign, under.value, under.interval) == ("≤", 10 / CAP, (0.0, 20 / CAP))
    (known,) = ratio("n=2", climb([10.0, 20.0, 30.0, 40.0, None]), climb([10.0] * 5), "steps")
    assert (known.sign, known.value) == ("", 3.0)  # the median of five is known, whatever the last one is


def test_a_case_is_found_by_its_attributes():
    cases = [climb([1.0]), climb([2.0], sides=8)]
    assert find(cases, sides=8, num_lost=0) is cases[1]
    assert find(cases, sides=8, num_lost=1) is None


ARROW = r"$\uparrow$"
CLIMBED, LOST = Samples.known([1.0, 2.0, 3.0]), Samples([math.inf] * 3, [CAP] * 3)


def drawn(samples):
    """The lines with points of an axis with samples, and the texts of its legend."""
    axis = Figure().add_subplot()
    draw_samples(axis, samples, fmt="o-", color="#0072B2", label="arm")
    axis.legend()
    lines = [line for line in axis.get_lines() if len(line.get_xydata())]
    return lines, [text.get_text() for text in axis.get_legend().get_texts()]


def test_an_arrow_in_the_colour_of_its_arm_marks_a_lower_bound_and_is_joined_to_nothing():
    (line, *_, arrows), legend = drawn({1: CLIMBED, 2: LOST})
    np.testing.assert_array_equal(line.get_xydata(), [[1, 2.0]])
    np.testing.assert_array_equal(arrows.get_xydata(), [[2, CAP]])
    assert (arrows.get_marker(), arrows.get_color()) == (ARROW, "#0072B2")
    assert legend == ["or more: runs gave up", "arm"]


def test_a_small_arrow_marks_the_end_of_a_bar_that_is_a_lower_bound():
    (line, *_, arrows), legend = drawn({1: Samples([1.0, 2.0, math.inf], [1.0, 2.0, CAP])})
    np.testing.assert_array_equal(line.get_xydata(), [[1, 2.0]])
    np.testing.assert_allclose(arrows.get_xydata(), [[1, 2 + 0.8 * (CAP - 2)]])
    assert (arrows.get_markersize(), legend) == (4.5, ["or more: runs gave up", "arm"])


def test_cases_are_drawn_at_their_settings():
    axis = Figure().add_subplot()
    draw_cases(axis, [climb([1.0, 2.0, 3.0]), climb([None] * 3, sides=8)], "sides", "steps", fmt="o-", label="arm")
    shown = [line.get_xydata().tolist() for line in axis.get_lines()]
    assert shown[0] == [[6, 2.0]] and [[8, CAP]] in shown


def test_without_lower_bounds_there_are_no_arrows():
    lines, legend = drawn({1: CLIMBED, 2: Samples.known([4.0] * 3)})
    assert {line.get_marker() for line in lines} <= {"o", "_", "|"} and legend == ["arm"]
