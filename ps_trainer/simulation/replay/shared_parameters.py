"""Arithmetic of rules whose workers compute with the parameters of the ps tasks, alone or in groups."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_trainer.simulation.replay import gradients as gradients_lib
from ps_trainer.simulation.replay.base import Arithmetic, Entry
from ps_trainer.simulation.replay.compute_session import ComputeSession
from ps_trainer.simulation.replay.gradients import Gradient, Values
from ps_trainer.simulation.replay.training_setup import WorkerResult
from ps_trainer.simulation.schedule import LOCAL, Schedule


class Mean(Arithmetic):
    """Applies the mean of an update's gradients: w ← optimizer(w, (1/c) Σ g_i(w of the version read)).

    Rules with one gradient per update (`async`, `hogwild`, `ssp`, `drop_stale`) apply that gradient.
    """

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        super().__init__(session, schedule, options)
        self._group: list[Gradient] = []

    def take(self, entry: Entry) -> WorkerResult:
        pulled = self.point(entry)
        computed = self.session.compute(entry.worker, pulled)
        if entry.update == LOCAL:
            self.hold(entry, computed.gradient)
        else:
            gradient = self.gradient_to_push(entry, computed.gradient, pulled)
            if entry.update >= 0:
                self._group.append(gradient)
        if entry.is_last:
            gradient, self._group = gradients_lib.mean(self._group), []
            self.apply(gradient, rate_factor=self.rate_factor(entry))
        return computed

    def point(self, entry: Entry) -> Values:
        """Returns the parameters at which the gradient is computed."""
        return self.pulled_values(entry)

    def hold(self, entry: Entry, gradient: Gradient) -> None:
        """Keeps a gradient that is not pushed; the base class ignores it."""

    def gradient_to_push(self, entry: Entry, gradient: Gradient, pulled: Values) -> Gradient:
        """Returns the gradient that enters the group; also called for gradients that are then dropped."""
        return gradient

    def rate_factor(self, entry: Entry) -> float:
        """Returns the factor of the learning rate in the update that a step completes."""
        return 1.0


class DenseMean(Mean):
    """`all_reduce`: as `Mean`, for models without tables. All replicas and slots are equal, so one of each is kept."""

    holds_tables = False


class StalenessAware(Mean):
    """`staleness_aware`: divides the learning rate by max(1, τ)."""

    def rate_factor(self, entry: Entry) -> float:
        return 1.0 / max(entry.staleness, 1)


class DcAsgd(Mean):
    """`dc_asgd`: g + λ g ⊙ g ⊙ (w − w_pulled); adaptive: λ / √(s + ε), s the moving average of g ⊙ g."""

    holds_tables = False
    _DECAY, _EPSILON = np.float32(0.95), np.float32(1e-7)

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        super().__init__(session, schedule, options)
        self._strength = np.float32(options.strength)
        self._mean_squares: dict[str, np.ndarray] = {}

    def gradient_to_push(self, entry: Entry, gradient: Gradient, pulled: Values) -> Gradient:
        now = self.center.params
        return {
            name: g + self._strength_of(name, g) * g * g * (now[name] - pulled[name])
            for name, g in gradients_lib.dense(gradient).items()
        }

    def _strength_of(self, name: str, gradient: np.ndarray) -> np.ndarray | np.float32:
        if not self.options.adaptive:
            return self._strength
        before = self._mean_squares.get(name, np.float32(0))
        after = self._DECAY * before + (1 - self._DECAY) * gradient * gradient
        self._mean_squares[name] = after
        return self._strength / np.sqrt(after + self._EPSILON)


class Accumulate(Mean):
    """`accumulate`: a worker sums up the gradients of `steps` batches at the same dense parameters, then pushes.

    As on the cluster, each step reads the rows of tables again.
    """

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        super().__init__(session, schedule, options)
        self._held: list[list[Gradient]] = [[] for _ in range(self.num_workers)]
        self._tables: list[Values] = [{} for _ in range(self.num_workers)]

    def point(self, entry: Entry) -> Values:
        return self.pulled_values(entry) | self._tables[entry.worker]

    def hold(self, entry: Entry, gradient: Gradient) -> None:
        """Keeps the gradient; the worker's next step begins at this moment and reads its rows now."""
        self._held[entry.worker].append(gradient)
        self._tables[entry.worker] = {name: self.center.params[name] for name in self.session.tables}

    def gradient_to_push(self, entry: Entry, gradient: Gradient, pulled: Values) -> Gradient:
        summed = gradients_lib.total([*self._held[entry.worker], gradient])
        self._held[entry.worker], self._tables[entry.worker] = [], {}
        return gradients_lib.scaled_gradient(summed, 1.0 / self.options.steps) if self.options.average else summed
