"""Figures of saves come from the steps that meet them, and those without a save from times in which steps were made."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from benchmarks import saving
from benchmarks.save_figures import step_figures, until_last_step
from benchmarks.step_rate_run import Window

EVEN = np.arange(10.0, 60.0)


def test_a_slow_step_of_a_save_and_its_rate_are_found():
    slow = np.concatenate([EVEN[EVEN <= 30], [33.0], EVEN[EVEN > 33]])  # a step of 3 s, in place of 3 steps
    figures = step_figures([EVEN, slow], [Window(30.0, 40.0)])
    assert figures.step_ms == 1000
    assert figures.longest_step == 3
    assert figures.lowest_rate == pytest.approx(0.8)
    assert figures.longest_step_control == figures.lowest_rate_control == 1
    assert figures.slow_share == pytest.approx(1 / (10 + 8))  # of the steps of the two workers
    assert figures.slow_share_control == 0


def test_a_long_save_is_compared_with_the_steps_that_there_were_before_it():
    figures = step_figures([EVEN, EVEN], [Window(15.0, 35.0)])
    assert figures.lowest_rate_control == pytest.approx(1)


def test_a_save_that_outlasts_the_steps_is_judged_by_the_steps_that_there_are():
    saves = until_last_step([EVEN, EVEN - 1], [Window(20.0, 30.0), Window(50.0, 80.0)])
    assert saves == [Window(20.0, 30.0), Window(50.0, 58.0)]
    assert step_figures([EVEN, EVEN - 1], saves).lowest_rate == pytest.approx(1)


def test_times_of_an_earlier_save_are_no_control():
    slow = np.concatenate([EVEN[EVEN <= 20], [28.0], EVEN[EVEN > 28]])
    figures = step_figures([slow], [Window(20.0, 28.0), Window(32.0, 42.0)])
    assert figures.longest_step == 8
    assert figures.longest_step_control == figures.lowest_rate_control == 1


def test_without_time_before_a_save_there_is_no_control():
    figures = step_figures([EVEN], [Window(11.0, 21.0)])
    controls = (figures.longest_step_control, figures.slow_share_control, figures.lowest_rate_control)
    assert all(map(math.isnan, controls))


def test_a_save_is_compared_with_the_time_without_it_of_the_same_run():
    row = {field.name: 1.0 for field in dataclasses.fields(saving.SavingRow)}
    row |= {"workload": "table", "update": "sync", "pace": "apart", "longest_step": 6.0, "longest_step_control": 4.0}
    rows = [saving.SavingRow(**row | {"slow_share": share, "slow_share_control": 0.1}) for share in (0.1, 0.2, 0.3)]
    rows.append(saving.SavingRow(**row | {"longest_step_control": math.nan}))  # a run without such a time
    (note,) = saving._notes(rows)
    # Of three runs the lowest and the highest bound the median with a confidence of 1 − 2 / 2³.
    assert "is 1.50 (75 % interval 1.50 to 1.50, runs: 3)" in note
    assert "is 10.00 (75 % interval 0.00 to 20.00, runs: 3)" in note
