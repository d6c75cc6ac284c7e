"""Lines of a step log, of which a test names only the fields that matter to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ps_trainer.metrics.step_record import StepRecord

_FIRST_STEP = StepRecord(
    worker=0,
    local_step=1,
    global_step=1,
    staleness=0,
    dropped=0,
    t_start=0.0,
    t_computed=None,
    t_applied=None,
    t_end=0.0,
    wall_time=0.0,
    injected_delay=0.0,
    loss=1.0,
    examples=1,
    cpu_user=0.0,
    cpu_sys=0.0,
)


def step_record(**fields: Any) -> StepRecord:
    """A step with these fields; the others are of a first step that takes no time."""
    return _FIRST_STEP._replace(**fields)


def log_of(steps: Iterable[StepRecord]) -> str:
    """The content of a step log."""
    return "".join(json.dumps(step.as_json()) + "\n" for step in steps)
