"""Tests of ps_trainer.cluster.addresses."""

from __future__ import annotations

import pytest

from ps_trainer.cluster import addresses
from ps_trainer.errors import ClusterConfigError


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("localhost:2222", "localhost", 2222),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("ps-0.ps_service.default.svc:65535", "ps-0.ps_service.default.svc", 65535),
        ("[::1]:2222", "::1", 2222),
        ("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222),
    ],
)
def test_splits_host_and_port(address, host, port):
    assert addresses.split_address(address, "--ps_hosts[0]") == (host, port)


@pytest.mark.parametrize(
    ("address", "fix"),
    [
        ("", "extra comma"),
        ("h1", "port is missing; write host:port, for example h1:2222"),
        ("h1:", "port is missing; write host:port, for example h1:2222"),
        (":2222", "host is missing; write host:port, for example localhost:2222"),
        ("h1:http", "port 'http' is not a number"),
        ("h1:-1", "port '-1' is not a number"),
        ("h1:0", "write a real port, or start all tasks on this machine with `ps_trainer local`"),
        ("h1:65536", "port 65536 is out of range; allowed are 1..65535"),
        ("grpc://h1:2222", "has no scheme; write 'h1:2222'"),
        ("unix:/tmp/socket", "does not support unix sockets; write host:port"),
        ("::1:2222", "an IPv6 host as [::1]:2222"),
        ("[::1]", "port is missing; write [::1]:port"),
        ("[::1]:", "port is missing; write [::1]:port"),
        ("[::1:2222", "write it like [::1]:2222"),
        ("[h1]:2222", "write it like [::1]:2222"),
        ("h1 :2222", "'h1 ' is not a host name"),
        ("h1/x:2222", "'h1/x' is not a host name"),
    ],
)
def test_rejects_a_malformed_address_with_field_and_fix(address, fix):
    with pytest.raises(ClusterConfigError) as caught:
        addresses.split_address(address, "--ps_hosts[3]")
    assert str(caught.value).startswith(f"--ps_hosts[3]={address!r}: ")
    assert fix in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("localhost:2222", "127.0.0.1:2222"),
        ("127.0.0.1:2222", "127.0.0.2:2222"),
        ("localhost:2222", "[::1]:2222"),
        ("Host:2222", "host.:02222"),
        ("[fe80::1]:1", "[fe80:0::1]:1"),
    ],
)
def test_knows_two_spellings_of_one_place(one, other):
    assert addresses.same_place(one, "a") == addresses.same_place(other, "b")


@pytest.mark.parametrize(
    ("one", "other"), [("h1:2222", "h2:2222"), ("h1:2222", "h1:2223"), ("localhost:1", "10.0.0.1:1")]
)
def test_tells_different_places_apart(one, other):
    assert addresses.same_place(one, "a") != addresses.same_place(other, "b")
