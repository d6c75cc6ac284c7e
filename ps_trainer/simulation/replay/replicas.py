"""Arithmetic of rules whose workers train replicas: `ssp_cache`, `downpour`, and those that average replicas."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps_trainer.simulation.replay import gradients as gradients_lib
from ps_trainer.simulation.replay.base import Arithmetic, Entry
from ps_trainer.simulation.replay.compute_session import ComputeSession
from ps_trainer.simulation.replay.gradients import Gradient, Values
from ps_trainer.simulation.replay.training_setup import WorkerResult
from ps_trainer.simulation.schedule import Schedule, StepColumns


class ReplicaRule(Arithmetic):
    """Common part of the rules whose workers train replicas.

    Attributes:
        replicas: Parameters at which each worker computes.
        known: Last global_step that each worker knows, which decides its scheduled learning rate.
    """

    holds_tables = False

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        super().__init__(session, schedule, options)
        self.replicas: list[Values] = [self.center.params] * self.num_workers
        self.known = [0] * self.num_workers


class SspCache(ReplicaRule):
    """`ssp_cache`: each gradient is an update; a worker computes at its copy, and adds to it what its pushes changed.

    With an optimizer other than SGD this change is what the worker's gradient made of the parameters on the ps tasks.
    """

    holds_tables = True

    def take(self, entry: Entry) -> WorkerResult:
        worker = entry.worker
        if entry.version != self.known[worker]:  # a pull comes after a push of this worker, so its version is new
            self.replicas[worker], self.known[worker] = self.pulled_values(entry), entry.version
        computed = self.session.compute(worker, self.replicas[worker])
        before = self.center.params
        self.apply(computed.gradient)
        change = gradients_lib.difference(self.center.params, before)
        self.replicas[worker] = gradients_lib.move(self.replicas[worker], change)
        return computed


class Downpour(ReplicaRule):
    """`downpour`: W ← optimizer(W, sum of n_push gradients); the replica moves by SGD and fetches W every n_fetch."""

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        super().__init__(session, schedule, options)
        self._accrued: list[list[Gradient]] = [[] for _ in range(self.num_workers)]

    def reads(self, steps: StepColumns) -> np.ndarray:
        return steps.local_step % self.options.n_fetch == 0

    def take(self, entry: Entry) -> WorkerResult:
        worker = entry.worker
        if entry.local_step % self.options.n_fetch == 0:
            self.replicas[worker], self.known[worker] = self.pulled_values(entry), entry.version
        computed = self.session.compute(worker, self.replicas[worker])
        self._accrued[worker].append(computed.gradient)
        if (entry.local_step + 1) % self.options.n_fetch:
            self.replicas[worker] = self._descend(worker, computed.gradient)
        if entry.is_last:
            self.apply(gradients_lib.total(self._accrued[worker]))
            self._accrued[worker], self.known[worker] = [], self.version
        return computed

    def _descend(self, worker: int, gradient: Gradient) -> Values:
        """Returns the replica after a step of plain SGD, with the learning rate at the last known global_step."""
        rate = self.session.learning_rate(self.known[worker])
        return gradients_lib.move(self.replicas[worker], gradients_lib.dense(gradient), -rate)


class Easgd(ReplicaRule):
    """`easgd`: x ← x − α (x − x̃) − η g, x̃ ← x̃ + α (x − x̃); with momentum the gradient is computed at x + δ v.

    x̃ in the difference is the center that the worker has read. The ps tasks add the difference to the center at the
    time of its arrival.
    """

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        super().__init__(session, schedule, options)
        self._alpha = np.float32(options.alpha_of(self.num_workers))
        self._momentum = np.float32(options.momentum)
        zeros = {name: np.zeros_like(value) for name, value in self.center.params.items()}
        self._velocities: list[Values] = [zeros] * self.num_workers

    def reads(self, steps: StepColumns) -> np.ndarray:
        return steps.update >= 0

    def take(self, entry: Entry) -> WorkerResult:
        # As on the cluster, the replica is y = x + δ v.
        worker, momentum = entry.worker, self._momentum
        velocity, ahead = self._velocities[worker], self.replicas[worker]
        computed = self.session.compute(worker, ahead)
        rate = np.float32(self.session.learning_rate(self.known[worker]))
        new_velocity = {
            name: momentum * velocity[name] - rate * gradient
            for name, gradient in gradients_lib.dense(computed.gradient).items()
        }
        moved = {name: v + momentum * (v - velocity[name]) for name, v in new_velocity.items()}
        self.replicas[worker] = gradients_lib.move(ahead, moved)
        if entry.is_last:
            center = self.pulled_values(entry)
            pull = {
                name: self._alpha * (ahead[name] - momentum * velocity[name] - center[name]) for name in new_velocity
            }
            self.replicas[worker] = gradients_lib.move(self.replicas[worker], pull, -1.0)
            self.move_to(gradients_lib.move(self.center.params, pull))
            self.known[worker] = self.version
        self._velocities[worker] = velocity | new_velocity
        return computed


class ModelAveraging(ReplicaRule):
    """`model_averaging`: local steps with the run's optimizer and slots of each worker; then x̄ ← (1/n) Σ x_i."""

    def __init__(self, session: ComputeSession, schedule: Schedule, options: Any):
        super().__init__(session, schedule, options)
        self._states = [session.create_state() for _ in range(self.num_workers)]
        self._num_applied = [0] * self.num_workers
        self._begins_round = [True] * self.num_workers
        self._sent: list[Values] = []

    def reads(self, steps: StepColumns) -> np.ndarray:
        """Returns True for the first step of each worker and for each step after a push."""
        begins = dict.fromkeys(range(self.num_workers), True)
        reads = np.empty(len(steps.worker), bool)
        for index, (worker, update) in enumerate(zip(steps.worker.tolist(), steps.update.tolist(), strict=True)):
            reads[index] = begins[worker]
            begins[worker] = update >= 0
        return reads

    def take(self, entry: Entry) -> WorkerResult:
        worker = entry.worker
        state = self._states[worker]
        if self._begins_round[worker]:
            self.replicas[worker] = state.params = self.pulled_values(entry)
        computed = self.session.compute(worker, state.params)
        num_applied = self._num_applied[worker]
        self.session.apply(state, computed.gradient, clock=entry.version, num_applied=num_applied)
        self._num_applied[worker] += 1
        self._begins_round[worker] = entry.update >= 0
        if entry.update >= 0:
            self._sent.append(self.values_to_send(worker, state.params))
        if entry.is_last:
            average, self._sent = gradients_lib.dense(gradients_lib.mean(self._sent)), []
            self.move_to(self.center_after(average))
        return computed

    def values_to_send(self, worker: int, params: Values) -> Values:
        """Returns what a worker sends: here its replica."""
        return params

    def center_after(self, average: Values) -> Values:
        """Returns the new center, given the average of the values that the workers have sent."""
        return average


class LocalSgd(ModelAveraging):
    """`local_sgd`: as `model_averaging`, with differences: x̄ ← x̄ + (1/n) Σ (x_i − x̄)."""

    def values_to_send(self, worker: int, params: Values) -> Values:
        return gradients_lib.difference(params, self.replicas[worker])

    def center_after(self, average: Values) -> Values:
        return gradients_lib.move(self.center.params, average)
