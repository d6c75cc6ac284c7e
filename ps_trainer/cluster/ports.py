"""Checks whether a port of this machine is free, and picks free ports.

TensorFlow's server always listens on every interface, IPv4 and IPv6, whatever host its address names, and sets
SO_REUSEADDR. The probe here does the same. So it finds ports of listening sockets, and ignores connections of an ended
server that the kernel keeps for a while (TIME_WAIT).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import pathlib
import random
import socket
from collections.abc import Iterator

from ps_trainer.cluster import addresses
from ps_trainer.errors import ClusterConfigError

LOWEST_PICKED_PORT = 10_000
_LINUX_EPHEMERAL_RANGE = (32_768, 60_999)  # the kernel's default
_EPHEMERAL_RANGE_FILE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
_PROC = pathlib.Path("/proc")


def check_port_free(address: str) -> None:
    """Checks that this machine can serve on the port of `address`.

    Args:
        address: This task's own `host:port`.

    Raises:
        ClusterConfigError: The port is in use (the message names the process if /proc shows it), or this user may not
            use it.
    """
    _, port = addresses.split_address(address, "own address")
    try:
        with contextlib.closing(_bind_everywhere(port, reuse=True)) as probe:
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ClusterConfigError(
                f"port {port} of {address} is in use{_describe_listener(port)}; stop that process or choose another"
                " port"
            ) from error
        if error.errno == errno.EACCES:
            raise ClusterConfigError(
                f"port {port} of {address} may not be used by this user; choose one of 1024..{addresses.MAX_PORT}"
            ) from error
        raise ClusterConfigError(
            f"port {port} of {address} cannot be used: {error.strerror}; choose another port"
        ) from error


def pick_free_ports(n: int, range_file: pathlib.Path = _EPHEMERAL_RANGE_FILE) -> list[int]:
    """Returns `n` different random ports that are free now.

    They lie outside of the range from which the kernel takes ports for outgoing connections. Otherwise a connection
    could take a port before its server starts. Each port is held during the picking, so that no port is picked twice,
    and released afterwards.

    Args:
        n: Number of ports.
        range_file: File in which the kernel shows that range as two numbers.

    Raises:
        ClusterConfigError: This machine has fewer than `n` free ports.
    """
    low, high = ephemeral_range(range_file)
    every = range(LOWEST_PICKED_PORT, addresses.MAX_PORT + 1)
    outside = [port for port in every if not low <= port <= high]
    inside = [port for port in every if low <= port <= high]
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        # Ports inside of the range only if there are too few others.
        for port in itertools.chain(_at_random(outside), _at_random(inside)):
            if len(ports) == n:
                return ports
            try:
                held.enter_context(contextlib.closing(_bind_everywhere(port, reuse=False)))
            except OSError:
                continue  # another process uses it
            ports.append(port)
        if len(ports) == n:
            return ports
    raise ClusterConfigError(f"the tasks need {n} free ports, and this machine has {len(ports)}; start fewer tasks")


def _at_random(ports: list[int]) -> Iterator[int]:
    """Yields the ports in random order, so that two commands that start at the same time rarely pick the same ones."""
    # The rest of the order is not drawn: the kernel takes 0.1 s to give random numbers for all ports.
    source = random.SystemRandom()
    for left in range(len(ports), 0, -1):
        index = source.randrange(left)
        ports[index], ports[left - 1] = ports[left - 1], ports[index]
        yield ports[left - 1]


def _bind_everywhere(port: int, *, reuse: bool) -> socket.socket:
    """Returns a TCP socket bound to `port` on all interfaces.

    Without `reuse` no other socket can take the port as long as this one is open.
    """
    family = socket.AF_INET6 if _has_ipv6() else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            # One socket for both protocols, as TensorFlow's server has it. The default of the option differs between
            # systems.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if reuse:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("", port))
    except OSError:
        sock.close()
        raise
    return sock


def _has_ipv6() -> bool:
    """Returns whether an IPv6 socket can be bound here (IPv6 may be compiled in and switched off)."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("", 0))
    except OSError:
        return False
    return True


def ephemeral_range(range_file: pathlib.Path = _EPHEMERAL_RANGE_FILE) -> tuple[int, int]:
    """Returns the first and last port of the range that the kernel uses for outgoing connections."""
    try:
        low, high = (int(number) for number in range_file.read_text().split())
    except (OSError, ValueError):  # not Linux, or /proc is not mounted
        return _LINUX_EPHEMERAL_RANGE
    return low, high


def _describe_listener(port: int) -> str:
    """Returns the process that listens on `port`, as " by pid 123 (python run_ps.py …)"; empty if it is unknown."""
    inodes = _listening_inodes(port)
    for process in _PROC.glob("[0-9]*"):
        try:
            if any(_inode(link) in inodes for link in (process / "fd").iterdir()):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f" by pid {process.name} ({command[:80]})"
        except OSError:
            continue  # the process belongs to another user, or has just ended
    return ""


def _listening_inodes(port: int) -> set[str]:
    """Returns the inodes of the sockets with local port `port`, from the kernel's tables."""
    inodes: set[str] = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "self" / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        rows = (line.split() for line in lines)
        inodes.update(row[9] for row in rows if int(row[1].rpartition(":")[2], 16) == port)
    return inodes - {"0"}  # 0: no process owns the socket any more


def _inode(link: pathlib.Path) -> str:
    try:
        return link.readlink().name.removeprefix("socket:[").removesuffix("]")
    except OSError:
        return ""
