"""The evaluator's choice of checkpoints, and its end, beside a chief whose status ps 0 reports."""

from __future__ import annotations

import json

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, Interrupted, OptionError, PeerFailedError, PsLostError, StalledError
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import Status
from ps_trainer.training import evaluator as evaluator_lib
from ps_trainer.training.evaluator import EvaluatorTask
from tests.checkpoints.checkpoint_files import INDEX, write
from tests.runtime.fakes import GONE, FakeControl, ready_run, roster

CLUSTER = ClusterConfig(jobs={"ps": ("a:1",), "worker": ("a:2",)}, job_name="evaluator", task_index=0)
EVALUATING = 2  # number of checkpoints that exist when the evaluator begins


class Ps(FakeControl):
    """Ps 0, which answers with one chief status after the other and repeats the last one; "" means no answer."""

    def __init__(self, statuses, before_read=None):
        super().__init__(run=ready_run())
        self._statuses, self._before_read, self.is_closed = list(statuses), before_read, False

    def read(self):
        if self._before_read is not None:
            self._before_read(self.num_reads)
        status = self._statuses[min(self.num_reads, len(self._statuses) - 1)]
        self.error = None if status else GONE
        self.fields["roster"] = roster("r", w0=status) if status else None
        return super().read()

    def close(self):
        self.is_closed = True


@pytest.fixture
def checkpoints(tmp_path):
    write(tmp_path / "checkpoints", *range(1, EVALUATING + 1))
    return tmp_path / "checkpoints"


@pytest.fixture
def start(tmp_path, monkeypatch, checkpoints):
    """Runs an evaluator beside ps 0 to its end."""
    monkeypatch.setattr(evaluator_lib, "_POLL_SECS", 0.0)
    monkeypatch.setattr(evaluator_lib, "evaluate", lambda _, checkpoint, limits: {"accuracy": checkpoint.step / 10})

    def start(ps_0, stop=None, **fields):
        other = Ps(["training"])
        monkeypatch.setattr(evaluator_lib.preflight, "wait_for_ps", lambda *_: [ps_0, other])
        config = TrainConfig(logdir=str(tmp_path), **({"recover_timeout_secs": 0.0} | fields))
        evaluator = EvaluatorTask(CLUSTER, config, components=None)
        try:
            return evaluator.work(stop or StopRequest())
        finally:
            assert ps_0.is_closed and other.is_closed
            assert evaluator._writer._file._file.closed

    return start


def lines(tmp_path, kind):
    text = (tmp_path / "metrics" / "evaluator-0.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


def evaluated(tmp_path):
    return [(line["global_step"], line["metrics"]["accuracy"]) for line in lines(tmp_path, "eval")]


def test_evaluates_each_checkpoint_once_until_the_chief_is_done_the_last_one_included(start, tmp_path, checkpoints):
    def write_one_more(num_reads):
        if num_reads in (3, 5):  # in the fifth read the chief reports that it is done
            write(checkpoints, num_reads)

    assert start(Ps([Status.TRAINING] * 5 + [Status.DONE], write_one_more)) == EXIT_DONE
    assert evaluated(tmp_path) == [(1, 0.1), (2, 0.2), (3, 0.3), (5, 0.5)]
    assert [line["state"] for line in lines(tmp_path, "state")] == [
        "waiting for the ps tasks", "waiting for a checkpoint", "done",
    ]  # fmt: skip


def test_evaluates_a_rewritten_checkpoint_once_more(start, tmp_path, checkpoints):
    def write_again(num_reads):
        if num_reads == 2:
            (checkpoints / f"model.ckpt-2{INDEX}").unlink()
            write(checkpoints, 2)

    start(Ps([Status.TRAINING] * 4 + [Status.DONE], write_again))
    assert [step for step, _ in evaluated(tmp_path)] == [1, 2, 2]


def test_skips_a_damaged_checkpoint(start, tmp_path, checkpoints):
    (checkpoints / f"model.ckpt-1{INDEX}").write_bytes(b"damaged")
    start(Ps([Status.DONE]))
    assert [step for step, _ in evaluated(tmp_path)] == [2]


@pytest.mark.parametrize("status", [Status.FAILED, Status.INTERRUPTED])
def test_fails_with_the_chief(start, tmp_path, status):
    with pytest.raises(PeerFailedError, match=f"the chief {status}"):
        start(Ps([Status.TRAINING, status]))
    assert len(evaluated(tmp_path)) == EVALUATING


def test_a_ps_0_that_ends_with_the_run_is_well_and_one_that_ends_earlier_is_lost(start, tmp_path):
    with pytest.raises(PsLostError, match="ps 0 stopped answering before the chief ended"):
        start(Ps([Status.TRAINING, ""]))
    (tmp_path / "summary.json").write_text("{}")
    assert start(Ps([Status.TRAINING, ""])) == EXIT_DONE


def test_a_ps_0_that_comes_back_in_time_is_not_lost(start, tmp_path):
    statuses = [Status.TRAINING, "", "", "", "", Status.TRAINING, Status.DONE]
    assert start(Ps(statuses), recover_timeout_secs=60.0) == EXIT_DONE


def test_a_ps_0_that_has_never_answered_is_not_lost(start):
    assert start(Ps(["", "", "", "", "", Status.TRAINING, Status.DONE])) == EXIT_DONE


def test_a_run_from_before_the_start_is_not_the_expected_one(start, tmp_path):
    ps_0 = Ps([Status.DONE])
    ps_0.fields["run"] = ready_run(run_id="another")
    with pytest.raises(StalledError, match=r"no new checkpoint in .* for 0 s"):
        start(ps_0, stall_timeout_secs=1e-9)


def test_ends_when_asked_to_stop(start):
    stop = StopRequest()
    stop.request(Interrupted(15))
    with pytest.raises(Interrupted):
        start(Ps([Status.TRAINING]), stop)


def test_needs_a_logdir():
    with pytest.raises(OptionError, match="give it the chief's --logdir"):
        EvaluatorTask(CLUSTER, TrainConfig(), components=None)
