"""Mail and records that a ps task or a worker cannot understand, on a real server in this process."""

from __future__ import annotations

import json

import pytest

from tests.runtime.served_ps import DEADLINE_SECS, joined, statuses
from tests.testing.cluster import wait_until

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.shard_plan import ShardPlan
from ps_trainer.errors import StartTimeoutError
from ps_trainer.runtime import control, liveness, preflight, shard_leases
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import LeaseKind, LeaseMessage, Status
from ps_trainer.store.variables import create_variable

OWN_DEVICES = tf.ConfigProto(operation_timeout_in_ms=3000, device_filters=["/job:none"])  # of a session's target

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
        task.send(worker, Status.DONE)
    assert task.end() == 0


def test_a_message_cannot_set_fields_that_only_the_ps_task_sets(serve):
    task = serve(recover_timeout_secs=DEADLINE_SECS)
    joined(task)
    lost = {"run_id": "r", "worker": 1, "status": "lost", "reason": "gone"}
    mail(task, json.dumps(lost | {"is_presumed": True, "was": {"status": "done"}, "at": 0.0}))
    task.wait_for(lambda state: statuses(state) == {0: "training", 1: "lost"})
    task.beat(1)
    task.send(0, Status.JOINED)  # mail is read in order
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
    task.control.send(LeaseMessage(run_id="r", worker=1, kind=LeaseKind.SHARD, request=request, is_idle=False))


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
        task.send(worker, Status.DONE)
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
