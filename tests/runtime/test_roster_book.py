"""A ps task's record of the workers, without a server; `test_ps.py` has it with one."""

from __future__ import annotations

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.runtime.roster_book import RosterBook
from ps_trainer.runtime.run_record import AliveMessage, Status, StatusMessage
from tests.runtime.fakes import entry

BEAT_SECS, RECOVER_SECS = 30.0, 120.0


class Book:
    """A roster of run "r", with a time that the test moves."""

    def __init__(self):
        self.now = 0.0
        self.published = []
        self.freed = []
        config = TrainConfig(heartbeat_timeout_secs=BEAT_SECS, recover_timeout_secs=RECOVER_SECS)
        self.roster = RosterBook(
            config,
            publish=lambda roster: self.published.append(dict(roster.workers)),
            free_shards=self.freed.append,
            time_fn=lambda: self.now,
        )
        self.roster.begin("r")

    def report(self, worker, status, **fields):
        self.roster.note_message(worker)
        self.roster.report(worker, entry(status, **fields))

    def lose_silent(self):
        silent = list(self.roster.find_silent())
        for worker, reason in silent:
            self.roster.report(worker, entry("lost", reason=reason), is_presumed=True)
        return silent

    def pass_time(self, secs):
        """Moves the time in steps that do not look like a suspension of the process."""
        for _ in range(int(secs)):
            self.now += 1.0
            assert not list(self.roster.find_silent())

    def status(self, worker):
        return self.roster.workers[worker].status


@pytest.fixture
def book():
    return Book()


def test_each_report_is_published_and_frees_the_shards_of_a_worker_that_does_not_train(book):
    for status in ("joined", "training", "done"):
        book.report(1, status)
    assert [workers[1].status for workers in book.published] == [Status.JOINED, Status.TRAINING, Status.DONE]
    assert book.freed == [1, 1]
    assert book.roster.final() == {1} and book.roster.describe() == "worker 1 done"


def test_a_heartbeat_disproves_a_presumed_loss_only(book):
    book.report(0, "training", joining=2)
    book.report(1, "training")
    book.pass_time(BEAT_SECS)
    book.roster.note_message(1)
    book.now += 1.0
    ((worker, reason),) = book.lose_silent()
    assert (worker, reason[:26]) == (0, "no sign of life for 31 s: ")
    book.report(1, "lost", reason="ps-1 was lost")
    for index in (0, 1):
        book.roster.bring_back(index)
    assert (book.status(0), book.status(1)) == (Status.TRAINING, Status.LOST)
    assert book.roster.workers[0].joining == 2


def test_a_suspension_of_the_ps_task_is_not_a_silence_of_the_workers(book):
    book.report(0, "training")
    book.now += 1000.0
    assert not book.lose_silent()


def test_a_loss_keeps_its_first_reason_and_does_not_follow_an_end(book):
    book.report(0, "training")
    book.report(0, "lost", reason="first")
    book.report(0, "lost", reason="second")
    assert book.roster.workers[0].reason == "first"
    book.report(0, "done")
    book.report(0, "lost", reason="late")
    assert book.status(0) is Status.DONE


def test_a_lost_worker_fails_when_it_does_not_come_back_in_time(book):
    book.report(0, "training")
    book.report(1, "training")
    book.report(1, "lost", reason="killed")
    book.now += RECOVER_SECS - 1.0
    book.roster.give_up_lost(chief_ended_at=None)
    assert book.status(1) is Status.LOST
    book.now += 1.0
    book.roster.give_up_lost(chief_ended_at=None)
    assert book.roster.workers[1] == entry("failed", reason="killed; it did not rejoin within 120 s")


@pytest.mark.parametrize(("status", "patience"), [("done", 5.0), ("failed", 0.0)])
def test_a_lost_worker_fails_sooner_when_the_chief_has_ended(book, status, patience):
    book.report(1, "training")
    book.report(1, "lost", reason="killed")
    book.report(0, status)
    ended_at = book.now = 10.0
    if patience:
        book.roster.give_up_lost(ended_at)
        assert book.status(1) is Status.LOST
    book.now += patience
    book.roster.give_up_lost(ended_at)
    assert book.status(1) is Status.FAILED


def test_only_a_worker_that_joins_begins_a_new_run_and_no_old_run_comes_back(book):
    def joins(run_id, status="joined"):
        message = StatusMessage(run_id=run_id, worker=1, entry=entry(status))
        return book.roster.is_other_run(message), book.roster.is_new_run(message)

    assert joins("r")[0] is False and joins("")[0] is False  # a worker that fails before it joins names no run
    assert joins("next") == (True, True) and joins("next", "training") == (True, False)
    assert not book.roster.is_new_run(AliveMessage(run_id="next", worker=1))
    book.roster.begin("next")
    assert joins("r") == (True, False)
    assert book.roster.workers == {}
