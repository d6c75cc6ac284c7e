from __future__ import annotations

import pytest

from ps_trainer.errors import OptionError
from ps_trainer.launch.hosts_rate import parse_rate


@pytest.mark.parametrize(
    ("text", "bits_per_sec"),
    [
        ("200mbit", 200 * 10**6),
        ("1.5Gbit", 1_500_000_000),
        (" 8000kbit ", 8_000 * 10**3),
        ("2000000", 2_000_000),
        ("2000000bit", 2_000_000),
        ("25mbps", 25 * 10**6 * 8),
        ("250000bps", 250_000 * 8),
        ("1mibit", 2**20),
        ("1MiBps", 2**20 * 8),
        ("1mbit", 10**6),
        ("10gbit", 10**10),
    ],
)
def test_reads_the_units_of_tc(text, bits_per_sec):
    assert parse_rate(text, "--rate") == bits_per_sec


@pytest.mark.parametrize("text", ["", "fast", "mbit", "-1mbit", "200 mb/s", "10%", "1e9", "200mbit 100mbit", "1tbit"])
def test_rejects_a_text_that_is_not_a_rate_and_shows_an_example(text):
    with pytest.raises(OptionError, match=r"--ps_rate=.* is not a rate; .*--ps_rate=200mbit"):
        parse_rate(text, "--ps_rate")


@pytest.mark.parametrize("text", ["0", "999999", "999kbit", "10.1gbit", "2gbps"])
def test_rejects_a_rate_out_of_range_and_shows_its_value(text):
    with pytest.raises(OptionError, match=r"is [\d,]+ bit/s; allowed are 1mbit\.\.10gbit"):
        parse_rate(text, "--rate")
