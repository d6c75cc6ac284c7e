"""Declares an option of a model, with default, help text and range, in the form that the trainer reads."""

from __future__ import annotations

import dataclasses
from typing import Any


def option(default: Any, help_text: str, **declared: Any) -> Any:
    """Returns a dataclass field. The trainer rejects a value outside of its range, and lists help text and range.

    Args:
        default: Default value of the field.
        help_text: Meaning of the option, without its range.
        **declared: Range of the value: `least` and `most` (allowed bounds), `above` and `below` (bounds that are not
            allowed themselves), or `choices` (all allowed values). A bound holds for each value of a tuple.
    """
    return dataclasses.field(default=default, metadata={"help": help_text, **declared})
