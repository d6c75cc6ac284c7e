"""TensorFlow errors that mean that a task is lost, and the task that each one names."""

from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.errors import PeerLostError, PsLostError
from ps_trainer.runtime.lost_task_errors import lost_task_error, reason, reason_to_stop


class TestLostTask:
    """Messages of TensorFlow 2.21, shortened."""

    TO_STAGE = (
        "Additional GRPC error information from remote target /job:worker/replica:0/task:1 while calling RunGraph"
    )

    def test_is_the_stage_that_did_not_answer_although_a_ps_task_reports_it(self):
        message = (
            f"From /job:ps/replica:0/task:0: RecvTensor cancelled. From /job:worker/replica:0/task:0: {self.TO_STAGE}"
        )
        lost = lost_task_error(tf.errors.UnavailableError(None, None, message))
        assert isinstance(lost, PeerLostError)
        assert str(lost).startswith("worker-1, which computes a stage, was lost")

    @pytest.mark.parametrize(
        ("relays", "lost", "kind"), [("ps", "worker", PeerLostError), ("worker", "ps", PsLostError)]
    )
    def test_is_the_task_at_the_end_of_a_chain_of_relaying_tasks(self, relays, lost, kind):
        calling = "while calling /tensorflow.WorkerService/RecvTensor:"
        report = "Additional GRPC error information from remote target"
        message = (
            f"From /job:{relays}/replica:0/task:2:\nConnection reset by peer\n{report} /job:{relays}/replica:0/task:2"
            f' {calling}\n:UNKNOWN:Error received from peer  {{grpc_message:"Connection reset by peer\\n{report}'
            f' /job:{lost}/replica:0/task:1 {calling}\\n:UNKNOWN:Error", grpc_status:14}}\n'
        )
        error = lost_task_error(tf.errors.UnavailableError(None, None, message))
        assert isinstance(error, kind) and str(error).startswith(f"{lost}-1")

    @pytest.mark.parametrize("is_last", [True, False])
    def test_is_not_the_task_of_a_report_that_tensorflow_cuts_before_the_task_that_it_relays(self, is_last):
        report = "Additional GRPC error information from remote target"
        whole = (
            f"\nSocket closed\n{report} /job:worker/replica:0/task:1 while calling RecvTensor:\n"
            ":UNKNOWN:Error received from peer  {grpc_status:14}\n"
        )
        of_worker = f"UNAVAILABLE: From /job:worker/replica:0/task:0:{whole}{report} /job:ps/replica:0/task:0 while ca"
        of_ps = f"UNAVAILABLE: From /job:ps/replica:0/task:0:{whole}"
        message = "\n".join([of_ps, of_worker] if is_last else [of_worker, of_ps])
        lost = lost_task_error(tf.errors.UnavailableError(None, None, message))
        assert isinstance(lost, PeerLostError) and str(lost).startswith("worker-1")

    def test_is_the_ps_task_that_did_not_answer_although_a_stage_reports_it(self):
        message = "From /job:worker/replica:0/task:1: Socket closed; from remote target /job:ps/replica:0/task:3"
        lost = lost_task_error(tf.errors.UnavailableError(None, None, message))
        assert isinstance(lost, PsLostError) and str(lost).startswith("ps-3 was lost")

    def test_is_the_reporting_ps_task_where_the_message_names_no_other(self):
        lost = lost_task_error(
            tf.errors.AbortedError(None, None, "From /job:ps/replica:0/task:2: graph handle not found")
        )
        assert isinstance(lost, PsLostError) and str(lost).startswith("ps-2 was lost")

    def test_are_all_ps_tasks_that_did_not_answer(self):
        report = "Additional GRPC error information from remote target /job:ps/replica:0/task:"
        reports = [f"{report}{ps} while calling RunGraph:\n:UNKNOWN:Error {{grpc_status:14}}" for ps in (0, 3)]
        lost = lost_task_error(tf.errors.UnavailableError(None, None, "\n".join(reports)))
        assert str(lost).startswith("ps-0, ps-3 were lost; look at their logs.")

    def test_is_a_worker_with_its_share_of_the_parameters_where_workers_hold_them(self):
        message = f"From /job:worker/replica:0/task:0: Socket closed {self.TO_STAGE}"
        lost = lost_task_error(tf.errors.UnavailableError(None, None, message), is_colocated=True)
        assert isinstance(lost, PsLostError) and str(lost).startswith("worker-1 was lost")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (tf.errors.UnavailableError, "ps-3 was lost"),
        (tf.errors.AbortedError, "ps-3 was lost"),
        (tf.errors.DeadlineExceededError, "a ps task did not answer in time"),
        (tf.errors.FailedPreconditionError, "the ps tasks do not hold the run's state"),
        (tf.errors.NotFoundError, "the ps tasks do not hold the run's state"),
    ],
)
def test_a_loss_in_a_thread_beside_the_steps_lets_the_job_continue(kind, says):
    reason = reason_to_stop(kind(None, None, "from remote target /job:ps/replica:0/task:3"))
    assert isinstance(reason, PsLostError)
    assert says in str(reason)


@pytest.mark.parametrize("error", [tf.errors.InvalidArgumentError(None, None, "shape"), ValueError("a defect")])
def test_an_error_that_means_no_loss_is_the_reason_itself(error):
    assert reason_to_stop(error) is error


def test_the_reason_of_an_error_in_the_graph_is_one_line():
    where = "Detected at node 'rate' defined at (most recent call last):\n    File \"script.py\", line 48, in <module>"
    said = (
        "You must feed a value for placeholder tensor 'rate' with dtype float\n\t [[{{node rate}}]]\n\nOriginal stack"
    )
    message = f"Graph execution error:\n\n{where}\nNode: 'rate'\nFrom /job:worker/replica:0/task:0:\n{said}"
    error = tf.errors.InvalidArgumentError(None, None, message)
    assert reason(error) == "You must feed a value for placeholder tensor 'rate' with dtype float"
    assert reason(tf.errors.InvalidArgumentError(None, None, "2 root error(s) found.\n  (0) shapes")) == "(0) shapes"
    assert reason(tf.errors.InternalError(None, None, "")) == "InternalError"
    assert reason(ValueError("two\nlines")) == "two\nlines"


def test_tensorflows_repeated_log_lines_are_left_out():
    log = "Recent warning and error logs:\n  W0000 00:00:17954.4 32746 local_rendezvous.cc:412] rendezvous is aborting"
    error = tf.errors.UnavailableError(None, None, f"Socket closed\n{log}\nUNAVAILABLE: reset by peer")
    assert str(lost_task_error(error)).endswith("TensorFlow says: Socket closed UNAVAILABLE: reset by peer")
