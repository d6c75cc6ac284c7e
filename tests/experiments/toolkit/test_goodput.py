"""Plain transfers between shaped hosts."""

from __future__ import annotations

import pytest

from ps_trainer.errors import OptionError
from ps_trainer.experiments.toolkit import goodput
from ps_trainer.launch import hosts_iproute

PROBLEM = hosts_iproute.probe().problem


@pytest.mark.skipif(bool(PROBLEM), reason=f"no shaped hosts here: {PROBLEM}")
def test_a_link_carries_its_rate_and_no_more():
    before = hosts_iproute.namespaces()
    (rate,) = goodput.measure("80mbit", 1)
    assert 0 < rate < 80e6 / 8  # headers take a share of it; a busy machine carries less, never more
    prefix = hosts_iproute.owner().namespace("")
    assert not [name for name in hosts_iproute.namespaces() if name.startswith(prefix) and name not in before]


def test_a_missing_rate_is_rejected_before_hosts_are_made():
    with pytest.raises(OptionError, match="--rate='fast' is not a rate"):
        goodput.measure("fast")
