"""Checks before a session: waits for every ps task, and for the chief's run, each with a deadline.

TensorFlow's own session waits without limit for a task that is absent. A TensorFlow worker that comes before the chief
has initialised sleeps for 30 s. So the waits are here, before any session is created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster import network
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, ClusterFinding
from ps_trainer.config import TrainConfig
from ps_trainer.errors import ClusterConfigError, OptionError, PeerFailedError, StartTimeoutError
from ps_trainer.runtime import control, reachability, task_fingerprint
from ps_trainer.runtime.alone_control import AloneControl
from ps_trainer.runtime.control import PsClient, PsControl, PsState
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.run_record import FINAL, Hello, RunRecord, RunStatus, Status, StatusMessage, TaskFingerprint
from ps_trainer.runtime.run_setup import agreement, is_state_there
from ps_trainer.runtime.wait import POLL_SECS, Wait
from ps_trainer.shared_settings import differences

REACH_SECS = 5.0  # for a ps task to answer that it reaches a worker; asked again until the start's deadline
_MUST_BE_EQUAL = ("version", "ps", "num_ps", "num_workers")


def wait_for_ps(
    cluster: ClusterConfig, config: TrainConfig, stop: StopRequest, *, limit_secs: float | None = None
) -> list[PsControl]:
    """Waits until every ps task answers, and reaches this task in turn; returns a client for each.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
        stop: Request that ends the wait.
        limit_secs: Longest time to wait; None = `start_timeout_secs`.

    Raises:
        StartTimeoutError: Some ps tasks did not answer in time; names them.
        ClusterConfigError: A ps task belongs to another cluster, or has another version of ps_trainer.
    """
    if cluster.is_alone:
        return [AloneControl(cluster)]
    patience = config.heartbeat_timeout_secs  # a ps task that is silent for longer counts as lost
    controls: list[PsControl] = [
        PsClient(_address_for(cluster, ps), ps, patience_secs=patience, task_name=name)
        for ps, name in enumerate(cluster.ps_names)
    ]
    missing = list(range(len(controls)))
    wait = Wait(config.start_timeout_secs if limit_secs is None else limit_secs)
    # An absent ps task costs seconds. Asked one after the other, several of them would use up the start's deadline.
    with ThreadPoolExecutor(max_workers=min(32, len(controls))) as pool:
        while True:
            answers = zip(missing, pool.map(lambda ps: _probe(controls[ps], cluster), missing), strict=True)
            problems = {ps: problem for ps, problem in answers if problem is not None}
            if not problems:
                _warn_of_differences(controls, cluster)
                return controls
            missing = list(problems)  # a ps task that was ready is not asked again
            who = "; ".join(f"{controls[ps].name}: {problem}" for ps, problem in problems.items())
            stop.check()
            if wait.is_over():
                hosts = "--worker_hosts" if cluster.is_colocated else "--ps_hosts"
                raise StartTimeoutError(
                    f"{cluster.task_name} waited {wait.secs():.0f} s for {who}. Is it started, is {hosts} the same"
                    " everywhere, and does a firewall let the port through? To wait longer, raise --start_timeout_secs"
                )
            wait.log(f"waiting for {who}")
            stop.wait(POLL_SECS)


def wait_for_run(
    controls: Sequence[PsControl],
    cluster: ClusterConfig,
    config: TrainConfig,
    stop: StopRequest,
    *,
    limit_secs: float | None = None,
    on_starting: Callable[[RunRecord], None] = lambda run: None,
) -> RunRecord:
    """Waits until the chief's run is ready, or has ended without this worker; returns its record.

    Skips a run that this worker has finished, and a run whose state a ps task has lost.

    Args:
        controls: Client of each ps task.
        cluster: Cluster, with this worker's place in it.
        config: Settings of the run.
        stop: Request that ends the wait.
        limit_secs: Longest time to wait; None = `start_timeout_secs`.
        on_starting: Function that is called, again and again, while the chief sets up a run; it gets the run's record.

    Raises:
        StartTimeoutError: No run was ready in time.
        OptionError: The chief runs with other settings than this worker.
        PeerFailedError: The run has failed without this worker.
    """
    wait = Wait(config.start_timeout_secs if limit_secs is None else limit_secs)
    while True:
        problem = ""
        try:
            if (run := _find_run(controls, cluster, config, on_starting)) is not None:
                return run
        except PeerFailedError:
            stop.check()  # a signal to both tasks is the reason of both, although the chief's end is seen first
            raise
        except tf.errors.OpError as error:  # the ps task may be busy for longer than the deadline of one call
            problem = f"; a ps task does not answer: {error.message}"
        stop.check()
        if wait.is_over():
            raise StartTimeoutError(
                f"{cluster.task_name} waited {wait.secs():.0f} s for the chief"
                f" ({cluster.worker_tasks[0][0]}-{cluster.worker_tasks[0][1]}) to set up the run; start it, or look at"
                f" its log. To wait longer, raise --start_timeout_secs{problem}"
            )
        wait.log(f"waiting for the chief to set up the run{problem}")
        stop.wait(POLL_SECS)


def _find_run(
    controls: Sequence[PsControl],
    cluster: ClusterConfig,
    config: TrainConfig,
    on_starting: Callable[[RunRecord], None],
) -> RunRecord | None:
    """Returns the run that this worker joins, or that ended without it; None while there is neither."""
    state = controls[0].read()
    run = state.run
    if run is None or _has_left(state, run, cluster.worker_index):
        return None
    if run.status is RunStatus.STARTING:
        on_starting(run)
        return None
    if differing := differences(run.agreement, agreement(cluster, config), cluster.task_name):
        raise OptionError(f"{cluster.task_name} was started with other settings than the chief: {'; '.join(differing)}")
    # Before the incarnations are compared: a run that is done needs no state, so restarted ps tasks do no harm.
    if run.status is RunStatus.ENDED and not run.failure:
        return run
    if not is_state_there(controls, run):  # the chief will replace this run
        return None
    if run.status is RunStatus.ENDED:
        raise PeerFailedError(f"the run ended before {cluster.task_name} joined: {run.failure}")
    return run


def _has_left(state: PsState, run: RunRecord, worker: int) -> bool:
    """Returns whether `worker` takes no part in `run` any more. A failed worker may rejoin while the run continues."""
    entry = state.workers_of(run.run_id).get(worker)
    last = (Status.DONE,) if run.status is RunStatus.READY else FINAL
    return entry is not None and entry.status in last


def last_join_number(state: PsState, run_id: str, worker: int) -> int:
    """Returns the join number of the last process that joined run `run_id` as `worker`; 0 if none has."""
    entry = state.workers_of(run_id).get(worker)
    return entry.joining if entry is not None else 0


def check_same_model(ps_0: PsControl, own_fingerprint: TaskFingerprint, cluster: ClusterConfig) -> None:
    """Compares a worker's model with the chief's.

    Args:
        ps_0: Client of ps 0, which holds the run record.
        own_fingerprint: Fingerprint of this worker.
        cluster: Cluster, with this worker's place in it.

    Raises:
        OptionError: This worker's model has other variables than the chief's. Different ops are only a warning.
        tf.errors.OpError: The ps task 0 does not answer.
    """
    run = ps_0.read(is_patient=True).run
    if run is None or run.model is None:
        return
    for finding in task_fingerprint.differences(run.model, own_fingerprint, cluster.task_name, "on the chief"):
        if finding.level == FAIL:
            raise OptionError(finding.message)
        logging.warning("%s", finding.message)


def stranger_finding(hello: Hello, cluster: ClusterConfig, ps: int, asker: str) -> ClusterFinding | None:
    """Returns the finding that the task which sent `hello` is not ps task `ps` of this cluster; None if it is.

    Args:
        hello: Introduction of the task at the address of that ps task.
        cluster: Cluster as it is known here.
        ps: Index of the ps task.
        asker: Name of this task, for messages.
    """
    own_hello = control.hello(cluster, ps)
    theirs, expected = ({name: getattr(record, name) for name in _MUST_BE_EQUAL} for record in (hello, own_hello))
    if theirs == expected:
        return None
    return ClusterFinding(
        FAIL,
        "cluster",
        f"{cluster.ps_names[ps]} ({cluster.ps_addresses[ps]}) belongs to another cluster: it says {theirs}, {asker}"
        f" expects {expected}",
        "give every task the same --ps_hosts and --worker_hosts, in the same order, and the same version of ps_trainer",
    )


def unreached_finding(source: str, target: str, fault: str, *, are_workers: bool = False) -> ClusterFinding:
    """Returns the finding that one task does not reach another.

    Args:
        source: Name of the task that cannot connect.
        target: Name of the task that it cannot connect to.
        fault: Reason.
        are_workers: Whether both are workers. If not, one of them is a ps task.
    """
    need = (
        "these workers send tensors to each other"
        if are_workers
        else "a ps task must reach each worker, and each worker it"
    )
    return ClusterFinding(
        FAIL,
        "reach",
        f"{source} does not reach {target}, and {need}: {fault}",
        "give both the same addresses, which resolve on both machines, and let the ports through firewalls, both ways",
    )


def send_to_all(controls: Sequence[PsControl], message: StatusMessage) -> None:
    """Sends `message` to every ps task; skips one that is gone, with a warning."""
    for ps in controls:
        try:
            ps.send(message)
        except tf.errors.OpError as error:
            status = message.entry.status.value
            logging.warning("%s did not take the message %r: %s", ps.name, status, type(error).__name__)


def _address_for(cluster: ClusterConfig, ps: int) -> str:
    """Returns the address at which this task finds ps task `ps`."""
    # Maybe only other machines can reach this task's own address.
    return f"localhost:{cluster.own_port}" if cluster.is_ps(ps) else cluster.ps_addresses[ps]


def _probe(ps: PsControl, cluster: ClusterConfig) -> str | None:
    """Returns the reason why a ps task is not ready yet, or None when it is."""
    fault = network.fault_of(ps.address)
    if fault:
        return f"no connection: {fault}"
    try:
        state = ps.read()
    except tf.errors.FailedPreconditionError:
        # A server answers, but no ps task has initialised the control variables there.
        return "is starting, or is not a ps task"
    except tf.errors.OpError as error:
        reason = f": {error.message}" if isinstance(error, tf.errors.DataLossError) else ""
        return f"does not answer ({type(error).__name__}{reason})"
    if state.hello is None:
        return "is starting"
    if (strange := stranger_finding(state.hello, cluster, ps.ps, cluster.task_name)) is not None:
        raise ClusterConfigError(strange.message)
    if cluster.job_name == "evaluator":
        return None  # no ps task connects to an evaluator
    if cluster.is_ps(ps.ps):
        return None  # this process itself
    # The ps task fetches gradients from this task, so a route in one direction is not enough: training would stall.
    fault = reachability.fault_between(ps.address, cluster.device, REACH_SECS)
    return unreached_finding(ps.name, f"{cluster.task_name} ({cluster.own_address})", fault).message if fault else None


def _warn_of_differences(controls: Sequence[PsControl], cluster: ClusterConfig) -> None:
    for ps in controls:
        try:
            hello = ps.read().hello
        except tf.errors.OpError:
            continue  # it may be busy; the next wait for it reports that
        theirs = hello.fingerprint if hello is not None else TaskFingerprint()
        for finding in task_fingerprint.differences(task_fingerprint.of(cluster), theirs, ps.name):
            logging.warning("%s", finding.message)
