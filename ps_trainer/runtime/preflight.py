"""Before any session: finds every ps task, and the chief's run, each with a deadline.

TensorFlow's own session creation waits for ever for a task that is not there, and a worker that comes
before the chief has initialised sleeps 30 s; both waits are here instead.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.errors import ClusterConfigError, OptionError, StartTimeoutError
from ps_trainer.runtime import control
from ps_trainer.runtime.control import PsControl, PsState
from ps_trainer.runtime.supervise import StopRequest

_POLL_SECS = 0.1
_LOG_SECS = 10.0


def wait_for_ps(cluster: ClusterConfig, config: TrainConfig, stop: StopRequest) -> list[PsControl]:
    """Waits until every ps task answers; returns a client for each.

    Raises:
        StartTimeoutError: some did not answer within `start_timeout_secs`; names them.
        ClusterConfigError: a ps task belongs to another cluster, or to another version.
    """
    controls = [PsControl(address, ps) for ps, address in enumerate(cluster.ps_addresses)]
    missing = dict.fromkeys(range(len(controls)), "not asked yet")
    wait = _Wait(config.start_timeout_secs)
    with ThreadPoolExecutor(max_workers=min(32, len(controls))) as pool:
        while True:
            asked = sorted(missing)
            for ps, problem in zip(asked, pool.map(lambda ps: _probe(controls[ps], cluster), asked), strict=True):
                if problem is None:
                    del missing[ps]
                else:
                    missing[ps] = problem
            if not missing:
                return controls
            who = "; ".join(f"{controls[ps].name}: {problem}" for ps, problem in missing.items())
            stop.check()
            if wait.is_over():
                raise StartTimeoutError(
                    f"{cluster.task_name} waited {wait.secs():.0f} s for {who}. Is it started, is --ps_hosts the same"
                    " everywhere, and does a firewall let the port through? A longer wait: --start_timeout_secs"
                )
            wait.log(f"waiting for {who}")
            stop.wait(_POLL_SECS)


def wait_for_run(ps_0: PsControl, cluster: ClusterConfig, config: TrainConfig, stop: StopRequest) -> tuple[str, bool]:
    """Waits until the chief's run is ready; returns its id, and whether it has ended without this worker.

    A run that this worker has already left is not the one to join.

    Raises:
        StartTimeoutError: no run was ready within `start_timeout_secs`.
        OptionError: the chief runs with other settings than this worker.
    """
    wait = _Wait(config.start_timeout_secs)
    while True:
        try:
            state = ps_0.read()
        except tf.errors.OpError as error:  # it may be busy for longer than one call's deadline
            logging.warning("%s does not answer (%s)", ps_0.name, type(error).__name__)
        else:
            status = state.run.get("status")
            if status in (control.READY, control.ENDED) and not _has_left(state, cluster.worker_index):
                _check_agreement(state.run["agreement"], agreement(cluster, config), cluster.task_name)
                return state.run["run_id"], status == control.ENDED
        stop.check()
        if wait.is_over():
            raise StartTimeoutError(
                f"{cluster.task_name} waited {wait.secs():.0f} s for the chief"
                f" ({cluster.worker_tasks[0][0]}-{cluster.worker_tasks[0][1]}) to set up the run; start it, or look at"
                " its log. A longer wait: --start_timeout_secs"
            )
        wait.log("waiting for the chief to set up the run")
        stop.wait(_POLL_SECS)


def begin_run(ps_0: PsControl, cluster: ClusterConfig, config: TrainConfig) -> tuple[dict[str, Any], bool]:
    """The chief's run record, written to ps 0 with status `starting`, and whether the run is already on the ps.

    A run of the same logdir (or, without one, of the same settings) that its chief never ended is still
    alive on the ps: a chief that was restarted goes on with it.
    """
    state = ps_0.read()
    settings = agreement(cluster, config)
    key = f"{config.logdir} {settings}"
    is_alive = state.run.get("key") == key and state.run["status"] != control.ENDED
    run_id = state.run["run_id"] if is_alive else uuid.uuid4().hex[:12]
    run = {"run_id": run_id, "key": key, "status": control.STARTING, "agreement": settings}
    ps_0.write_run(run)
    return run, is_alive


def _has_left(state: PsState, worker: int) -> bool:
    """Whether `worker` has said its last word in the run that `state` shows."""
    if state.roster.get("run_id") != state.run.get("run_id"):
        return False
    return state.roster["workers"].get(str(worker), {}).get("status") in control.FINAL


def agreement(cluster: ClusterConfig, config: TrainConfig) -> dict[str, Any]:
    """The settings that the workers of a job must share."""
    return config.agreement() | {"num_workers": cluster.num_workers}


def _check_agreement(chief: dict[str, Any], own: dict[str, Any], task_name: str) -> None:
    differing = [
        f"--{name}: chief {chief.get(name)!r}, {task_name} {own[name]!r}"
        for name in own
        if chief.get(name) != own[name]
    ]
    if differing:
        raise OptionError(f"{task_name} was started with other settings than the chief: {'; '.join(differing)}")


def _probe(ps: PsControl, cluster: ClusterConfig) -> str | None:
    """Why a ps task is not ready yet, or None when it is."""
    host, _, port = ps.address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2.0).close()
    except OSError as error:
        return f"no connection ({error.strerror or error})"
    try:
        state = ps.read()
    except tf.errors.FailedPreconditionError:
        return "is starting, or is no ps task"
    except tf.errors.OpError as error:
        return f"does not answer ({type(error).__name__})"
    if not state.hello:
        return "is starting"
    expected = control.hello(cluster, ps.ps)
    if state.hello != expected:
        raise ClusterConfigError(
            f"{ps.name} belongs to another cluster: it says {state.hello}, {cluster.task_name} expects {expected};"
            " give every task the same --ps_hosts and --worker_hosts, in the same order, and the same version of"
            " ps_trainer"
        )
    return None


class _Wait:
    """The deadline of a wait, and a log line now and then."""

    def __init__(self, limit_secs: float, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._limit = limit_secs
        self._start = self._logged = clock()

    def secs(self) -> float:
        return self._clock() - self._start

    def is_over(self) -> bool:
        return self.secs() > self._limit

    def log(self, message: str) -> None:
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
