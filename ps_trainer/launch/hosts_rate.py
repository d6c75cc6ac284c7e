"""Parses rates of links in the notation of `tc`: `200mbit`, `1.5gbit`, `25mbps` (bytes)."""

from __future__ import annotations

import math
import re

from ps_trainer.errors import OptionError

MIN_BITS_PER_SEC = 10**6
MAX_BITS_PER_SEC = 10**10
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_RATE = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)((?P<factor>k|m|g|ki|mi|gi)?(?P<unit>bit|bps))?", re.IGNORECASE)


def parse_rate(text: str, flag: str) -> int:
    """Returns the bits per second that a rate in the units of `tc` means: `bit` is a bit, `bps` a byte per second.

    Args:
        text: Rate such as "200mbit"; a number alone is in bits per second; case does not matter.
        flag: Flag that the rate came from ("--rate"), for messages.

    Raises:
        OptionError: The text is not a rate, or the rate is outside of `MIN_BITS_PER_SEC`..`MAX_BITS_PER_SEC`.
    """
    match = _RATE.fullmatch(text.strip())
    if not match:
        raise OptionError(f"{flag}={text!r} is not a rate; write a number with bit, kbit, mbit or gbit: {flag}=200mbit")
    in_bits = 8 if (match["unit"] or "").lower() == "bps" else 1
    rate = float(match["number"]) * _FACTORS[(match["factor"] or "").lower()] * in_bits
    if not MIN_BITS_PER_SEC <= rate <= MAX_BITS_PER_SEC:
        raise OptionError(f"{flag}={text!r} is {rate:,.0f} bit/s; allowed are 1mbit..10gbit")
    return math.floor(rate)
