"""The one way in which optimizer and schedule options refuse a value."""

from __future__ import annotations

from ps_trainer.errors import OptionError


def require(is_allowed: bool, name: str, value: object, allowed: str) -> None:
    """Raises OptionError unless `is_allowed`.

    Write the condition so that NaN fails it: `0 <= x < 1`, not `not x < 0`.

    Args:
        is_allowed: whether `value` may be used.
        name: the option.
        value: what was given.
        allowed: what may be given instead, with a usual value where there is one; ends the sentence "must be".
    """
    if not is_allowed:
        raise OptionError(f"{name}={value} is not allowed: it must be {allowed}")
