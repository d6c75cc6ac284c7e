"""Counting context switches."""

from __future__ import annotations

import pytest

from ps_trainer.experiments.toolkit.context_switches import SwitchWatch
from tests.experiments.fakes import FakeTime


def test_readings_are_interpolated(tmp_path):
    fake_time, stat = FakeTime(), tmp_path / "stat"
    watch = SwitchWatch(fake_time, stat)
    for second, count in ((0, 1000), (2, 1400), (4, 2400)):
        fake_time.now = 100.0 + second
        stat.write_text(f"cpu 1 2 3\nctxt {count}\nbtime 5\n")
        watch.sample()
    assert watch.between(101.0, 103.0) == pytest.approx((1400 + 2400) / 2 - (1000 + 1400) / 2)


def test_where_the_system_has_no_counts_there_is_no_number(tmp_path):
    with SwitchWatch(stat=tmp_path / "missing") as watch:
        pass
    assert watch.between(0.0, 1.0) is None
