"""Describes how the settings of a worker differ from the settings of the chief.

All workers must share a setting if a difference would make the result wrong or meaningless. Other settings belong to
one task (its folders, threads, timeouts), or only the chief reads them. Every field of `TrainConfig` says which it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_trainer.config import TrainConfig

_REASONS = {field.name: field.metadata.get("shared") for field in dataclasses.fields(TrainConfig)}


def differences(chief: Mapping[str, Any], own: Mapping[str, Any], task_name: str) -> list[str]:
    """Returns one line for each setting that differs: flag, both values, why they must be equal, and the fix.

    Args:
        chief: Shared settings of the chief, from `TrainConfig.agreement`.
        own: Shared settings of another task, or a part of them.
        task_name: Name of that other task.
    """
    return [
        f"--{name}: chief {chief.get(name)!r}, {task_name} {own[name]!r}"
        f" ({_REASONS.get(name, 'all tasks belong to one cluster')}; {_fix(name, chief.get(name))})"
        for name in own
        if chief.get(name) != own[name]
    ]


def _fix(name: str, chief: Any) -> str:
    if isinstance(chief, list | tuple):
        given = " ".join(f"--{name}={value}" for value in chief)
        return f"give it {given}" if given else f"give it no --{name}"
    return f"give it --{name}={'none' if chief is None else chief}"
