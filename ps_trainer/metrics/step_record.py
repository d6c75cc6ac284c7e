"""`StepRecord`: a step of one worker, as a line of its step log (`--step_log`). No TensorFlow."""

from __future__ import annotations

from typing import Any, NamedTuple


class StepRecord(NamedTuple):
    """A step of a worker. Times are in monotonic seconds, which all processes of a machine share.

    Under rules that apply each gradient as it arrives, global_step − 1 − staleness is the version of the parameters
    that the worker read.

    Attributes:
        worker: Index of the worker.
        local_step: Number of the step on this worker, from 1.
        global_step: Value of global_step that the step returned.
        staleness: Staleness of the gradient on ps 0; None if it was dropped, or nothing was pushed.
        dropped: 1 if the gradient was dropped, else 0.
        t_start: Time at which the step begins, with its parameters already pulled. In a call of several steps they may
            still be on the way.
        t_computed: Time at which the gradient is computed, `--straggler` delays included; None if it was not measured.
        t_applied: Time at which the update is applied, as far as this worker waits for that; None if not measured.
        t_end: Time at which the parameters of the next step are pulled, and the step ends. In a call of several steps
            it ends as soon as its update is made.
        wall_time: Time of t_end in seconds since the epoch.
        injected_delay: Seconds by which `--straggler` delayed the gradient, counted from t_start if it is paced; 0
            without it.
        loss: Loss of the batch; None if it is NaN or infinite, which JSON does not have.
        examples: Number of examples in the batch.
        cpu_user: User CPU seconds of the whole process since the step before.
        cpu_sys: System CPU seconds of the whole process since the step before.
        staleness_by_ps: Staleness on each ps task; None if there is one ps task.
    """

    worker: int
    local_step: int
    global_step: int
    staleness: int | None
    dropped: int
    t_start: float
    t_computed: float | None
    t_applied: float | None
    t_end: float
    wall_time: float
    injected_delay: float
    loss: float | None
    examples: int
    cpu_user: float
    cpu_sys: float
    staleness_by_ps: list[int] | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the line's JSON object, which has `staleness_by_ps` only if it is known."""
        content = self._asdict()
        if self.staleness_by_ps is None:
            del content["staleness_by_ps"]
        return content
