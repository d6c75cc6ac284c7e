"""`RecoveryPolicy`: whether, and for how long, a worker that lost a part of the job waits for it to come back."""

from __future__ import annotations

import uuid

from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, LostError, RunError, StartTimeoutError

# Losses in a row without a step in between, after which a worker gives up: what is lost each time is not coming back.
_MAX_FRUITLESS_RETRIES = 5


class RecoveryPolicy:
    """Keeps the losses of one worker.

    Args:
        config: the run.

    Attributes:
        loss: the last one; None before the first.
        reached: the largest global_step that this worker has seen.
        is_possible: whether a worker of this run can go on in its process. False for rules whose workers are joined
            by a collective: TensorFlow keeps a broken one broken until the process ends.
    """

    def __init__(self, config: TrainConfig):
        self._config = config
        self._in_vain = 0
        self.loss: LostError | None = None
        self.reached = 0
        self.is_possible = True

    def may_follow(self, error: BaseException) -> bool:
        """Whether the worker goes on after `error`."""
        limit = self._config.recover_timeout_secs
        return (
            isinstance(error, LostError) and self.is_possible and limit > 0 and self._in_vain < _MAX_FRUITLESS_RETRIES
        )

    def note(self, loss: LostError) -> str:
        """Counts a loss; returns what the worker does now, in words."""
        self.loss = loss
        self._in_vain += 1
        return f"{loss}; waiting up to {self._config.recover_timeout_secs:.0f} s for it to come back"

    def note_step(self, global_step: int) -> None:
        """Counts a step."""
        self._in_vain = 0
        self.reached = max(self.reached, global_step)

    def check_start(self) -> None:
        """Called when a run has begun from step 0; raises CheckpointError where this worker has been further."""
        if self.reached:
            raise CheckpointError(
                f"the run has begun again from step 0, and this worker was at step {self.reached}: state was lost of"
                " which there was no checkpoint; give a --logdir so that the next loss can be recovered from"
            )

    def start_name(self, step: int, *, is_first: bool) -> str:
        """Names this start of the worker, for its random numbers (`graph.build`).

        Starts at a checkpoint are named by its step, so that a run which is gone on with can be repeated; of a worker
        that comes back into a running run no start is like another.

        Args:
            step: global_step at which the run began or went on.
            is_first: whether this worker's process is the first to take part in the run.
        """
        if self.loss is not None or not is_first:
            return f"join {uuid.uuid4().hex[:12]}"
        return f"step {step}" if step else ""

    @property
    def limit_secs(self) -> float:
        """How long to wait for other tasks now."""
        return self._config.start_timeout_secs if self.loss is None else self._config.recover_timeout_secs

    def explain(self, error: StartTimeoutError) -> RunError:
        """The error to end with when somebody did not come in time."""
        return error if self.loss is None else type(self.loss)(f"{self.loss}. {error}")
