"""`RecoveryPolicy`: decides whether a worker waits after another task was lost, and for how long."""

from __future__ import annotations

import uuid

from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, LostError, RunError, StartTimeoutError

# Consecutive losses without a step in between, after which a worker gives up: more attempts would fail the same way.
_MAX_FRUITLESS_RETRIES = 5


class RecoveryPolicy:
    """Records the losses that one worker meets, and decides what the worker does.

    Args:
        config: Configuration of the run.

    Attributes:
        loss: Error of the last loss; None before the first.
        reached: Largest global_step that this worker has seen.
        is_possible: Whether this worker can continue in its process. False under rules with collectives: after a
            failure, TensorFlow keeps a collective unusable until the process ends.
    """

    def __init__(self, config: TrainConfig):
        self._config = config
        self._fruitless_retries = 0
        self.loss: LostError | None = None
        self.reached = 0
        self.is_possible = True

    def may_follow(self, error: BaseException) -> bool:
        """Returns whether the worker continues after `error`."""
        limit = self._config.recover_timeout_secs
        return (
            isinstance(error, LostError)
            and self.is_possible
            and limit > 0
            and self._fruitless_retries < _MAX_FRUITLESS_RETRIES
        )

    def note(self, loss: LostError) -> str:
        """Counts a loss; returns a message that says what the worker does now."""
        self.loss = loss
        self._fruitless_retries += 1
        return f"{loss}; waiting up to {self._config.recover_timeout_secs:.0f} s for it to rejoin"

    def note_step(self, global_step: int) -> None:
        """Counts a step."""
        self._fruitless_retries = 0
        self.reached = max(self.reached, global_step)

    def check_start(self) -> None:
        """Checks a run that began at step 0.

        Raises:
            CheckpointError: This worker has seen a later step, so the run has lost state.
        """
        if self.reached:
            raise CheckpointError(
                f"the run restarted from step 0, and this worker was at step {self.reached}: the lost state was in no"
                " checkpoint; give a --logdir, so that the next loss can be recovered from a checkpoint"
            )

    def start_name(self, step: int, *, is_first: bool) -> str:
        """Names this start of the worker, from which its random numbers are derived (`graph.build`).

        A start from a checkpoint is named after the step, so that a continued run can be repeated exactly. Each return
        of a worker to a running run has its own name.

        Args:
            step: Value of global_step at which the run began or continued.
            is_first: Whether this worker's process is the first to take part in the run.
        """
        if self.loss is not None or not is_first:
            return f"join {uuid.uuid4().hex[:12]}"
        return f"step {step}" if step else ""

    @property
    def limit_secs(self) -> float:
        """Limit of a wait for other tasks at this time, in seconds."""
        return self._config.start_timeout_secs if self.loss is None else self._config.recover_timeout_secs

    def explain(self, error: StartTimeoutError) -> RunError:
        """Adds the loss that caused a wait to the error of the wait, if there was one."""
        # Keeps the class of the loss, by which the launcher learns that this task failed because of another one.
        return error if self.loss is None else type(self.loss)(f"{self.loss}. {error}")
