"""A worker's reaction when other workers join, end, are lost, or never come."""

from __future__ import annotations

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted, PeerFailedError, PeerLostError, StalledError, StartTimeoutError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import RunStatus, Status
from ps_trainer.training import peer_tracker as peers_lib
from ps_trainer.training.peer_tracker import PeerNeed, PeerTracker
from tests.runtime.fakes import entry, ready_run

HOSTS = tuple(f"localhost:{port}" for port in range(2000, 2003))
CLUSTER = ClusterConfig(jobs={"ps": ("localhost:1999",), "worker": HOSTS}, job_name="worker", task_index=0)


class FakeWatcher:
    """A watcher that holds the answers of the ps tasks and records its callbacks."""

    def __init__(self, controls, run, worker_index, stop, reactions, **__):
        self.started, self.ended = reactions.on_worker_start, reactions.on_worker_end
        self.poll = reactions.on_poll
        self.roster, self.reached, self.run_status = {}, None, RunStatus.READY


class Service:
    """A rule's service that records which workers came and left."""

    def __init__(self):
        self.calls = []

    def worker_came(self, index):
        self.calls.append(("came", index))

    def worker_left(self, index, join_number):
        self.calls.append(("left", index, join_number))


class FakeWriter:
    def __init__(self):
        self.states = []

    def state(self, state):
        self.states.append(state)


@pytest.fixture
def create(monkeypatch):
    """Makes the peer tracker of worker 0 of three."""
    monkeypatch.setattr(peers_lib, "Watcher", FakeWatcher)
    monkeypatch.setattr(peers_lib, "_POLL_SECS", 0.0)

    def create(*, least=1, has_service=True, needs_all=False, **fields):
        config = TrainConfig(update="the_rule", **fields)
        peers = PeerTracker(
            group_of(CLUSTER, 1), config, [], ready_run(),
            need=PeerNeed(least, Service() if has_service else None, needs_all),
            stop=StopRequest(), writer=FakeWriter(), on_poll=lambda waited_at: None,
        )  # fmt: skip
        peers._watcher.roster = {index: entry(Status.TRAINING) for index in range(3)}
        return peers

    return create


class TestEnded:
    """The end of a peer; `test_absences.py` tests lost workers in full."""

    def test_the_rule_continues_while_enough_are_left_and_then_the_others_wait_within_their_steps(self, create):
        peers = create(least=2)
        peers._watcher.ended(1, Status.LOST, 4)
        peers._watcher.ended(2, Status.LOST, 4)
        assert peers._service.calls == [("left", 1, 4)]
        assert peers._writer.states == [
            "worker 2 lost, and update rule the_rule needs 2 workers; waiting up to 120 s for it to rejoin"
        ]
        peers._watcher.started(2)
        assert peers._service.calls == [("left", 1, 4), ("came", 2)]
        assert peers._stop.reason is None

    def test_where_all_need_each_other_each_ends_with_any_other(self, create):
        peers = create(has_service=False, needs_all=True)
        peers._watcher.ended(2, Status.LOST, 4)
        assert type(peers._stop.reason) is PeerLostError

    def test_a_rule_that_needs_no_other_worker_ignores_losses(self, create):
        peers = create(has_service=False)
        peers._watcher.ended(1, Status.FAILED, 4)
        peers._watcher.started(1)
        assert peers._stop.reason is None

    def test_the_end_of_a_wait_is_checked_at_each_poll(self, create):
        peers = create(least=3, recover_timeout_secs=1e-9)
        peers._watcher.ended(2, Status.LOST, 4)
        with pytest.raises(
            PeerFailedError, match="worker 2 lost, and update rule the_rule needs all; it did not rejoin"
        ):
            peers._watcher.poll()


class TestStart:
    def test_begins_when_all_have_joined_and_returns_whether_the_run_is_resumed(self, create):
        peers = create(least=3)
        assert peers.wait_for_start(60.0)
        assert peers._writer.states == peers._service.calls == []

    @pytest.mark.parametrize("status", [Status.JOINED, Status.LOST, Status.INTERRUPTED])
    def test_names_missing_workers(self, create, status):
        peers = create(least=3)
        peers._watcher.roster[2] = entry(status)
        del peers._watcher.roster[1]
        with pytest.raises(StartTimeoutError, match="needs 3 workers; worker-1, worker-2 did not join within 0 s"):
            peers.wait_for_start(0.0)

    def test_after_a_while_begins_without_some_where_the_rule_can(self, create):
        peers = create(least=2, join_wait_secs=0.0)
        del peers._watcher.roster[1]
        assert peers.wait_for_start(0.0)
        assert peers._service.calls == [("left", 1, 0)]

    @pytest.mark.parametrize(("status", "over"), [(Status.JOINED, 3), (Status.LOST, 4)])
    def test_a_late_worker_counts_as_present_once_it_has_joined(self, create, status, over):
        peers = create(least=2, join_wait_secs=0.0)
        peers._watcher.roster[1] = entry(status, joining=4)
        assert peers.wait_for_start(0.0)
        assert peers._service.calls == [("left", 1, over)]

    def test_ends_when_asked_to_stop(self, create):
        peers = create(least=3)
        del peers._watcher.roster[1]
        peers._stop.request(Interrupted(15))
        with pytest.raises(Interrupted):
            peers.wait_for_start(60.0)


class TestEnd:
    def wait(self, peers, *changes):
        """Waits for the end; each read of the step also changes the others' statuses once."""
        left = list(changes)

        def read_step():
            peers._watcher.roster.update(left.pop(0) if left else {})
            return len(left)

        peers.wait_for_end(read_step)

    def test_waits_for_each_that_joined_to_end_in_one_way_or_the_other(self, create):
        peers = create(max_steps=10)
        self.wait(peers, {1: entry(Status.DONE)}, {}, {2: entry(Status.FAILED)})
        assert peers._writer.states == ["waiting for worker 1, 2"]

    def test_a_lost_worker_is_waited_for_only_while_data_remain_for_it(self, create):
        lost = {1: entry(Status.LOST), 2: entry(Status.DONE)}
        self.wait(create(max_steps=10), lost)
        with pytest.raises(StalledError, match=r"worker \[1\] completed no step for 0 s and did not end"):
            self.wait(create(max_steps=None, num_epochs=1, stall_timeout_secs=1e-9), lost)

    def test_a_worker_that_makes_no_step_is_named(self, create):
        with pytest.raises(StalledError, match=r"worker \[1, 2\] completed no step"):
            self.wait(create(max_steps=10, stall_timeout_secs=1e-9))
