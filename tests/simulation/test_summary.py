"""Figures of a schedule, compared with one computed by hand and with plain NumPy on the whole schedule."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ps_trainer.simulation import report
from ps_trainer.simulation.schedule import ScheduleBlock
from ps_trainer.simulation.summary import WARMUP_SHARE, Summariser, summarise_schedule
from tests.simulation.runs import by_events, cluster_of, scripted


def test_figures_of_a_small_run_equal_those_by_hand():
    # backup, one of three: updates at 2.1, 4.2, 6.3, 8.4 (as in test_rules); worker 2 is dropped at 3.5 and 7.
    summary = summarise_schedule(scripted("backup", ["backup_workers=1"], ("1", "2.1", "3.5"), 4))
    assert (summary.num_updates, summary.num_warmup_updates) == (4, 0)
    assert summary.duration_secs == pytest.approx(4 * 2.1)
    assert summary.update_secs == pytest.approx((2.1, 2.1, 2.1, 2.1))
    assert summary.used.tolist() == [4, 4, 0]
    assert summary.dropped.tolist() == [0, 0, 2]
    assert summary.dropped_share == pytest.approx(2 / 10)
    assert summary.updates_per_sec == pytest.approx(1 / 2.1)
    assert summary.gradients_per_sec == pytest.approx(2 / 2.1)
    # Worker 0 waits 1.1 s of each 2.1 s from its first push to its last; its first second had no wait.
    assert summary.wait_share == pytest.approx([3 * 1.1 / (3 * 2.1 + 1), 0, 0])
    assert summary.staleness.tolist() == [8]
    assert summary.mean_staleness[:2].tolist() == [0, 0] and np.isnan(summary.mean_staleness[2])


@pytest.mark.parametrize("num_blocks", [1, 7])
def test_blocks_give_the_figures_of_the_whole(num_blocks):
    schedule = by_events(cluster_of("exp", 6), "drop_stale", ["staleness=8"], 1000)
    summariser = Summariser(6, 1000)
    cuts = np.linspace(0, len(schedule.steps.worker), num_blocks + 1).astype(int)
    for first, last in zip(cuts[:-1], cuts[1:], strict=True):
        steps = schedule.steps.select(slice(first, last))
        since = schedule.steps.t_push_done[first - 1] if first else 0.0
        made = (schedule.update_secs > since) & (schedule.update_secs <= steps.t_push_done[-1])
        summariser.add(ScheduleBlock(steps, schedule.update_secs[made]))
    summary = summariser.result()

    num_warmup = int(WARMUP_SHARE * 1000)
    begin = schedule.update_secs[num_warmup - 1]
    warm = schedule.steps.select(schedule.steps.t_push_done > begin)
    used = warm.staleness[warm.update >= 0]
    intervals = np.diff(schedule.update_secs)[num_warmup - 1 :]
    assert summary.num_updates == 1000 - num_warmup == len(used)
    assert summary.update_secs == pytest.approx((intervals.mean(), *np.percentile(intervals, [10, 50, 90])))
    assert summary.duration_secs == pytest.approx(schedule.update_secs[-1] - begin)
    assert summary.staleness.tolist() == np.bincount(used).tolist()
    assert summary.staleness_mean() == pytest.approx(used.mean())
    assert summary.staleness_deviation() == pytest.approx(used.std())
    for percent in (50, 99):
        assert summary.staleness_percentile(percent) == np.percentile(used, percent, method="inverted_cdf")
    assert summary.dropped.sum() == (warm.update < 0).sum() > 0
    assert summary.step_secs.mean == pytest.approx(0.1, rel=0.05)  # without waits a step is its computation


def test_steps_without_a_push_are_counted_separately():
    summary = summarise_schedule(scripted("accumulate", ["steps=4"], ("1", "1.7"), 10))
    assert summary.local.sum() == pytest.approx(3 * summary.used.sum(), abs=3 * 2)
    assert summary.used.sum() == summary.num_updates


def test_text_has_the_figures_and_a_bar_per_staleness():
    summary = summarise_schedule(by_events(cluster_of("exp:mean_ms=1000", 3), "async", [], 2000))
    text = report.describe(summary)
    assert "1600 updates, without the first 400" in text
    assert "1600 used, 0 dropped (0.0%)" in text
    assert f"mean {summary.staleness_mean():.4g}, p50 1" in text
    bars = [line.split() for line in text.splitlines() if line.split()[1].endswith("%")]
    assert sum(float(bar[1].rstrip("%")) for bar in bars) == pytest.approx(100, abs=1)
    assert max(len(bar[2]) for bar in bars if len(bar) > 2) == 40


def test_text_names_local_steps_only_if_there_are_any():
    assert "local steps" in report.describe(summarise_schedule(scripted("easgd", ["period=2"], ("1", "2"), 5)))
    assert "local steps" not in report.describe(summarise_schedule(scripted("async", [], ("1", "2"), 5)))


def test_figures_are_json():
    figures = report.to_json(summarise_schedule(scripted("async", [], ("1", "2.4"), 5)))
    assert json.loads(json.dumps(figures, allow_nan=False))["staleness"]["max"] == 2
