"""The settings of the last run in a folder, as its `config.json` holds them."""

from __future__ import annotations

import json
import pathlib
import typing
from typing import Any

from ps_trainer.config import TrainConfig


def read(logdir: pathlib.Path) -> dict[str, Any] | None:
    """Returns the settings that config.json holds for the last run in `logdir`; None if it has no valid ones."""
    try:
        train = json.loads((logdir / "config.json").read_text(encoding="utf-8"))["train"]
    except (OSError, ValueError, KeyError, TypeError):
        # Another program may have written a config.json of any form; it counts as none.
        return None
    hints = typing.get_type_hints(TrainConfig)
    is_sound = isinstance(train, dict) and all(_is_text(value, hints.get(name)) for name, value in train.items())
    return train if is_sound else None


def _is_text(value: Any, hint: Any) -> bool:
    """Returns whether a value out of JSON fits a setting of text or texts; True for settings of other types."""
    if hint == tuple[str, ...]:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return hint not in (str, str | None) or isinstance(value, str) or (value is None and hint is not str)
