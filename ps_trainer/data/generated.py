"""What generated datasets share: the checks of their options."""

from __future__ import annotations

from ps_trainer.data.base import MAX_ARRAY_BYTES
from ps_trainer.errors import OptionError


def check_options(options: object, **least: float) -> None:
    """Raises OptionError where an option is below its least value, or `options.seed` is no seed of NumPy's.

    Args:
        options: with `seed`.
        **least: name of an option -> its least value.
    """
    for name, value in least.items():
        if getattr(options, name) < value:
            raise OptionError(f"{name}={getattr(options, name)} is too small; the least is {value}")
    if not 0 <= options.seed < 2**32:
        raise OptionError(f"seed={options.seed} must be in 0 .. 2**32 - 1")


def check_bytes(num_bytes: int, names: str) -> None:
    """Raises OptionError where generated examples take more memory than `ArraySource` allows.

    Args:
        num_bytes: of the larger of the two splits.
        names: the options to lower, in words.
    """
    if num_bytes > MAX_ARRAY_BYTES:
        raise OptionError(f"the examples take {num_bytes} bytes, the most is {MAX_ARRAY_BYTES}; lower {names}")
