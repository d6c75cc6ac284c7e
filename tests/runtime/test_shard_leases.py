"""Leases of shards: handed out, returned, and restored from the counts alone."""

from __future__ import annotations

import numpy as np
import pytest

from ps_trainer.data.pipeline.shard_plan import Coverage, Lease, ShardPlan
from ps_trainer.runtime import shard_leases
from ps_trainer.runtime.run_record import LeaseRefusal
from ps_trainer.runtime.shard_leases import LeaseBook

WAIT, END = LeaseRefusal.WAIT, LeaseRefusal.END

PLAN = ShardPlan(num_examples=24, batch_size=4, num_shards=3, num_epochs=2, seed=0)  # shards of two batches


class Leasing:
    """A lease book with its counts, and workers that train on what they are given."""

    def __init__(self, plan=PLAN, seen=None, epoch=0, **options):
        self.plan = plan
        self.seen = np.zeros((plan.rows, plan.num_shards * plan.max_batches), np.int8) if seen is None else seen
        self.begun = []
        self.book = LeaseBook(plan, read=self.seen.copy, begin_epoch=self._begin, epoch=epoch, **options)

    def _begin(self, epoch):
        self.begun.append(epoch)
        self.seen[epoch % self.plan.rows] = 0

    def train(self, lease, num_batches=None):
        start = lease.shard * self.plan.max_batches
        end = start + self.plan.num_batches(lease.shard)
        self.seen[lease.epoch % self.plan.rows, start + lease.first : end][:num_batches] += 1

    def work_off(self, worker=0):
        """Trains on every shard that a worker is given; returns how the worker ended."""
        while isinstance(lease := self.book.take(worker), Lease):
            self.train(lease)
        return lease


def test_one_worker_is_given_every_shard_of_every_epoch_once():
    leasing = Leasing()
    given = []
    while isinstance(lease := leasing.book.take(0), Lease):
        given.append(lease)
        leasing.train(lease)
    assert lease == END
    assert [lease.epoch for lease in given] == [0, 0, 0, 1, 1, 1]
    assert [lease.shard for lease in given] == PLAN.order(0) + PLAN.order(1)
    assert (leasing.seen == 1).all()


def test_two_workers_never_hold_the_same_shard():
    leasing = Leasing()
    held = [leasing.book.take(worker % 2) for worker in range(6)]
    assert len(set(held)) == 6


def test_the_next_epoch_begins_while_shards_of_this_one_are_held():
    leasing = Leasing()
    held = [leasing.book.take(0) for _ in range(3)]
    assert {lease.epoch for lease in held} == {0}
    assert leasing.book.take(1).epoch == 1


def test_a_lost_workers_shard_goes_to_the_next_from_the_first_uncounted_batch():
    leasing = Leasing()
    lost = leasing.book.take(1)
    leasing.train(lost, num_batches=1)
    leasing.book.give_back(1)
    assert leasing.book.take(0) == lost._replace(first=1)
    leasing.book.give_back(0)
    assert leasing.work_off(0) == END
    assert (leasing.seen == 1).all()


def test_a_finished_shard_is_not_returned():
    leasing = Leasing()
    done = leasing.book.take(1)
    leasing.train(done)
    leasing.book.give_back(1)
    others = [leasing.book.take(0) for _ in range(5)]
    assert done not in others


def test_a_worker_without_a_shard_waits_for_those_of_others_and_takes_them_over():
    leasing = Leasing()
    held = leasing.book.take(1)
    assert leasing.work_off(0) == WAIT
    leasing.book.give_back(1)
    assert leasing.book.take(0) == held


def test_no_worker_waits_while_all_others_wait_for_it():
    leasing = Leasing(may_wait=False)
    leasing.book.take(1)
    assert leasing.work_off(0) == END


def test_no_worker_waits_for_itself():
    leasing = Leasing(PLAN._replace(num_epochs=1))
    for _ in range(3):
        leasing.book.take(0)
    assert leasing.book.take(0) == END


class TestBatchesThatAreNotPushed:
    """Workers train on the last batch of each shard, but push it only together with the next batch."""

    def leasing(self, num_workers):
        leasing = Leasing(PLAN._replace(num_epochs=1))
        for worker in range(num_workers):
            leasing.train(leasing.book.take(worker), num_batches=1)
        for _ in range(num_workers, PLAN.num_shards):
            leasing.train(leasing.book.take(0))
        return leasing

    def test_a_worker_waits_while_another_trains(self):
        book = self.leasing(2).book
        assert [book.take(0, is_idle=True), book.take(1), book.take(0, is_idle=True)] == [WAIT] * 3

    def test_when_all_wait_one_ends_and_another_trains_on_its_rest(self):
        leasing = self.leasing(2)
        book = leasing.book
        assert [book.take(0, is_idle=True), book.take(1, is_idle=True)] == [WAIT, END]
        lease = book.take(0, is_idle=True)
        assert lease.first == 1
        assert book.take(0, is_idle=True) == END

    def test_alone_it_ends(self):
        leasing = self.leasing(1)
        assert leasing.book.take(0, is_idle=True) == END
        assert (leasing.seen == 0).sum() == 1


@pytest.mark.parametrize("num_batches", range(13))
def test_a_restarted_ps_task_knows_the_remaining_batches_from_the_counts(num_batches):
    leasing = Leasing()
    for _ in range(num_batches // 2):
        leasing.train(leasing.book.take(0))
    if num_batches % 2:
        leasing.train(leasing.book.take(1), num_batches=1)
    epoch = shard_leases.newest_epoch(leasing.seen, np.zeros(PLAN.rows, np.int64))
    again = Leasing(seen=leasing.seen, epoch=epoch)
    assert again.work_off() == END
    assert (again.seen == 1).all()


def test_an_epoch_beyond_the_rows_begins_when_the_epoch_in_its_row_is_over():
    plan = PLAN._replace(num_epochs=None)
    leasing = Leasing(plan)
    late = leasing.book.take(1)
    while isinstance(lease := leasing.book.take(0), Lease):
        leasing.train(lease)
    assert lease == WAIT
    assert leasing.begun == list(range(1, plan.rows))
    leasing.train(late)
    assert leasing.book.take(0).epoch == plan.rows


def test_coverage_names_epochs_and_sums_up_those_whose_row_was_reused():
    plan = PLAN._replace(num_epochs=None)
    seen = np.ones((plan.rows, 6), np.int8)
    seen[2] = 0
    seen[2, 0] = 1
    recycled = np.zeros(plan.rows, np.int64)
    recycled[:3] = 1
    values = {shard_leases.COUNTS: seen, shard_leases.RECYCLED: recycled, shard_leases.RETIRED: np.array([0, 71, 1, 0])}
    coverage = shard_leases.coverage(plan, values)
    once = Coverage(never=0, once=24, twice=0, more=0)
    assert list(coverage) == ["0-2", *(str(epoch) for epoch in range(3, plan.rows + 3))]
    assert coverage["0-2"] == Coverage(never=0, once=71, twice=1, more=0)
    assert coverage["3"] == once
    assert coverage[str(plan.rows + 2)] == Coverage(never=20, once=4, twice=0, more=0)


def test_coverage_of_a_run_without_a_step_is_zero():
    values = {
        shard_leases.COUNTS: np.zeros((2, 6), np.int8),
        shard_leases.RECYCLED: np.zeros(2, np.int64),
        shard_leases.RETIRED: np.zeros(4, np.int64),
    }
    assert shard_leases.coverage(PLAN, values) == {"0": Coverage(never=24, once=0, twice=0, more=0)}
