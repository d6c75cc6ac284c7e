"""Records and messages survive JSON; `test_ps.py` tests texts that cannot be read."""

from __future__ import annotations

import json

import pytest

from ps_trainer.data.pipeline.shard_plan import Lease, ShardPlan
from ps_trainer.runtime import messages
from ps_trainer.runtime.run_record import (
    FINAL,
    AliveMessage,
    EndNotice,
    EvaluationCall,
    Hello,
    LeaseAnswer,
    LeaseKind,
    LeaseMessage,
    LeaseRefusal,
    PackedArray,
    PartResult,
    Roster,
    RunRecord,
    RunStart,
    RunStatus,
    Shards,
    Status,
    StatusMessage,
    TaskFingerprint,
    WorkerEntry,
)
from tests.runtime.fakes import FIGURES

FINGERPRINT = TaskFingerprint(tensorflow="2.21.0", cluster="c", host="h", variables="v", graph="g")
ENTRY = WorkerEntry(
    status=Status.DONE, joining=3, fingerprint=FINGERPRINT, reason="why", error="RunError", summary=FIGURES
)
RECORDS = {
    "hello": Hello(version="1", ps=1, num_ps=2, num_workers=3, incarnation="i", fingerprint=FINGERPRINT),
    "run": RunRecord(
        run_id="r",
        status=RunStatus.READY,
        agreement={"model": "m", "sharding": "dynamic", "option": ["x=ü"]},
        incarnations=("a", "b"),
        key="k",
        spans_hosts=True,
        start=RunStart(step=5, how="restored x"),
        partners=((0, 1), (2,)),
        shards=Shards(plan=ShardPlan(24, 4, 3, None, 0), may_wait=True),
        model=FINGERPRINT.of_model(),
        reached="accuracy>=0.9 is reached",
        failure="worker 0 failed",
        evaluation=EvaluationCall(
            call_id="c", workers=(1, 2), parameters=7, num_test_examples=99, num_examples=50, first_batch=2, num_parts=4
        ),
    ),
    "roster": Roster(run_id="r", workers={0: ENTRY, 12: WorkerEntry(status=Status.LOST)}),
    "notice": EndNotice(reason="ps-0 was ended by SIGTERM"),
    "leases": {
        1: {
            LeaseKind.SHARD: LeaseAnswer(request="q", lease=Lease(0, 2, 1), generation=4),
            LeaseKind.GENERATION: LeaseAnswer(request="p", generation=4),
        },
        2: {LeaseKind.SHARD: LeaseAnswer(request="q", lease=LeaseRefusal.WAIT, generation=0)},
    },
}
MESSAGES = [
    *(StatusMessage(run_id="r", worker=1, entry=WorkerEntry(status=status)) for status in Status),
    StatusMessage(run_id="", worker=0, entry=ENTRY),
    AliveMessage(run_id="r", worker=1),
    LeaseMessage(run_id="r", worker=1, request="q", kind=LeaseKind.SHARD, is_idle=False, is_first=True),
]


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_read_as_it_was_written(name):
    assert messages.decode_record(name, messages.encode(RECORDS[name]).encode()) == RECORDS[name]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_it_was_written(message):
    assert messages.decode_message(messages.encode_message(message).encode(), num_workers=2) == message


RESULT = PartResult(
    call_id="c",
    part=3,
    worker=1,
    num_examples=2,
    loss=float("inf"),
    weight=2.0,
    totals={"accuracy": 1.5},
    collected={"auc": (PackedArray(dtype="<f4", shape=(1,), data="AACAPw=="),)},
)


def test_the_result_of_a_part_is_read_as_it_was_written():
    assert messages.decode_part(messages.encode(RESULT).encode()) == RESULT


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"part": 1.0}, "part is 1.0, not of type int"),
        ({"loss": None}, "loss is None, not of type float"),
        ({"totals": {"accuracy": 1}}, "totals.accuracy is 1, not of type float"),
        ({"collected": {"auc": [{}]}}, "no field 'collected.auc.dtype'"),
    ],
)
def test_the_result_of_a_part_with_another_type_is_rejected(changes, reason):
    wrong = json.loads(messages.encode(RESULT)) | changes
    with pytest.raises(ValueError, match=reason):
        messages.decode_part(json.dumps(wrong).encode())


def test_figures_of_another_type_are_rejected():
    """The chief calculates with them."""
    said = json.loads(messages.encode_message(StatusMessage(run_id="r", worker=1, entry=ENTRY)))
    for name, value, kind in (("pushes", 1.5, "int"), ("examples_per_sec", "x", "float"), ("staleness", [], "dict")):
        wrong = said | {"summary": said["summary"] | {name: value}}
        with pytest.raises(ValueError, match=rf"summary\.{name} is .*, not of type {kind}"):
            messages.decode_message(json.dumps(wrong).encode(), num_workers=2)


def test_a_message_is_a_flat_object():
    """Another program that reads the mail finds the fields at their fixed places."""
    said = json.loads(messages.encode_message(StatusMessage(run_id="r", worker=1, entry=ENTRY)))
    assert (said["run_id"], said["worker"], said["status"], said["joining"]) == ("r", 1, "done", 3)
    assert said["summary"] == FIGURES.as_json()
    assert json.loads(messages.encode_message(AliveMessage(run_id="r", worker=1)))["status"] == "alive"


@pytest.mark.parametrize("name", [name for name in RECORDS if name != "leases"])
def test_a_record_that_was_not_written_yet_is_none(name):
    assert messages.decode_record(name, b"{}") is None


def test_fields_of_another_version_are_ignored():
    said = json.loads(messages.encode(RECORDS["hello"])) | {"new": {"x": 1}}
    assert messages.decode_record("hello", json.dumps(said).encode()) == RECORDS["hello"]


def test_a_worker_can_read_the_introduction_of_another_version():
    assert messages.decode_record("hello", b'{"version": "0"}') == Hello(version="0")


@pytest.mark.parametrize("status", FINAL)
def test_a_status_reads_like_its_value(status):
    assert f"{status}" == str(status) == "%s" % status == status.value  # noqa: UP031
