"""Parses `host:port` addresses of tasks."""

from __future__ import annotations

import ipaddress
import re

from ps_trainer.errors import ClusterConfigError

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_UNIX = ("unix:", "unix-abstract:")
MAX_PORT = 65535
_PORT_DIGITS = 5


def split_address(address: str, where: str) -> tuple[str, int]:
    """Returns the host (an IPv6 host without its brackets) and the port of `host:port` or `[ipv6]:port`.

    Args:
        address: Text as the user gave it.
        where: Field that contains it ("--worker_hosts[1]"), for messages.

    Raises:
        ClusterConfigError: The text is not such an address, or the port is outside of 1..65535.
    """
    problem = f"{where}={address!r}"
    if not address:
        raise ClusterConfigError(f"{problem}: the address is empty; remove the extra comma or write host:port")
    if address.startswith(_UNIX):
        raise ClusterConfigError(f"{problem}: TensorFlow's server does not support unix sockets; write host:port")
    if scheme := _SCHEME.match(address):
        raise ClusterConfigError(
            f"{problem}: an address has no scheme; write {address[scheme.end() :] or 'host:port'!r}"
        )
    host, port_text = _split_host(address, problem)
    # `isdigit` alone also accepts digits such as "²", which `int` rejects.
    if not (port_text.isascii() and port_text.isdigit()):
        raise ClusterConfigError(f"{problem}: port {port_text!r} is not a number; write host:port with 1..{MAX_PORT}")
    # `int` rejects texts with thousands of digits by its own error, so only the last digits are converted.
    port = int(port_text[-_PORT_DIGITS:]) if not port_text[:-_PORT_DIGITS].strip("0") else MAX_PORT + 1
    if port == 0:
        raise ClusterConfigError(
            f"{problem}: with port 0 the system chooses a port that the other tasks cannot know; write a real port,"
            " or start all tasks on this machine with `ps_trainer local`, which finds free ports"
        )
    if port > MAX_PORT:
        raise ClusterConfigError(f"{problem}: port {port_text} is out of range; allowed are 1..{MAX_PORT}")
    return host, port


def same_place(address: str, where: str) -> tuple[str, int]:
    """Returns a key that is equal for two addresses if one machine cannot serve both.

    All loopback names count as one host, because TensorFlow's server binds its port on every interface.

    Raises:
        ClusterConfigError: An address is malformed.
    """
    host, port = split_address(address, where)
    host = host.lower()
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        # A final dot only says that the name is complete.
        return ("localhost" if host == "localhost" else host.rstrip("."), port)
    return ("localhost" if ip.is_loopback else ip.compressed, port)


def _split_host(address: str, problem: str) -> tuple[str, str]:
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        if not bracket or not _is_ipv6(host):
            raise ClusterConfigError(f"{problem}: not an IPv6 address in brackets; write it like [::1]:2222")
        if not rest.startswith(":") or rest == ":":
            raise ClusterConfigError(f"{problem}: the port is missing; write [{host}]:port, for example [{host}]:2222")
        return host, rest[1:]
    if address.count(":") > 1:
        raise ClusterConfigError(f"{problem}: more than one colon; write host:port, an IPv6 host as [::1]:2222")
    host, colon, port_text = address.partition(":")
    if not host:
        raise ClusterConfigError(f"{problem}: the host is missing; write host:port, for example localhost{address}")
    if not _HOST.fullmatch(host):
        raise ClusterConfigError(f"{problem}: {host!r} is not a host name or IP address; write host:port")
    if not colon or not port_text:
        raise ClusterConfigError(f"{problem}: the port is missing; write host:port, for example {host}:2222")
    return host, port_text


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
