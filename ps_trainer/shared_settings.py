"""How the settings of a worker differ from the chief's, in words.

A setting must agree where a difference makes the result wrong or meaningless. The others belong to one task (its
folders, threads, patience), or only the chief looks at them. Every field of `TrainConfig` says which, and why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_trainer.config import TrainConfig

_REASONS = {field.name: field.metadata.get("shared") for field in dataclasses.fields(TrainConfig)}


def differences(chief: Mapping[str, Any], own: Mapping[str, Any], task_name: str) -> list[str]:
    """The settings of `own` that the chief has otherwise: flag, both values, why they must agree, and the fix.

    Args:
        chief: the chief's `TrainConfig.agreement`.
        own: this task's, or a part of it.
        task_name: whose `own` is, for the words.
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
