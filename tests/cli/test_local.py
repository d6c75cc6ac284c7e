from __future__ import annotations

import pytest

from ps_trainer.cli.local import LocalFlags, create_hosts
from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.launch.hosts import LocalHosts


def test_by_default_tasks_share_this_machines_network():
    assert isinstance(create_hosts(LocalFlags()), LocalHosts)


@pytest.mark.parametrize(
    ("flags", "summary"),
    [
        ({}, "ps without limit, workers without limit"),
        ({"rate": "200mbit"}, "ps 200 mbit/s, workers 200 mbit/s"),
        ({"rate": "200mbit", "ps_rate": "1gbit"}, "ps 1000 mbit/s, workers 200 mbit/s"),
        ({"worker_rate": "12.5mbps"}, "ps without limit, workers 100 mbit/s"),
    ],
)
def test_rates_of_shaped_hosts(flags, summary):
    assert create_hosts(LocalFlags(hosts="netns", **flags)).summary == f"network namespaces, {summary}"


def test_unknown_hosts_name_the_known_ones():
    with pytest.raises(UnknownNameError, match="--hosts=netsn: unknown; did you mean netns. known: local, netns"):
        create_hosts(LocalFlags(hosts="netsn"))


@pytest.mark.parametrize("name", ["rate", "ps_rate", "worker_rate"])
def test_a_rate_without_shaped_hosts_says_what_to_add(name):
    with pytest.raises(OptionError, match=f"--{name}=200mbit needs a link .*add --hosts=netns"):
        create_hosts(LocalFlags(**{name: "200mbit"}))


@pytest.mark.parametrize("name", ["rate", "ps_rate", "worker_rate"])
def test_a_text_that_is_not_a_rate_is_an_error_that_names_its_flag(name):
    with pytest.raises(OptionError, match=f"--{name}='fast' is not a rate"):
        create_hosts(LocalFlags(hosts="netns", **{name: "fast"}))
