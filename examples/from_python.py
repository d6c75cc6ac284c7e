"""A training from Python: instances as model and data, and a callback that stops the run."""

from __future__ import annotations

import ps_trainer
from examples.spirals import Spirals
from examples.wide_mlp import WideMlp

MAX_LOSS = 0.1


class LossWatch:
    """A callback that ends the run when the mean loss of 20 steps is small."""

    def __init__(self, max_loss: float):
        self._max_loss = max_loss
        self._losses: list[float] = []

    def __call__(self, step: ps_trainer.Step) -> None:
        """Called after each step of each worker."""
        self._losses = [*self._losses, step.loss][-20:]
        mean = sum(self._losses) / len(self._losses)
        if len(self._losses) == 20 and mean < self._max_loss:
            raise ps_trainer.StopTraining(f"the mean loss is {mean:.3f} at step {step.global_step}")


def main() -> None:
    """Trains on two spirals, and prints the result."""
    result = ps_trainer.train(
        model=WideMlp(WideMlp.Options(units=64)),
        data=Spirals(Spirals.Options(noise=0.02)),
        optimizer="momentum",
        learning_rate=0.05,
        max_steps=2000,
        callbacks=LossWatch(MAX_LOSS),
    )
    print(result)
    print(f"stopped: {result.stop_reason}")
    print(f"staleness: {dict(result.staleness)}")


if __name__ == "__main__":
    main()
