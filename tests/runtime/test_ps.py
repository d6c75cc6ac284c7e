"""A ps task serves until every worker has ended, on a real server in this process."""

from __future__ import annotations

import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.ports import pick_free_ports
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.shard_plan import ShardPlan
from ps_trainer.errors import Interrupted, RunError, StartTimeoutError
from tests.testing.cluster import (
    environment,  # noqa: F401 - prepares TensorFlow's environment
    wait_until,
)

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.api.servers import clear_control
from ps_trainer.runtime import control, liveness, preflight, ps, roster_book, shard_leases
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.run_record import AliveMessage, LeaseKind, LeaseMessage, Status, StatusMessage, WorkerEntry
from ps_trainer.runtime.server import create_server
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.store.variables import create_variable
from tests.runtime.fakes import FIGURES

DEADLINE_SECS = 20.0
OWN_DEVICES = tf.ConfigProto(operation_timeout_in_ms=3000, device_filters=["/job:none"])  # of a session's target


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setattr(ps, "_LINGER_SECS", 0.0)
    monkeypatch.setattr(ps, "_NOTICE_SECS", 0.3)
    monkeypatch.setattr(liveness, "INTERVAL_SECS", 0.05)
    monkeypatch.setattr(liveness, "fault_of", lambda address: "")  # no worker has a server here


class Served:
    """A ps task of a cluster of two workers, which a thread serves, and the workers' messages to it."""

    unused = []  # TensorFlow cannot stop a server, so a later test uses it again

    def __init__(self, pool, keep_serving=False, **fields):
        defaults = {"start_timeout_secs": DEADLINE_SECS, "isolation": "test", "recover_timeout_secs": 0.0}
        defaults |= {"intra_op_threads": 1, "inter_op_threads": 2}
        config = TrainConfig(**defaults | fields)
        cluster, server = self._owned = self.unused.pop() if self.unused else self._new(config)
        task = ps.PsTask(cluster, config, server, keep_serving=keep_serving)
        self.stop = StopRequest()
        self.control = PsControl(cluster.own_address, 0)
        self._future = pool.submit(task.serve, self.stop)

    def _new(self, config):
        (port,) = pick_free_ports(1)
        jobs = {"ps": (f"localhost:{port}",), "worker": ("localhost:1", "localhost:2")}
        cluster = ClusterConfig(jobs=jobs, job_name="ps", task_index=0)
        return cluster, create_server(cluster, config)

    def leave(self):
        """Leaves the server to another test, once the ps task has ended."""
        assert not self.is_serving()
        cluster, server = self._owned
        clear_control(server.target, cluster.device)
        self.unused.append(self._owned)

    def say(self, worker, status, run_id="r", **content):
        self.control.say(StatusMessage(run_id=run_id, worker=worker, entry=WorkerEntry(status=status, **content)))

    def beat(self, worker):
        self.control.say(AliveMessage(run_id="r", worker=worker))

    def end(self):
        """The exit code, or the error."""
        return self._future.result(DEADLINE_SECS)

    def wait_for(self, condition):
        """Polls the control plane until its state meets `condition`; returns the state."""
        deadline = time.monotonic() + DEADLINE_SECS
        while time.monotonic() < deadline:
            try:
                state = self.control.read()
                if condition(state):
                    return state
            except tf.errors.FailedPreconditionError:
                pass  # the ps task has not begun yet
            threading.Event().wait(0.01)
        raise AssertionError(f"the condition does not hold after {DEADLINE_SECS} s: {state}")

    def is_serving(self):
        return not self._future.done()


@pytest.fixture
def serve():
    """Starts ps tasks; at the end it stops those that still run."""
    served = []
    with ThreadPoolExecutor() as pool:

        def start(**arguments):
            served.append(Served(pool, **arguments))
            return served[-1]

        yield start
        for task in served:
            task.stop.request(Interrupted(signal.SIGTERM))
            task.control.close()
    for task in served:
        task.leave()


def statuses(state):
    return {index: entry.status for index, entry in state.roster.workers.items()} if state.roster else {}


def test_ends_with_0_when_every_worker_is_done(serve):
    task = serve()
    for worker in (0, 1):
        task.say(worker, Status.JOINED)
        task.say(worker, Status.TRAINING)
    task.say(1, Status.DONE)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "done"})
    assert task.is_serving()
    task.say(0, Status.DONE)
    assert task.end() == 0


def test_a_worker_whose_port_is_closed_has_failed_with_the_ps_tasks_reason(serve, monkeypatch):
    task = serve()
    task.say(0, Status.JOINED)
    task.say(1, Status.JOINED)
    task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "joined"})
    monkeypatch.setattr(liveness, "fault_of", lambda address: "refused" if address == "localhost:2" else "")
    state = task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "failed"})
    assert "localhost:2 does not answer (refused)" in state.roster.workers[1].reason
    task.say(0, Status.DONE)
    assert task.end() == 1


@pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED])
@pytest.mark.parametrize("worker", [0, 1])
def test_ends_with_1_when_a_worker_failed(serve, worker, status):
    task = serve()
    task.say(worker, Status.JOINED)
    task.say(worker, status, reason="why")
    task.say(1 - worker, Status.DONE)
    assert task.end() == 1


def test_ends_with_143_when_signals_ended_every_worker(serve):
    task = serve()
    for worker in (0, 1):
        task.say(worker, Status.JOINED)
    for worker in (0, 1):
        task.say(worker, Status.INTERRUPTED, reason="ended by SIGTERM")
    assert task.end() == 128 + signal.SIGTERM


def test_a_worker_that_fails_before_it_joined_counts(serve):
    task = serve()
    task.say(0, Status.JOINED)
    task.say(1, Status.FAILED, run_id="", reason="no data")
    task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "failed"})
    task.say(0, Status.DONE)
    assert task.end() == 1


def test_reports_hello_and_each_workers_last_status(serve):
    task = serve()
    task.say(0, Status.JOINED)
    task.say(0, Status.DONE, summary=FIGURES)
    state = task.wait_for(lambda state: statuses(state) == {0: "done"})
    assert state.hello.num_ps == 1 and state.hello.num_workers == 2
    assert state.roster.run_id == "r"
    assert state.roster.workers[0].summary == FIGURES


def test_without_any_worker_it_ends_after_the_start_timeout(serve):
    with pytest.raises(StartTimeoutError, match="ps-0: no worker joined within 0 s.*--start_timeout_secs"):
        serve(start_timeout_secs=0.05).end()


def test_after_a_failed_chief_the_wait_for_other_workers_is_short(serve, monkeypatch):
    monkeypatch.setattr(ps, "_FAILED_SECS", 0.5)
    task = serve(start_timeout_secs=120.0)
    task.say(0, Status.JOINED)
    task.say(0, Status.FAILED, reason="worker 1 lost")
    with pytest.raises(RunError, match=r"the chief ended 1 s ago and worker \[1\] never said how it ended"):
        task.end()


def test_a_worker_that_is_silent_after_the_chief_ended_is_named(serve):
    task = serve(start_timeout_secs=2.0)
    task.say(0, Status.JOINED)
    task.say(0, Status.DONE)
    with pytest.raises(RunError, match=r"the chief ended 2 s ago and worker \[1\] never said how it ended"):
        task.end()


def test_a_message_of_a_replaced_run_changes_nothing(serve):
    task = serve()
    task.say(0, Status.JOINED, run_id="old")
    task.say(1, Status.JOINED, run_id="old")
    task.say(0, Status.JOINED, run_id="new")
    task.say(1, Status.DONE, run_id="old")
    task.say(0, Status.TRAINING, run_id="new")
    state = task.wait_for(lambda state: statuses(state).get(0) == "training")
    assert state.roster.run_id == "new"
    assert statuses(state) == {0: "training"}


def test_when_stopped_it_reports_and_raises_the_reason(serve):
    task = serve()
    task.say(0, Status.JOINED)
    task.say(0, Status.TRAINING)
    task.wait_for(lambda state: statuses(state) == {0: "training"})
    task.stop.request(Interrupted(signal.SIGTERM))
    state = task.wait_for(lambda state: state.notice)
    assert state.notice.reason == "ps-0 was ended by SIGTERM"
    with pytest.raises(Interrupted):
        task.end()


def test_when_stopped_it_does_not_wait_for_workers_that_have_ended(serve, monkeypatch):
    monkeypatch.setattr(ps, "_NOTICE_SECS", 10 * DEADLINE_SECS)
    task = serve()
    task.say(0, Status.JOINED)
    task.say(0, Status.TRAINING)
    task.wait_for(lambda state: statuses(state) == {0: "training"})
    task.stop.request(Interrupted(signal.SIGTERM))
    task.say(0, Status.INTERRUPTED)
    with pytest.raises(Interrupted):
        task.end()


def test_serves_job_after_job_when_asked_to(serve):
    task = serve(keep_serving=True, start_timeout_secs=0.05)
    for run_id in ("first", "second"):
        for worker in (0, 1):
            task.say(worker, Status.JOINED, run_id=run_id)
        task.wait_for(
            lambda state, run_id=run_id: state.roster and state.roster.run_id == run_id and len(statuses(state)) == 2
        )
        for worker in (1, 0):
            task.say(worker, Status.DONE, run_id=run_id)
        task.wait_for(lambda state: statuses(state) == {0: "done", 1: "done"})
    assert task.is_serving()


def joined(task):
    """Both workers of `task` have joined and train."""
    for worker in (0, 1):
        task.say(worker, Status.JOINED)
        task.say(worker, Status.TRAINING)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "training"})


def test_a_worker_whose_port_is_closed_is_lost_and_may_come_back(serve, monkeypatch):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    monkeypatch.setattr(liveness, "fault_of", lambda address: "refused" if address == "localhost:2" else "")
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    assert "localhost:2 does not answer (refused)" in state.roster.workers[1].reason
    task.say(1, Status.JOINED)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "joined"})
    task.say(1, Status.DONE)
    task.say(0, Status.DONE)
    assert task.end() == 0


def joinings(state):
    return {index: entry.joining for index, entry in state.roster.workers.items()}


def test_a_loss_belongs_to_the_last_joining_and_so_does_the_end_of_a_process_before_its_join(serve, monkeypatch):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    task.say(1, Status.JOINED, joining=3)
    task.wait_for(lambda state: joinings(state) == {0: 0, 1: 3})
    monkeypatch.setattr(liveness, "fault_of", lambda address: "refused" if address == "localhost:2" else "")
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    assert joinings(state) == {0: 0, 1: 3}
    task.say(1, Status.INTERRUPTED, run_id="", joining=0)
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "interrupted"})
    assert joinings(state) == {0: 0, 1: 3}
    task.say(1, Status.JOINED, joining=4)
    task.wait_for(lambda state: joinings(state) == {0: 0, 1: 4})


def test_a_silent_worker_is_lost_and_its_next_sign_of_life_brings_it_back(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS, heartbeat_timeout_secs=0.5)
    joined(task)
    task.say(1, Status.DONE)
    state = task.wait_for(lambda state: statuses(state) == {0: "lost", 1: "done"})
    assert "no sign of life for" in state.roster.workers[0].reason
    task.beat(0)
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "done"})
    task.say(0, Status.DONE)
    assert task.end() == 0


def test_a_worker_that_reported_a_loss_is_not_revived_by_an_old_sign_of_life(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    task.say(1, Status.LOST, reason="ps-1 was lost")
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    task.beat(1)
    task.say(0, Status.JOINED)  # mail is read in order
    task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "lost"})


def test_a_lost_worker_has_failed_when_it_does_not_come_back_in_time(serve):
    task = serve(recover_timeout_secs=0.3)
    joined(task)
    task.say(1, Status.LOST, reason="ps-1 was lost")
    state = task.wait_for(lambda state: statuses(state) == {0: "training", 1: "failed"})
    assert "ps-1 was lost; it did not come back within" in state.roster.workers[1].reason


@pytest.mark.parametrize("status", [Status.DONE, Status.FAILED])
def test_a_lost_worker_is_not_waited_for_when_the_chief_has_ended(serve, status, monkeypatch):
    monkeypatch.setattr(roster_book, "_LATE_SECS", 0.2 if status == Status.DONE else 10 * DEADLINE_SECS)
    task = serve(recover_timeout_secs=10 * DEADLINE_SECS)
    joined(task)
    task.say(1, Status.LOST, reason="gone")
    task.say(0, status)
    assert task.end() == 1


def test_a_lost_worker_that_is_back_soon_after_the_chief_is_done_has_not_failed(serve, monkeypatch):
    monkeypatch.setattr(roster_book, "_LATE_SECS", DEADLINE_SECS)
    task = serve(recover_timeout_secs=10 * DEADLINE_SECS)
    joined(task)
    task.say(1, Status.LOST, reason="gone")
    task.say(0, Status.DONE)
    task.wait_for(lambda state: statuses(state) == {0: "done", 1: "lost"})
    task.say(1, Status.DONE)
    assert task.end() == 0


def test_messages_of_a_replaced_run_do_not_bring_a_worker_back(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    task.say(0, Status.JOINED, run_id="next")
    task.say(1, Status.JOINED, run_id="r")
    task.say(1, Status.JOINED, run_id="next")
    state = task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "joined"})
    assert state.roster.run_id == "next"


# Messages that a ps task cannot understand: the text, and the reason.
MALFORMED = [
    (b"\x00 not json", "Expecting value"),
    (b"{{{", "Expecting property name"),
    (b"\xff\xfe\xfd", "codec can't decode"),
    (b"", "Expecting value"),
    (b"[" * 100_000, "nested too deeply"),
    (
        b'{"run_id": "r", "worker": 1, "status": "training", "summary": ' + b'{"a": ' * 985 + b"1" + b"}" * 986,
        "nested too deeply",
    ),
    (
        b'{"run_id": "r", "worker": 1, "status": "done", "summary": {"local_steps": "y"}}',
        "summary.local_steps is 'y', not of type int",
    ),
    (b'{"run_id": "r", "worker": 1, "status": "done", "summary": {}}', "no field 'summary.local_steps'"),
    (b"[1, 2]", "a JSON object is expected, not a list"),
    (b"null", "a JSON object is expected, not a NoneType"),
    (b"{}", "no field 'run_id'"),
    (b'{"worker": {}}', "no field 'run_id'"),
    (b'{"run_id": "r", "status": "training"}', "no field 'worker'"),
    (b'{"run_id": "r", "worker": 1}', "no field 'status'"),
    (b'{"run_id": "r", "worker": 99, "status": "joined"}', "worker 99, and the cluster has 0 to 1"),
    (b'{"run_id": "r", "worker": -1, "status": "joined"}', "worker -1, and the cluster has 0 to 1"),
    (b'{"run_id": "r", "worker": {}, "status": "training"}', "worker is {}, not of type int"),
    (b'{"run_id": "r", "worker": "1", "status": "joined"}', "worker is '1', not of type int"),
    (b'{"run_id": "r", "worker": true, "status": "joined"}', "worker is True, not of type int"),
    (b'{"run_id": "r", "worker": 1.0, "status": "joined"}', "worker is 1.0, not of type int"),
    (b'{"run_id": {}, "worker": 1, "status": "joined"}', "run_id is {}, not of type str"),
    (b'{"run_id": null, "worker": 1, "status": "joined"}', "run_id is None, not of type str"),
    (b'{"run_id": "r", "worker": 1, "status": "evil"}', "unknown status 'evil'"),
    (b'{"run_id": "r", "worker": 1, "status": ["done"]}', "status is ['done'], not of type str"),
    (b'{"run_id": "r", "worker": 1, "status": "lost", "reason": 3}', "reason is 3, not of type str"),
    (b'{"run_id": "r", "worker": 1, "status": "done", "summary": []}', "summary is [], not of type dict"),
    (b'{"run_id": "r", "worker": 1, "status": "joined", "joining": "2"}', "joining is '2', not of type int"),
    (b'{"run_id": "r", "worker": 1, "status": "joined", "joining": -1}', "joining is -1, not at least 0"),
    (b'{"run_id": "r", "worker": 1, "status": "lease"}', "no field 'request'"),
    (b'{"run_id": "r", "worker": 1, "status": "lease", "request": {}}', "request is {}, not of type str"),
]


def mail(task, text):
    """Puts bytes into the mail of a ps task, as a foreign program might."""
    graph = control.ControlGraph()
    with tf.Session(f"grpc://{task.control.address}", graph=graph.graph, config=OWN_DEVICES) as session:
        session.run(graph.send, {graph.value: text})


def test_messages_that_cannot_be_understood_are_dropped_and_logged(serve, monkeypatch, caplog):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    for text, says in MALFORMED:
        caplog.clear()
        mail(task, text)
        wait_until(lambda: "a message was dropped" in caplog.text, DEADLINE_SECS)
        assert says in caplog.text, text[:60]
        assert statuses(task.control.read()) == {0: "training", 1: "training"}, text[:60]
    monkeypatch.setattr(liveness, "fault_of", lambda address: "refused" if address == "localhost:2" else "")
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})  # that thread still runs
    for worker in (0, 1):
        task.say(worker, Status.DONE)
    assert task.end() == 0


def test_a_message_cannot_set_fields_that_only_the_ps_task_sets(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    lost = {"run_id": "r", "worker": 1, "status": "lost", "reason": "gone"}
    mail(task, json.dumps(lost | {"is_presumed": True, "was": {"status": "done"}, "at": 0.0}))
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    task.beat(1)
    task.say(0, Status.JOINED)  # mail is read in order
    task.wait_for(lambda state: statuses(state) == {0: "joined", 1: "lost"})


# Texts that a worker cannot understand, by record.
UNREADABLE = [
    ("run", "{{{", "its record 'run' cannot be read: Expecting property name"),
    ("run", "[]", "a JSON object is expected, not a list"),
    ("run", '{"status": "ready"}', "no field 'run_id'"),
    ("run", '{"run_id": "r", "status": "evil", "agreement": {}, "incarnations": []}', "unknown status 'evil'"),
    ("run", '{"run_id": "r", "status": "ready", "agreement": {}, "incarnations": []}', "no field 'start'"),
    (
        "run",
        '{"run_id": "r", "status": "ready", "agreement": {}, "incarnations": [], "start": {}}',
        "no field 'start.step'",
    ),
    ("roster", "\x00", "its record 'roster' cannot be read"),
    ("roster", '{"run_id": "r", "workers": []}', "workers is [], not of type dict"),
    ("roster", '{"run_id": "r", "workers": {"x": {"status": "done"}}}', "workers.'x': not an index"),
    ("roster", '{"run_id": "r", "workers": {"0": {}}}', "no field 'workers.0.status'"),
    ("roster", '{"run_id": "r", "workers": {"0": {"status": "done", "joining": 1e9}}}', "not of type int"),
    ("roster", '{"run_id": "r", "workers": {"0": {"status": "done", "joining": 2147483648}}}', "less than 2**31"),
    ("notice", '{"reason": 3}', "reason is 3, not of type str"),
    ("notice", '{"because": "x"}', "no field 'reason'"),
    ("leases", "7", "a JSON object is expected, not a int"),
    ("leases", '{"1": 3}', "1 is 3, not of type dict"),
    ("leases", '{"1": {"shard": []}}', "shard is [], not of type dict"),
    ("leases", '{"1": {"shard": {"request": "q", "lease": null}}}', "no field '1.shard.generation'"),
    ("leases", '{"1": {"shard": {"request": "q", "lease": [0, 1], "generation": 0}}}', "lease is [0, 1]"),
    ("leases", '{"1": {"shard": {"request": "q", "lease": [0, 1, "2"], "generation": 0}}}', "lease is [0, 1, '2']"),
    ("leases", '{"1": {"shard": {"request": "q", "lease": "soon", "generation": 0}}}', "lease is 'soon'"),
]

PLAN = {"num_examples": 24, "batch_size": 4, "num_shards": 3, "num_epochs": 2, "seed": 0}
# Invalid plans of shards: the difference from a valid one, and the reason.
NO_PLANS = [
    ({"num_shards": None}, "num_shards is None, not of type int"),
    ({"num_shards": "3"}, "num_shards is '3', not of type int"),
    ({"num_shards": 0}, "num_shards is 0, not at least 1"),
    ({"num_shards": 25}, "num_shards is 25, more than num_examples, 24"),
    ({"batch_size": -4}, "batch_size is -4, not at least 1"),
    ({"batch_size": 4.0}, "batch_size is 4.0, not of type int"),
    ({"num_examples": 0}, "num_examples is 0, not at least 1"),
    ({"num_examples": 10**30}, "num_examples is 1000000000000000000000000000000, not less than 2**48"),
    ({"num_epochs": 0}, "num_epochs is 0, not at least 1"),
    ({"num_epochs": "2"}, "num_epochs is '2', not of type int"),
    ({"seed": True}, "seed is True, not of type int"),
    ({"order": "sorted"}, "unknown field 'shards.plan.order'"),
]


def run_with(shards):
    """The text of a run's record with these shards."""
    start = {"step": 0, "how": "initialised"}
    agreement = {"sharding": "dynamic"}
    run = {"run_id": "r", "status": "ready", "agreement": agreement, "incarnations": [], "start": start}
    return json.dumps(run if shards is None else run | {"shards": shards})


UNREADABLE += [("run", run_with({"plan": PLAN | wrong, "may_wait": True}), says) for wrong, says in NO_PLANS]
UNREADABLE += [
    ("run", run_with({"plan": dict(list(PLAN.items())[:-1]), "may_wait": True}), "no field 'shards.plan.seed'"),
    ("run", run_with({"plan": [], "may_wait": True}), "plan is [], not of type dict"),
    ("run", run_with({"plan": PLAN}), "no field 'shards.may_wait'"),
    ("run", run_with({}), "no field 'shards.plan'"),
    ("run", run_with(None), "no field 'shards'"),
]


@pytest.mark.parametrize("field", sorted({field for field, _, _ in UNREADABLE}))
def test_a_record_that_cannot_be_understood_counts_as_no_answer(serve, field):
    task = serve()
    task.wait_for(lambda state: state.hello)
    for text, says in [(text, says) for of, text, says in UNREADABLE if of == field]:
        overwrite(task, field, text)
        with pytest.raises(tf.errors.DataLossError) as raised:
            task.control.read()
        message = raised.value.message
        assert f"its record {field!r} cannot be read: " in message and says in message, text


def overwrite(task, field, text):
    """Writes a record of a ps task, as a foreign program might."""
    graph = control.ControlGraph()
    with tf.Session(f"grpc://{task.control.address}", graph=graph.graph, config=OWN_DEVICES) as session:
        session.run(graph.write[field], {graph.value: text})


def ask(task, request):
    """Worker 1 asks for a shard."""
    task.control.say(LeaseMessage(run_id="r", worker=1, kind=LeaseKind.SHARD, request=request, is_idle=False))


@pytest.mark.parametrize(
    ("shards", "says"),
    [
        ({"plan": PLAN | {"num_shards": "3"}, "may_wait": True}, "num_shards is '3', not of type int"),
        ({"plan": PLAN | {"order": "sorted"}, "may_wait": True}, "unknown field 'shards.plan.order'"),
        ({"plan": PLAN | {"num_epochs": None}, "may_wait": True}, "are [2, 6], and the plan's [32, 6]"),
        ({"plan": PLAN | {"num_shards": 24, "batch_size": 1}, "may_wait": True}, "are [2, 6], and the plan's [2, 24]"),
    ],
    ids=["number as text", "field of another version", "other number of epochs", "other shards"],
)
def test_an_invalid_plan_is_reported_and_a_later_valid_one_is_used(serve, caplog, shards, says):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    with tf.Graph().as_default() as graph, tf.container("r"), tf.device("/job:ps/task:0"):
        counts = [create_variable(*spec) for spec in shard_leases.specs(ShardPlan(**PLAN))]
        init_op = tf.variables_initializer(counts)
    with tf.Session(f"grpc://{task.control.address}", graph=graph, config=OWN_DEVICES) as session:
        session.run(init_op)
    overwrite(task, "run", run_with(shards))
    ask(task, "a")
    wait_until(lambda: "worker 1 was given no shard" in caplog.text or not task.is_serving(), DEADLINE_SECS)
    assert says in caplog.text
    overwrite(task, "run", run_with({"plan": PLAN, "may_wait": True}))
    ask(task, "b")
    answer = task.wait_for(lambda state: state.leases).leases[1][LeaseKind.SHARD]
    assert answer.request == "b" and answer.lease.epoch == 0
    for worker in (0, 1):
        task.say(worker, Status.DONE)
    assert task.end() == 0


def test_a_worker_that_waits_for_the_run_names_the_fault_of_its_plan(serve):
    task = serve()
    task.wait_for(lambda state: state.hello)
    overwrite(task, "run", run_with({"plan": PLAN | {"num_shards": "3"}, "may_wait": True}))
    jobs = {"ps": (task.control.address,), "worker": ("localhost:1", "localhost:2")}
    worker = ClusterConfig(jobs=jobs, job_name="worker", task_index=1)
    with pytest.raises(
        StartTimeoutError, match="record 'run' cannot be read: shards.plan.num_shards is '3', not of type int"
    ):
        preflight.wait_for_run([task.control], worker, TrainConfig(isolation="test"), StopRequest(), limit_secs=0.0)
