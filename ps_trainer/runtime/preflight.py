"""Before any session: finds every ps task, and the chief's run, each with a deadline.

TensorFlow's own session creation waits for ever for a task that is not there, and a worker that comes
before the chief has initialised sleeps 30 s; both waits are here instead.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster import network
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, Finding
from ps_trainer.config import TrainConfig
from ps_trainer.errors import ClusterConfigError, OptionError, PeerFailedError, StartTimeoutError
from ps_trainer.runtime import control, reachability, task_info
from ps_trainer.runtime.control import PsControl, PsState
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.shared_settings import differences

POLL_SECS = 0.1
_LOG_SECS = 10.0
REACH_SECS = 5.0  # for a ps task to answer that it reaches a worker; asked again until the start's deadline
_MUST_BE_EQUAL = ("version", "ps", "num_ps", "num_workers")


def wait_for_ps(
    cluster: ClusterConfig, config: TrainConfig, stop: StopRequest, *, limit_secs: float | None = None
) -> list[PsControl]:
    """Waits until every ps task answers, and reaches this task in turn; returns a client for each.

    Args:
        cluster: with this task's place in it.
        config: the run.
        stop: ends the wait.
        limit_secs: of the wait; None = `start_timeout_secs`.

    Raises:
        StartTimeoutError: some did not answer in time; names them.
        ClusterConfigError: a ps task belongs to another cluster, or to another version.
    """
    patience = config.heartbeat_timeout_secs  # one that is silent for so long is lost
    controls = [PsControl(address, ps, patience_secs=patience) for ps, address in enumerate(cluster.ps_addresses)]
    missing = dict.fromkeys(range(len(controls)), "not asked yet")
    wait = Wait(config.start_timeout_secs if limit_secs is None else limit_secs)
    with ThreadPoolExecutor(max_workers=min(32, len(controls))) as pool:
        while True:
            asked = sorted(missing)
            for ps, problem in zip(asked, pool.map(lambda ps: _probe(controls[ps], cluster), asked), strict=True):
                if problem is None:
                    del missing[ps]
                else:
                    missing[ps] = problem
            if not missing:
                _warn_of_differences(controls, cluster)
                return controls
            who = "; ".join(f"{controls[ps].name}: {problem}" for ps, problem in missing.items())
            stop.check()
            if wait.is_over():
                raise StartTimeoutError(
                    f"{cluster.task_name} waited {wait.secs():.0f} s for {who}. Is it started, is --ps_hosts the same"
                    " everywhere, and does a firewall let the port through? A longer wait: --start_timeout_secs"
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
) -> dict[str, Any]:
    """Waits until the chief's run is ready, or has ended without this worker; returns its record.

    A run that this worker has already left in order is not the one to join, nor one whose state a ps task has lost.

    Args:
        controls: client of each ps task.
        cluster: with this worker's place in it.
        config: the run.
        stop: ends the wait.
        limit_secs: of the wait; None = `start_timeout_secs`.

    Raises:
        StartTimeoutError: no run was ready in time.
        OptionError: the chief runs with other settings than this worker.
        PeerFailedError: the run has failed, without this worker.
    """
    wait = Wait(config.start_timeout_secs if limit_secs is None else limit_secs)
    while True:
        try:
            state = controls[0].read()
            run = state.run
            if run.get("status") in (control.READY, control.ENDED) and not _has_left(state, cluster.worker_index):
                differing = differences(run["agreement"], agreement(cluster, config), cluster.task_name)
                if differing:
                    raise OptionError(
                        f"{cluster.task_name} was started with other settings than the chief: {'; '.join(differing)}"
                    )
                if run["status"] == control.ENDED and not run.get("failure"):
                    return run
                if incarnations(controls) == run["ps"]:
                    if run["status"] == control.ENDED:
                        raise PeerFailedError(f"the run ended before {cluster.task_name} came: {run['failure']}")
                    return run
            problem = ""
        except tf.errors.OpError as error:  # it may be busy for longer than one call's deadline
            problem = f"; a ps task does not answer: {error.message}"
        stop.check()
        if wait.is_over():
            raise StartTimeoutError(
                f"{cluster.task_name} waited {wait.secs():.0f} s for the chief"
                f" ({cluster.worker_tasks[0][0]}-{cluster.worker_tasks[0][1]}) to set up the run; start it, or look at"
                f" its log. A longer wait: --start_timeout_secs{problem}"
            )
        wait.log(f"waiting for the chief to set up the run{problem}")
        stop.wait(POLL_SECS)


class FoundRun(NamedTuple):
    """What a chief finds when it begins.

    Attributes:
        run: its run's record, as written to ps 0.
        is_alive: whether that is a run with the same logdir (or, without one, the same settings) which its chief never
            ended, and which the ps tasks still hold. Others may be at work in it.
        was_lost: whether there was such a run, and a ps task has lost its part of it.
    """

    run: dict[str, Any]
    is_alive: bool
    was_lost: bool


def begin_run(controls: Sequence[PsControl], cluster: ClusterConfig, config: TrainConfig) -> FoundRun:
    """Writes the chief's run record to ps 0: with status `starting`, unless the run is one that goes on.

    Args:
        controls: client of each ps task.
        cluster: of the chief.
        config: the run.
    """
    old = controls[0].read(is_patient=True).run
    settings = agreement(cluster, config)
    key = f"{config.logdir} {settings}"
    ps = incarnations(controls, is_patient=True)
    # What never was ready has no state to lose.
    was_there = old.get("key") == key and old["status"] != control.ENDED and bool(old.get("start"))
    is_whole = was_there and old["ps"] == ps and old["status"] == control.READY
    run = {"run_id": uuid.uuid4().hex[:12], "key": key, "status": control.STARTING, "agreement": settings, "ps": ps}
    if is_whole:
        run = old
    elif was_there:
        run["start"] = old["start"]
    controls[0].write_run(run)
    return FoundRun(run, is_whole, was_there and not is_whole)


def last_words(controls: Sequence[PsControl], run_id: str) -> list[dict[str, Any]]:
    """What the workers said of a run that are done with it, as far as a ps task still knows."""
    rosters = [roster for ps in controls if (roster := ps.read(is_patient=True).roster).get("run_id") == run_id]
    words = {index: entry for roster in rosters for index, entry in roster["workers"].items()}
    return [entry for entry in words.values() if entry["status"] == control.DONE]


def incarnations(controls: Sequence[PsControl], *, is_patient: bool = False) -> list[str]:
    """What tells each ps task from one that was started in its place."""
    return [ps.read(is_patient=is_patient).hello["incarnation"] for ps in controls]


def last_joining(state: PsState, run: Mapping[str, Any], worker: int) -> int:
    """The number of the last time that a process joined `run` as this worker; 0 if none has."""
    if state.roster.get("run_id") != run["run_id"]:
        return 0
    return state.roster["workers"].get(str(worker), {}).get("joining", 0)


def _has_left(state: PsState, worker: int) -> bool:
    """Whether `worker` has said its last word in the run; as long as that goes on, a failed one may come back."""
    if state.roster.get("run_id") != state.run.get("run_id"):
        return False
    last = (control.DONE,) if state.run["status"] == control.READY else control.FINAL
    return state.roster["workers"].get(str(worker), {}).get("status") in last


def agreement(cluster: ClusterConfig, config: TrainConfig) -> dict[str, Any]:
    """The settings that the workers of a job must share."""
    return config.agreement() | {"num_workers": cluster.num_workers}


def agree_on_model(ps_0: PsControl, run: dict[str, Any], own: Mapping[str, Any], cluster: ClusterConfig) -> None:
    """Notes the chief's model in its run record, or compares a worker's with it.

    Args:
        ps_0: holds the run record.
        run: the chief's run record, which it writes when the run is ready.
        own: this task's facts.
        cluster: with this task's place in it.

    Raises:
        OptionError: this worker's model has other variables than the chief's. Other ops are a warning only.
        tf.errors.OpError: ps 0 does not answer.
    """
    if cluster.is_chief:
        run["model"] = {name: own[name] for name in ("variables", "graph")}
        return
    theirs = ps_0.read(is_patient=True).run.get("model", {})
    for finding in task_info.differences(theirs, own, cluster.task_name, "on the chief"):
        if finding.level == FAIL:
            raise OptionError(finding.message)
        logging.warning("%s", finding.message)


def stranger(hello: Mapping[str, Any], cluster: ClusterConfig, ps: int, asker: str) -> Finding | None:
    """The finding that the task which says `hello` is not ps task `ps` of this cluster; None if it is."""
    own = control.hello(cluster, ps)
    theirs, expected = ({name: said.get(name) for name in _MUST_BE_EQUAL} for said in (hello, own))
    if theirs == expected:
        return None
    return Finding(
        FAIL,
        "cluster",
        f"ps-{ps} ({cluster.ps_addresses[ps]}) belongs to another cluster: it says {theirs}, {asker} expects"
        f" {expected}",
        "give every task the same --ps_hosts and --worker_hosts, in the same order, and the same version of ps_trainer",
    )


def unreached(who: str, whom: str, fault: str, *, are_workers: bool = False) -> Finding:
    """The finding that a task does not reach another one: a ps task a worker, a worker a ps task, or both workers."""
    need = (
        "these workers send tensors to each other"
        if are_workers
        else "a ps task must reach each worker, and each worker it"
    )
    return Finding(
        FAIL,
        "reach",
        f"{who} does not reach {whom}, and {need}: {fault}",
        "give both the same addresses, which resolve on both machines, and let the ports through firewalls, both ways",
    )


def _probe(ps: PsControl, cluster: ClusterConfig) -> str | None:
    """Why a ps task is not ready yet, or None when it is."""
    fault = network.fault_of(ps.address)
    if fault:
        return f"no connection: {fault}"
    try:
        state = ps.read()
    except tf.errors.FailedPreconditionError:
        return "is starting, or is no ps task"
    except tf.errors.OpError as error:
        said = f": {error.message}" if isinstance(error, tf.errors.DataLossError) else ""
        return f"does not answer ({type(error).__name__}{said})"
    if not state.hello:
        return "is starting"
    strange = stranger(state.hello, cluster, ps.ps, cluster.task_name)
    if strange:
        raise ClusterConfigError(strange.message)
    if cluster.job_name == "evaluator":
        return None  # no ps task talks to it
    fault = reachability.fault_between(ps.address, cluster.device, REACH_SECS)
    return unreached(ps.name, f"{cluster.task_name} ({cluster.own_address})", fault).message if fault else None


def _warn_of_differences(controls: Sequence[PsControl], cluster: ClusterConfig) -> None:
    for ps in controls:
        try:
            theirs = ps.read().hello.get("facts", {})
        except tf.errors.OpError:
            continue  # it may be busy; who waits for it next says so
        for finding in task_info.differences(task_info.of(cluster), theirs, ps.name):
            logging.warning("%s", finding.message)


class Wait:
    """The deadline of a wait, and a log line now and then.

    Args:
        limit_secs: after which it is over.
        clock: seconds, monotonic.
    """

    def __init__(self, limit_secs: float, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._limit = limit_secs
        self._start = self._logged = clock()

    def secs(self) -> float:
        """How long it has lasted."""
        return self._clock() - self._start

    def is_over(self) -> bool:
        """Whether it has lasted longer than its limit."""
        return self.secs() > self._limit

    def log(self, message: str) -> None:
        """Logs what is waited for, now and then."""
        if self._clock() - self._logged > _LOG_SECS:
            self._logged = self._clock()
            logging.info("%s (%.0f of %.0f s)", message, self.secs(), self._limit)


def say_everywhere(controls: Sequence[PsControl], message: dict[str, Any]) -> None:
    """Says `message` to every ps task; one that is gone is logged and passed over."""
    for ps in controls:
        try:
            ps.say(message)
        except tf.errors.OpError as error:
            logging.warning("%s did not take the message %r: %s", ps.name, message["status"], type(error).__name__)
