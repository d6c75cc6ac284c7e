"""Checks of a cluster that need no TensorFlow: names, ports, interfaces, first connections."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ps_trainer.cluster import addresses, network, ports
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, OK, UNKNOWN, WARNING, ClusterFinding
from ps_trainer.errors import ClusterConfigError, list_names

# A host that does not answer costs seconds, so many are probed at the same time.
_MAX_PROBES = 32


class TaskAddress(NamedTuple):
    """A task's address, as seen from this machine.

    Attributes:
        job_name: Job of the task.
        task_index: Index of the task in its job.
        address: "host:port" of the task.
        host: Host in the address.
        port: Port in the address.
        resolved: IP addresses of the host.
        is_local: True if the host is this machine.
        problem: Reason why no connection is possible, or why the port cannot be used; empty otherwise.
        is_free: True if the host is this machine and a server could listen on the port now.
    """

    job_name: str
    task_index: int
    address: str
    host: str
    port: int
    resolved: network.Resolved
    is_local: bool
    problem: str
    is_free: bool

    @property
    def name(self) -> str:
        """The task's name and address, for messages."""
        return f"{self.job_name}-{self.task_index} ({self.address})"

    @property
    def task(self) -> tuple[str, int]:
        """Job and index of the task."""
        return self.job_name, self.task_index

    @property
    def device(self) -> str:
        """The task's device prefix."""
        return f"/job:{self.job_name}/task:{self.task_index}"

    @property
    def answers(self) -> bool:
        """Whether a process listens at the address."""
        return not self.problem and not self.is_free


def probe(cluster: ClusterConfig) -> list[TaskAddress]:
    """Probes every task's address from this machine.

    A port of this machine is first bound for a moment, as a server would bind it. Only if that fails, a connection is
    made: a connection to a free port of the same machine could connect to itself. No port stays occupied.
    """
    tasks = [(job, index, address) for job, hosts in cluster.jobs.items() for index, address in enumerate(hosts)]
    with ThreadPoolExecutor(max_workers=_MAX_PROBES) as pool:
        return list(pool.map(lambda task: _task_address(*task), tasks))


def names(task_addresses: Sequence[TaskAddress]) -> Iterator[ClusterFinding]:
    """Checks that the host names resolve, and mean the same machine everywhere."""
    unresolved = {address.host: address for address in task_addresses if not address.resolved.ips}
    for address in unresolved.values():
        yield ClusterFinding(
            FAIL,
            "names",
            f"{address.name}: the name {address.host} does not resolve here: {address.resolved.problem}",
            "correct the name, or add it to the name service before the tasks start",
        )
    elsewhere = [address for address in task_addresses if address.resolved.ips and not address.is_local]
    for address in task_addresses:
        if elsewhere and _means_itself(address.host):
            yield ClusterFinding(
                FAIL,
                "names",
                f"{address.name}: {address.host} means each machine itself, and {elsewhere[0].name} is on another"
                " machine",
                "write a name or address at which all machines reach the task",
            )
    if not unresolved:
        yield ClusterFinding(
            OK, "names", f"resolve here: {list_names(dict.fromkeys(address.host for address in task_addresses))}"
        )


def own_ports(task_addresses: Sequence[TaskAddress]) -> Iterator[ClusterFinding]:
    """Checks that the ports of the tasks on this machine are free; skips ports on which a process already answers."""
    here = [address for address in task_addresses if address.is_local]
    free = [address for address in here if address.is_free]
    if free:
        yield ClusterFinding(OK, "ports", f"free on this machine: {list_names(address.name for address in free)}")
    for address in here:
        if address.problem:
            # The messages of `ports.check_port_free` end with the fix.
            text, _, fix = address.problem.rpartition("; ")
            yield ClusterFinding(FAIL, "ports", f"{address.job_name}-{address.task_index}: {text}", fix)
    low, high = ports.ephemeral_range()
    risky = [address for address in free if low <= address.port <= high]
    if risky:
        yield ClusterFinding(
            WARNING,
            "ports",
            f"{list_names(address.name for address in risky)}: the kernel takes ports {low}..{high} for outgoing"
            " connections, so another program may use the port when the task starts",
            f"choose ports below {low}" if low > ports.LOWEST_PICKED_PORT else f"choose ports above {high}",
        )
    if not here:
        hosts = dict.fromkeys(address.host for address in task_addresses)
        yield ClusterFinding(
            UNKNOWN, "ports", "no task is on this machine, so no port was tested", f"run this on {list_names(hosts)}"
        )


def others(task_addresses: Sequence[TaskAddress], *, is_running: bool) -> Iterator[ClusterFinding]:
    """Returns the findings about tasks on other machines that do not answer.

    Args:
        task_addresses: Address of every task.
        is_running: True if some task of the job answers, so that the silent ones are missing.
    """
    away = [address for address in task_addresses if not address.is_local and address.resolved.ips and address.problem]
    # A refused connection shows that the machine is there and only the task is missing.
    closed = [address for address in away if "refused" in address.problem]
    for address in away:
        if address not in closed:
            yield ClusterFinding(
                FAIL,
                "reach",
                f"{address.name}: {address.problem}",
                "start the machine, correct the address, or open the port in its firewall",
            )
    absent = closed + [address for address in task_addresses if address.is_free and is_running]
    if absent and is_running:
        yield ClusterFinding(
            WARNING,
            "reach",
            f"not running: {list_names(address.name for address in absent)}",
            "start it; the others wait for --start_timeout_secs",
        )
    elif closed:
        yield ClusterFinding(
            OK, "reach", f"the machine answers, and no task runs yet: {list_names(address.name for address in closed)}"
        )


def listening(local_ports: Sequence[tuple[str, int]], isolation: str | None) -> ClusterFinding:
    """Returns a finding about the interfaces on which ports listen, and whether outsiders can reach them.

    Args:
        local_ports: Task name and port of each task on this machine.
        isolation: The user's statement which isolation protects the ports; None without a statement.
    """
    shown = list_names(f"{port} of {name}" for name, port in local_ports)
    # TensorFlow listens on every interface, but a wrapper may have bound the port to loopback only.
    bound = set().union(*(network.listening_ips(port) for _, port in local_ports))
    listens = "listens" if bound else "will listen"
    only_loopback = bound and all(ipaddress.ip_address(ip).is_loopback for ip in bound)
    outside = {
        name: [ip for ip in ips if not ipaddress.ip_address(ip).is_loopback]
        for name, ips in network.interfaces().items()
    }
    reachable = [f"{ip} ({name})" for name, ips in outside.items() for ip in ips]
    if only_loopback:
        return ClusterFinding(OK, "open ports", f"port {shown} {listens} on loopback only: outsiders cannot reach it")
    where = f"port {shown} {listens} on every interface: {list_names(reachable) or 'only loopback is up'}"
    if not reachable:
        return ClusterFinding(OK, "open ports", f"{where}; no outsider can reach it")
    if isolation is not None:
        return ClusterFinding(OK, "open ports", f"{where}; --isolation states what keeps strangers away: {isolation}")
    is_public = any(ipaddress.ip_address(ip).is_global for ips in outside.values() for ip in ips)
    return ClusterFinding(
        WARNING,
        "open ports",
        f"{where}{', including a public address' if is_public else ''}; anyone who reaches it can run code as this"
        " user: TensorFlow has no authentication and cannot listen on one address only. This machine cannot tell"
        " whether a firewall protects the port",
        "protect the port, and state how with --isolation",
    )


def own_host(cluster: ClusterConfig, task_addresses: Sequence[TaskAddress]) -> ClusterFinding | None:
    """Returns a finding if this machine does not have the address of the task that the flags name; else None."""
    if cluster.job_name == "evaluator":
        return None
    own_task = next(p for p in task_addresses if (p.job_name, p.task_index) == (cluster.job_name, cluster.task_index))
    if own_task.is_local or not own_task.resolved.ips:
        return None
    return ClusterFinding(
        WARNING,
        "names",
        f"{own_task.name}: this machine has none of the addresses of {own_task.host}"
        f" ({', '.join(own_task.resolved.ips)}), so a task started here would not be found",
        "start it on that machine, unless a tunnel, NAT or service address leads here",
    )


def _task_address(job_name: str, task_index: int, address: str) -> TaskAddress:
    host, port = addresses.split_address(address, f"{job_name}-{task_index}")
    resolved = network.resolve(host)
    is_local = any(network.is_own(ip) for ip in resolved.ips)
    problem, is_free = "", False
    if is_local:
        try:
            ports.check_port_free(address)
            is_free = True
        except ClusterConfigError as error:
            # A port that is taken and answers may be the task itself, so it is not a problem here.
            problem = str(error) if network.fault_of(address) else ""
    elif resolved.ips:
        problem = network.fault_of(address)
    else:
        problem = f"the name {host} does not resolve: {resolved.problem}"
    return TaskAddress(job_name, task_index, address, host, port, resolved, is_local, problem, is_free)


def _means_itself(host: str) -> bool:
    """Returns whether an address always means the machine itself, by its text, as name files may differ."""
    return addresses.same_place(f"[{host}]:1" if ":" in host else f"{host}:1", "host")[0] == "localhost"
