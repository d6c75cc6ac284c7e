"""How a model declares an option: default, help text and range, in the form that the trainer reads."""

from __future__ import annotations

import dataclasses
from typing import Any


def option(default: Any, help_text: str, **declared: Any) -> Any:
    """A dataclass field; the trainer rejects a value outside of its range, and lists help text and range.

    Args:
        default: of the field.
        help_text: what the option means, without its range.
        **declared: `least` and `most` (bounds that are allowed), `above` and `below` (bounds that are not), or
            `choices` (all that is allowed). A bound holds for each value of a tuple.
    """
    return dataclasses.field(default=default, metadata={"help": help_text, **declared})
