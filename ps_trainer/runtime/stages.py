"""Waits for the workers that compute stages for this one; a session with an absent worker would hang."""

from __future__ import annotations

from ps_trainer.cluster import network
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.groups import Group
from ps_trainer.config import TrainConfig
from ps_trainer.errors import StartTimeoutError
from ps_trainer.runtime import reachability
from ps_trainer.runtime.preflight import REACH_SECS
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.runtime.wait import POLL_SECS, Wait


def wait_for_stages(
    cluster: ClusterConfig, group: Group, config: TrainConfig, stop: StopRequest, *, limit_secs: float
) -> None:
    """Waits until the servers that compute stages for this worker answer it, and reach it in turn.

    Args:
        cluster: Cluster, with this worker's place in it.
        group: Worker group of this worker, which trains.
        config: Configuration of the run.
        stop: Stop request, which ends the wait.
        limit_secs: Longest wait in seconds.

    Raises:
        StartTimeoutError: a server is missing after that time; the message names it.
    """
    wait = Wait(limit_secs)
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


def _fault(cluster: ClusterConfig, address: str, device: str) -> str:
    """Returns why a worker cannot compute a stage for this worker yet; empty if it can."""
    fault = network.fault_of(address)
    if fault:
        return f"no connection: {fault}"
    own = f"{cluster.task_name} ({cluster.own_address})"
    fault = reachability.fault_between(cluster.own_address, device, REACH_SECS)
    if fault:
        return f"{own} does not reach it: {fault}"
    fault = reachability.fault_between(address, cluster.device, REACH_SECS)
    return f"it does not reach {own}: {fault}" if fault else ""
