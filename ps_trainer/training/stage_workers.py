"""The workers that compute stages of the model for one worker (`--placement=model_parallel`), as that worker sees them.

    wait_for_servers   before this worker joins the run: their servers answer it, and reach it
    StageWorkers       in the run: waits until they have joined, and stops the job when one is lost

`stage_host.py` is the other side. The two waits are different. Only a server that answers can be part of a session, and
only the loss of a worker that has joined the run is noticed.
"""

from __future__ import annotations

import time

from ps_trainer.cluster import network
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import WorkerGroup
from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError, PeerLostError, StartTimeoutError
from ps_trainer.runtime import reachability
from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.runtime.preflight import REACH_SECS
from ps_trainer.runtime.run_record import Status
from ps_trainer.runtime.wait import POLL_SECS, Wait


def wait_for_servers(
    cluster: ClusterConfig, group: WorkerGroup, config: TrainConfig, stop: StopRequest, *, limit_secs: float
) -> None:
    """Waits until the servers that compute stages for this worker answer it, and reach it in turn.

    Args:
        cluster: Cluster, with this worker's place in it.
        group: Worker group of this worker, which trains.
        config: Configuration of the run.
        stop: Stop request, which ends the wait.
        limit_secs: Longest wait in seconds.

    Raises:
        StartTimeoutError: A server is missing after that time; the message names it.
    """
    wait = Wait(limit_secs)
    # The first member of the group is this worker.
    stages = list(zip(group.names, group.addresses, group.devices, strict=True))[1:]
    while True:
        faults = {name: _fault(cluster, address, device) for name, address, device in stages}
        missing = "; ".join(f"{name}: {fault}" for name, fault in faults.items() if fault)
        if not missing:
            return
        stop.check()
        if wait.is_over():
            raise StartTimeoutError(
                f"{cluster.task_name} waited {wait.secs():.0f} s for the workers that compute its stages"
                f" (--placement={config.placement}): {missing}. Start them, or look at their logs. To wait longer,"
                " raise --start_timeout_secs, or --recover_timeout_secs after a loss"
            )
        wait.log(f"waiting for {missing}")
        stop.wait(POLL_SECS)


class StageWorkers:
    """Stops the job when a stage worker of this group is lost, since no step can be made without it.

    Ignores the stage workers of other groups.

    Args:
        group: Group of this worker, which trains.
        config: Settings of the run.
        stop: Request by which the job is stopped.
    """

    def __init__(self, group: WorkerGroup, config: TrainConfig, stop: StopRequest):
        self._names = dict(zip(group.members[1:], group.names[1:], strict=True))  # by worker index
        self._own_name = group.names[0]
        self._config = config
        self._stop = stop
        self._ready: set[int] = set()

    def wait(self, limit_secs: float) -> None:
        """Waits until all have joined. Only the loss of a worker that has joined is noticed.

        Args:
            limit_secs: Longest time to wait.

        Raises:
            StartTimeoutError: One did not join in time.
        """
        began_at = time.monotonic()
        while missing := [name for index, name in self._names.items() if index not in self._ready]:
            if time.monotonic() - began_at > limit_secs:
                raise StartTimeoutError(
                    f"{', '.join(missing)} did not join within {limit_secs:.0f} s, to compute stages for"
                    f" {self._own_name} (--placement={self._config.placement}); look at their logs. To wait longer,"
                    " raise --start_timeout_secs, or --recover_timeout_secs after a loss"
                )
            self._stop.check()
            self._stop.wait(POLL_SECS)

    def on_worker_start(self, index: int) -> None:
        """Notes that worker `index` is ready."""
        self._ready.add(index)

    def on_worker_return(self, index: int) -> None:
        """Stops the job if worker `index`, restarted before its loss was noticed, lost the state of this session."""
        if index in self._names:
            self._stop.request(PeerLostError(f"{self._names[index]}, which computes a stage, was restarted"))

    def on_worker_end(self, index: int, status: Status) -> None:
        """Stops the job if worker `index` is needed. One that was lost before it was ready here may come back."""
        if index not in self._names or status == Status.DONE:
            return
        if status != Status.LOST or index in self._ready:
            error = PeerLostError if status == Status.LOST else PeerFailedError
            self._stop.request(error(f"{self._names[index]} {status}, and {self._own_name} needs it for a stage"))


def _fault(cluster: ClusterConfig, address: str, device: str) -> str:
    """Returns why a worker cannot compute a stage for this worker yet; empty if it can."""
    fault = network.fault_of(address)
    if fault:
        return f"no connection: {fault}"
    # Both directions are asked, because the receiver of a tensor fetches it.
    own_name = f"{cluster.task_name} ({cluster.own_address})"
    fault = reachability.fault_between(cluster.own_address, device, REACH_SECS)
    if fault:
        return f"{own_name} does not reach it: {fault}"
    fault = reachability.fault_between(address, cluster.device, REACH_SECS)
    return f"it does not reach {own_name}: {fault}" if fault else ""
