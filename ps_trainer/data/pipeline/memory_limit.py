"""The limit on how much memory generated examples take."""

from __future__ import annotations

from ps_trainer.data.pipeline.data_source import MAX_ARRAY_BYTES
from ps_trainer.errors import OptionError


def check_bytes(num_bytes: int, names: str) -> None:
    """Raises OptionError where generated examples take more memory than `ArraySource` allows.

    Args:
        num_bytes: of the larger of the two splits.
        names: the options to lower, in words.
    """
    if num_bytes > MAX_ARRAY_BYTES:
        raise OptionError(f"the examples take {num_bytes} bytes, the most is {MAX_ARRAY_BYTES}; lower {names}")
