"""Schedules: properties of every rule, and the pushes of each update."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.simulation import simulate
from ps_trainer.simulation.rules import schedule_table
from ps_trainer.simulation.schedule import Schedule, ScheduleBlock, as_steps, concatenate
from tests.simulation.runs import cluster_of, scripted

FIELDS = {"model_bytes": 100, "worker_bytes_per_sec": 5000.0, "ps_bytes_per_sec": 20_000.0, "ps_secs": 0.001}


@pytest.mark.parametrize("update", schedule_table.RULES)
@pytest.mark.parametrize(
    "fields", [{}, FIELDS, {"start_secs": 3.0}], ids=["free", "with transfers", "one after the other"]
)
def test_steps_follow_each_other_and_read_the_present_version(update, fields):
    schedule = simulate.simulate(cluster_of("lognormal", 5, **fields), update, num_updates=60)
    steps = schedule.steps
    assert schedule.num_updates == 60
    assert (np.diff(steps.t_push_done) >= 0).all() and (np.diff(schedule.update_secs) > 0).all()
    assert (np.minimum(steps.t_pull_done, steps.t_compute_done) >= steps.t_start).all()
    assert (steps.t_push_done >= np.maximum(steps.t_pull_done, steps.t_compute_done)).all()
    # A read returns the updates that were made by its time.
    pulled_at = steps.t_compute_done if update == "easgd" else steps.t_start
    made = np.searchsorted(schedule.update_secs, pulled_at, side="right")
    assert (steps.version <= made).all()
    for worker in range(5):
        own = steps.select(steps.worker == worker)
        assert own.local_step.tolist() == list(range(len(own.worker)))
        assert (own.t_start[1:] >= own.t_push_done[:-1]).all()
        assert (np.diff(own.version) >= 0).all()


@pytest.mark.parametrize("update", schedule_table.RULES)
def test_each_update_is_made_by_the_last_of_its_pushes(update):
    schedule = simulate.simulate(cluster_of("lognormal", 5), update, num_updates=60)
    for secs, pushes in zip(schedule.update_secs, schedule.pushes_by_update(), strict=True):
        assert len(pushes) >= 1
        assert schedule.steps.t_push_done[pushes].max() == secs


def test_pushes_of_an_update_are_in_the_order_of_arrival():
    schedule = scripted("backup", ["backup_workers=1"], ("1", "2.1", "3.5"), 2)
    assert [pushes.tolist() for pushes in schedule.pushes_by_update()] == [[0, 1], [2, 4]]


def test_even_workers_that_begin_at_once_stay_in_step_and_others_use_both_directions():
    # A pull, a push and a computation take 1 s each, alone. Two workers in step share each direction: 2 s for a pull.
    link = {"model_bytes": 1, "ps_bytes_per_sec": 1.0}
    ends = {start: scripted("async", [], ("1", "1"), 4, start_secs=start, **link).update_secs for start in (0.0, 2.0)}
    assert ends[0.0].tolist() == [5, 5, 10, 10]
    assert ends[2.0].tolist() == [3, 4, 6, 7]


def test_the_same_seed_gives_the_same_schedule_and_another_does_not():
    first, again, other = (
        simulate.simulate(cluster_of("exp", 4, seed=seed), "async", num_updates=50).update_secs for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_empty_block_is_a_block_as_well():
    empty = concatenate([ScheduleBlock(as_steps([]), np.empty(0))])
    assert len(empty.steps.worker) == 0
    assert Schedule(2, *concatenate([])).num_updates == 0
