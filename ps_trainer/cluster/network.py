"""Asks this machine about its network: names, connections, interfaces. Every call has a deadline."""

from __future__ import annotations

import fcntl
import ipaddress
import pathlib
import socket
import struct
import threading
from typing import NamedTuple

from ps_trainer.cluster import addresses

RESOLVE_SECS = 5.0
CONNECT_SECS = 3.0

_PROC_NET = pathlib.Path("/proc/self/net")
_LISTEN = "0A"
_SIOCGIFADDR = 0x8915
_IFREQ_BYTES = 256


class Resolved(NamedTuple):
    """The result of resolving a host name.

    Attributes:
        ips: IP addresses of the host; empty if the name does not resolve.
        problem: Reason why the name does not resolve.
    """

    ips: tuple[str, ...]
    problem: str = ""


def resolve(host: str, deadline_secs: float = RESOLVE_SECS) -> Resolved:
    """Returns the IP addresses of a host name or IP address.

    The system's resolver may block for minutes, so a thread asks it, and the answer counts only before the deadline.
    """
    answer: list[Resolved] = []

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            answer.append(Resolved(tuple(dict.fromkeys(str(info[4][0]) for info in infos))))
        except (OSError, UnicodeError) as error:  # UnicodeError if a label has more than 63 characters
            answer.append(Resolved((), getattr(error, "strerror", None) or str(error)))

    thread = threading.Thread(target=ask, name="resolve", daemon=True)
    thread.start()
    thread.join(deadline_secs)
    return answer[0] if answer else Resolved((), f"no answer from the name service within {deadline_secs:g} s")


def fault_of(address: str, deadline_secs: float = CONNECT_SECS) -> str:
    """Returns the reason why a TCP connection to "host:port" fails; empty if it succeeds. Closes the connection.

    Args:
        address: Address to connect to; every IP address of its host is tried in turn.
        deadline_secs: Deadline in seconds for each IP address.
    """
    host, port = addresses.split_address(address, "address")
    resolved = resolve(host)
    fault = f"the name {host} does not resolve: {resolved.problem}"
    # A name may have an IPv6 address at which nothing listens, so each address gets a try.
    for ip in resolved.ips:
        try:
            socket.create_connection((ip, port), deadline_secs).close()
            return ""
        except ConnectionRefusedError:
            fault = "nothing listens there: connection refused"
        except TimeoutError:
            fault = f"no answer within {deadline_secs:g} s: its machine is off, or a firewall drops the packets"
        except OSError as error:
            fault = f"{error.strerror or error}"
    return fault


def is_own(ip: str) -> bool:
    """Returns whether an IP address is one of this machine's."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:  # a datagram socket touches no TCP port
            sock.bind((ip, 0))
    except OSError:
        return False
    return True


def interfaces() -> dict[str, list[str]]:
    """Returns the IP addresses of this machine's network interfaces by name; empty if the system does not list them."""
    found: dict[str, list[str]] = {}
    for _, name in socket.if_nameindex():
        ip = _ipv4_of(name)
        if ip:
            found.setdefault(name, []).append(ip)
    try:
        rows = [line.split() for line in (_PROC_NET / "if_inet6").read_text().splitlines()]
    except OSError:
        rows = []
    for row in rows:
        found.setdefault(row[5], []).append(str(ipaddress.IPv6Address(bytes.fromhex(row[0]))))
    return found


def listening_ips(port: int) -> set[str]:
    """Returns the local addresses on which this machine listens at a TCP port; "::" and "0.0.0.0" mean all."""
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        try:
            rows = [line.split() for line in (_PROC_NET / table).read_text().splitlines()[1:]]
        except OSError:
            continue
        for local, state in ((row[1], row[3]) for row in rows):
            ip, _, port_hex = local.partition(":")
            if state == _LISTEN and int(port_hex, 16) == port:
                words = struct.unpack(f">{len(ip) // 8}I", bytes.fromhex(ip))  # the kernel's words are in host order
                packed = struct.pack(f"={len(words)}I", *words)
                found.add(str(ipaddress.ip_address(packed)))
    return found


def _ipv4_of(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            # `struct ifreq`: 16 bytes for the name and its final zero, then family, port and, from byte 20 on, the
            # address.
            request = struct.pack(f"{_IFREQ_BYTES}s", name.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError:
            return ""  # no IPv4 address
