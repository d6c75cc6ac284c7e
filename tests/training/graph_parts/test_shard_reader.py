"""`--sharding dynamic` with real servers: every update rule trains on every example."""

from __future__ import annotations

import threading
import types

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.checkpoints import reader as checkpoint_lib
from ps_trainer.data.pipeline.shard_plan import Coverage
from ps_trainer.errors import Interrupted, OptionError, PeerFailedError
from ps_trainer.runtime import shard_leases
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import LeaseKind, LeaseMessage, Shards
from ps_trainer.training import components as components_lib
from ps_trainer.training.graph_parts import shard_reader
from ps_trainer.updates.ring import RingExchange
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import repetitions
from tests.testing.rule_promises import PROMISES

DEADLINE_SECS = 20.0
ONCE = Coverage(never=0, once=240, twice=0, more=0)


def _config(**fields):
    update = fields.get("update", "async")
    defaults = {"sharding": "dynamic", "batch_size": 8, "num_epochs": 2, "max_steps": None, "learning_rate": 0.01}
    promises = PROMISES[update]
    return config_of(promises.model, "Rows", update_option=promises.options, **defaults | fields)


def _period(update):
    """Number of steps from one push of a worker to the next."""
    return 2 if update in ("accumulate", "downpour", "easgd", "local_sgd", "model_averaging") else 1


@pytest.mark.parametrize("update", repetitions(component_tables.UPDATES.names(), every=8))
def test_every_example_is_trained_on_once_an_epoch(update):
    with InProcessCluster(1, 2) as cluster:
        chief, other = cluster.run(_config(update=update))
    coverage = chief.worker.summary.coverage
    # A worker that ends leaves at most that many batches without a push; the remaining workers read them again.
    not_pushed = 2 * (_period(update) - 1) * 8
    never = coverage["1"].never
    assert coverage["0"] == ONCE
    assert coverage["1"] == ONCE._replace(never=never, once=240 - never)
    assert never <= not_pushed
    examples = [worker.figures.examples for worker in chief.worker.summary.workers.values()]
    assert 2 * 240 - never <= sum(examples) <= 2 * 240 + not_pushed
    assert min(examples) > 0


def test_read_positions_are_saved_with_the_parameters_and_restored(tmp_path):
    with InProcessCluster(2, 2) as cluster:
        first = cluster.run(_config(max_steps=20, logdir=str(tmp_path)))[0].worker
        seen = first.summary.coverage["0"]
        assert 8 * 20 <= seen.once < 240
        assert seen.never == 240 - seen.once
        second = cluster.run(_config(logdir=str(tmp_path)))[0].worker
    assert second.summary.coverage == {"0": ONCE, "1": ONCE}
    assert sum(worker.figures.examples for worker in second.summary.workers.values()) == 2 * 240 - seen.once


@pytest.mark.parametrize("update", repetitions(["all_reduce", "hybrid"]))  # both exchange by the same `RingExchange`
def test_a_batch_whose_exchange_broke_is_not_counted_and_is_read_again(tmp_path, monkeypatch, update):
    stop, after_phase, num_made = StopRequest(), RingExchange.after_phase, []

    def breaks(exchange, session):
        if len(num_made) == 4:
            stop.request(Interrupted(15))
            raise PeerFailedError("the ring broke")
        num_made.append(after_phase(exchange, session))
        return num_made[-1]

    monkeypatch.setattr(RingExchange, "after_phase", breaks)
    config = _config(update=update, logdir=str(tmp_path))
    with InProcessCluster(1, 1) as cluster:
        broken = cluster.finish(cluster.start(config, 0, stop=stop))
    assert isinstance(broken.error, Interrupted)
    saved = checkpoint_lib.latest(tmp_path / "checkpoints")
    assert (saved["global_step"], saved[shard_leases.COUNTS].sum()) == (4, 4)
    monkeypatch.undo()
    with InProcessCluster(1, 1) as cluster:
        (worker,) = cluster.run(config)
    assert worker.worker.summary.coverage == {"0": ONCE, "1": ONCE}
    assert worker.worker.final_values["global_step"] == 2 * 240 // 8


def test_the_shards_of_a_worker_that_never_came_are_read_by_the_other():
    with InProcessCluster(1, 2) as cluster:
        # The chief waits for so long for a worker that has never come, because it has data left.
        config = _config(join_wait_secs=0.0, num_epochs=1, start_timeout_secs=15.0)
        call = cluster.start(config, 0)
        outcome = cluster.finish(call)
        assert outcome.error is None
        assert outcome.worker.summary.coverage == {"0": ONCE}
        late = cluster.start(config, 1)
        cluster.finish_call(late)
    assert (late.error, late.result) == (None, 0)
    assert late.made[-1].losses == []


def test_fewer_shards_than_workers_are_rejected():
    config = _config(shard_examples=240)
    dataset = components_lib.load(config, 2).dataset
    with pytest.raises(OptionError, match=r"--shard_examples=240 --batch_size=8: 240 .* make 1 shards for 2 workers"):
        shard_reader.plan_of(dataset, config, 2)


def test_the_chiefs_plan_counts_whatever_flags_a_worker_has():
    own, chiefs = _config(batch_size=16, num_epochs=1), _config()
    dataset = components_lib.load(chiefs, 2).dataset
    plan = shard_reader.plan_of(dataset, chiefs, 2)
    shards = Shards(plan=plan, may_wait=True)
    assert shard_reader.plan_of(dataset, own, 2, shards) == plan != shard_reader.plan_of(dataset, own, 2)
    fewer = Shards(plan=plan._replace(num_examples=239), may_wait=True)
    with pytest.raises(OptionError, match=r"dataset has 240 training examples, the chief's 239.*--dataset_option"):
        shard_reader.plan_of(dataset, own, 2, fewer)


def test_without_dynamic_sharding_no_coverage_is_reported():
    with InProcessCluster(1, 1) as cluster:
        worker = cluster.run(_config(sharding="static"))[0].worker
    assert worker.summary.coverage is None
    assert worker.summary.workers[0].figures.examples == 2 * 240


class FakePs0:
    """A stand-in for ps task 0 with a real lease server."""

    def __init__(self, plan):
        self.seen = np.zeros((plan.rows, plan.num_shards * plan.max_batches), np.int8)
        self.server = shard_leases.LeaseServer(
            "", None, read_run=lambda: None, write=lambda answers: setattr(self, "leases", answers)
        )
        self.server._book = shard_leases.LeaseBook(plan, read=self.seen.copy, begin_epoch=lambda epoch: None)
        self.asked = []

    def send(self, message):
        self.asked.append(message.kind)
        self.server.answer(message)

    def read(self):
        return types.SimpleNamespace(leases=self.leases)


class TestSilentWorker:
    PLAN = shard_reader.shard_plan.ShardPlan(20, 4, 3, 1, 0)  # shards of 3 + 4, 3 + 4 and 3 + 3 examples

    @pytest.fixture
    def ps_0(self):
        return FakePs0(self.PLAN)

    @pytest.fixture
    def reader(self, ps_0):
        self.now, self.num_steps = 0.0, 0
        reader = shard_reader.ShardReader(self.PLAN, time_fn=lambda: self.now)
        reader.connect(
            shard_reader.LeaseLink(
                ps_0, run_id="r", worker_index=1, on_wait=lambda: None, num_steps=lambda: self.num_steps, pause_secs=3.0
            )
        )
        return reader

    def test_continues_with_its_shards_while_they_are_its_own(self, ps_0, reader):
        next(reader._leases())
        self.now = 2.0
        assert not reader.is_outdated()
        assert ps_0.asked == [LeaseKind.SHARD]
        self.now = 6.0
        assert not reader.is_outdated()
        assert ps_0.asked == [LeaseKind.SHARD, LeaseKind.GENERATION]

    def test_starts_over_when_its_shards_were_given_to_others(self, ps_0, reader):
        taking = reader._leases()
        first = [next(taking).tolist(), next(taking).tolist()]
        self.num_steps = 1
        ps_0.seen[0, first[0][1] * 2] += 1
        ps_0.server.give_back(1)
        other = ps_0.server._book.take(0)
        self.now = 6.0
        assert reader.is_outdated()
        assert list(taking) == []
        assert not reader.is_outdated()
        taking = reader._leases()
        rest = [next(taking).tolist(), next(taking).tolist()]
        assert other.shard == first[0][1]
        assert {lease[1] for lease in rest} == {0, 1, 2} - {other.shard}
        # It counts one batch of the first shard and its present batches; not the rest of the first shard.
        sizes = [3, *self.PLAN.batch_sizes(rest[0][1]), *self.PLAN.batch_sizes(rest[1][1])]
        assert [reader.num_examples(count) for count in range(6)] == np.cumsum([0, *sizes]).tolist()

    def test_learns_the_loss_of_its_shards_from_the_next_lease_too(self, ps_0, reader):
        taking = reader._leases()
        next(taking)
        ps_0.server.give_back(1)
        assert not reader.is_outdated()
        held = next(taking).tolist()
        assert reader.is_outdated()
        assert held in [lease.tolist() for lease in reader._leases()]  # it keeps the shard of its last lease

    def test_does_not_repeat_a_request_that_was_answered(self, ps_0, reader):
        next(reader._leases())
        answer = ps_0.leases[1][LeaseKind.SHARD]
        ps_0.send(
            LeaseMessage(
                run_id="r", worker=1, kind=LeaseKind.SHARD, request=answer.request, is_first=True, is_idle=False
            )
        )
        assert ps_0.leases[1][LeaseKind.SHARD] == answer

    def test_is_closed_when_its_question_has_ended_and_asks_no_other(self, ps_0, reader, monkeypatch):
        """A server that ends a session answers no question, so the session must not end during one."""
        is_asking, may_end, send = threading.Event(), threading.Event(), ps_0.send

        def send_slowly(message):
            is_asking.set()
            assert may_end.wait(DEADLINE_SECS)
            send(message)

        monkeypatch.setattr(ps_0, "send", send_slowly)
        leases = []
        asking = threading.Thread(target=lambda: leases.extend(reader._leases()))
        closing = threading.Thread(target=reader.close)
        asking.start()
        assert is_asking.wait(DEADLINE_SECS)
        closing.start()
        assert reader._closing.wait(DEADLINE_SECS)
        closing.join(0.2)
        assert closing.is_alive()
        may_end.set()
        for thread in (closing, asking):
            thread.join(DEADLINE_SECS)
            assert not thread.is_alive()
        assert ps_0.asked == [LeaseKind.SHARD]
        assert list(reader._leases()) == leases == []


def test_a_reader_counts_the_examples_of_the_batches_that_it_was_given():
    plan = shard_reader.shard_plan.ShardPlan(53, 4, 3, None, 0)
    reader = shard_reader.ShardReader(plan)
    for lease in (shard_reader.Lease(0, 2, 3), shard_reader.Lease(0, 0, 0)):  # 3 + 4, then 3 + 4 + 3 + 4 + 4
        reader._take(lease)
    assert [reader.num_examples(count) for count in range(4)] == [0, 3, 7, 10]
    assert reader.num_examples(7) == 7 + 18
    assert np.isscalar(reader.num_examples(1))
