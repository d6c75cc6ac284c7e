"""NumPy forms of the rules that train a replica on each worker, under the scripts of `tests.updates.scripted`.

All train `script.Linear` with batches of `scripted.BATCH_SIZE`, and two workers, if not stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.testing import oracles, script
from tests.testing.oracles import Values
from tests.updates.scripted import BATCH_SIZE, MODELS, Optimizer, Played


def combined(*terms: tuple[float, Values]) -> Values:
    """The sum of factor · values over all terms, for each variable."""
    return {name: sum(np.float32(factor) * value[name] for factor, value in terms) for name in terms[0][1]}


class WorkerReplica:
    """One worker's replica, and the results of its steps.

    Args:
        index: Index of the worker.
        params: Initial values of the replica.
        num_workers: Number of workers in the cluster.
    """

    def __init__(self, index: int, params: Values, num_workers: int = 2):
        self.index = index
        self.num_workers = num_workers
        self.copy = params
        self.count = 0
        self.known = 0
        self.fetched_at = 0
        self.losses: list[float] = []
        self.staleness: list[list[int]] = []
        self.global_steps: list[int] = []

    def gradient(self) -> Values:
        """Begins a step: the gradient of its batch at the replica."""
        batch = script.worker_batch(self.index, self.num_workers, BATCH_SIZE, self.count)
        loss, gradient = oracles.linear(self.copy, batch)
        self.count += 1
        self.losses.append(loss)
        return gradient

    def end_step(self, staleness: int | None) -> None:
        """Records the step's results; a step without a staleness was local."""
        self.global_steps.append(self.known)
        self.staleness.append([] if staleness is None else [staleness])


def played(workers: Sequence[WorkerReplica], values: list[Values]) -> Played:
    """The recorded results, in the form of a played script."""
    return Played(
        values, [w.losses for w in workers], [w.staleness for w in workers], [w.global_steps for w in workers]
    )


def downpour(
    entries: Sequence[int],
    n_push: int,
    n_fetch: int,
    learning_rate: float,
    optimizer: str = "sgd",
    schedule: Callable[[int], float] = lambda step: 1.0,
    num_workers: int = 2,
) -> Played:
    """Rule `downpour`, where the workers make their steps one after the other.

    Args:
        entries: Worker of each step.
        n_push: Number of steps between two pushes.
        n_fetch: Number of steps between two fetches.
        learning_rate: Learning rate before the schedule.
        optimizer: Optimizer on the ps.
        schedule: Factor of the learning rate at a global step.
        num_workers: Number of workers in the cluster.
    """
    params, clock, values = script.initial_values(script.Linear()), 0, []
    workers = [WorkerReplica(index, params, num_workers) for index in range(num_workers)]
    accrued = [combined((0.0, params)) for _ in workers]
    apply = Optimizer(optimizer).apply
    for index in entries:
        worker = workers[index]
        gradient = worker.gradient()
        accrued[index] = combined((1.0, accrued[index]), (1.0, gradient))
        staleness = None
        rate = learning_rate * schedule(worker.known)
        if worker.count % n_push == 0:
            params = apply(params, accrued[index], clock, learning_rate * schedule(clock))
            accrued[index] = combined((0.0, params))
            staleness, clock = clock - worker.fetched_at, clock + 1
            worker.known = clock
        if worker.count % n_fetch == 0:
            worker.copy, worker.known, worker.fetched_at = params, clock, clock
        else:
            worker.copy = combined((1.0, worker.copy), (-rate, gradient))
        worker.end_step(staleness)
        values.append(params | {"global_step": clock})
    return played(workers, values)


def cached_reads(
    entries: Sequence[int],
    model: str,
    bound: int,
    optimizer: str,
    learning_rate: float,
    num_workers: int,
) -> list[Values]:
    """Rule `ssp_cache`: the parameters on the ps and "global_step" after each push.

    A worker computes at its copy, to which its own updates are added. It begins a step when it is at most `bound` steps
    ahead of the slowest worker; then it takes another copy if the slowest had pushed too few steps for the last one.

    Args:
        entries: Worker of each push.
        model: Key of `scripted.MODELS`.
        bound: Bound s.
        optimizer: Optimizer on the ps.
        learning_rate: Constant learning rate.
        num_workers: Number of workers.
    """
    model_class, loss_and_gradient = MODELS[model]
    params, apply, values = script.initial_values(model_class()), Optimizer(optimizer).apply, []
    clocks, copies, copied_at = [0] * num_workers, [params] * num_workers, [0] * num_workers
    waiting: list[int] = []
    for clock, worker in enumerate(entries):
        batch = script.worker_batch(worker, num_workers, BATCH_SIZE, clocks[worker])
        _, gradient = loss_and_gradient(copies[worker], batch)
        updated = apply(params, gradient, clock, learning_rate)
        own = combined((1.0, updated), (-1.0, params)) if optimizer != "sgd" else combined((-learning_rate, gradient))
        copies[worker], params = combined((1.0, copies[worker]), (1.0, own)), updated
        clocks[worker] += 1
        waiting.append(worker)
        for one in [one for one in waiting if clocks[one] - min(clocks) <= bound]:
            waiting.remove(one)
            if clocks[one] - copied_at[one] > bound:
                copies[one], copied_at[one] = params, min(clocks)
        values.append(params | {"global_step": clock + 1})
    return values


def easgd(
    entries: Sequence[int],
    period: int,
    alpha: float,
    learning_rate: float,
    momentum: float = 0.0,
    num_workers: int = 2,
) -> Played:
    """Rule `easgd` as in the paper: x and v are kept apart, and the gradient is taken at x + momentum · v.

    Args:
        entries: Worker of each step; no other worker ever interrupts an exchange.
        period: Number of local steps between two exchanges.
        alpha: Moving rate of an exchange.
        learning_rate: Constant learning rate.
        momentum: Momentum of the local steps.
        num_workers: Number of workers in the cluster.
    """
    centre, clock, values = script.initial_values(script.Linear()), 0, []
    workers = [WorkerReplica(index, centre, num_workers) for index in range(num_workers)]
    points = [centre] * num_workers
    velocities = [combined((0.0, centre))] * num_workers
    for index in entries:
        worker, x = workers[index], points[index]
        exchanges = worker.count % period == 0
        worker.copy = combined((1.0, x), (momentum, velocities[index]))
        gradient = worker.gradient()
        if exchanges:
            difference = combined((alpha, x), (-alpha, centre))
            points[index] = combined((1.0, x), (-1.0, difference))
            centre, clock = combined((1.0, centre), (1.0, difference)), clock + 1
            worker.known = clock
        velocities[index] = combined((momentum, velocities[index]), (-learning_rate, gradient))
        points[index] = combined((1.0, points[index]), (1.0, velocities[index]))
        worker.end_step(0 if exchanges else None)
        values.append(centre | {"global_step": clock})
    return played(workers, values)


def averaging(periods: Sequence[int], num_workers: int, learning_rate: float, optimizer: str = "sgd") -> Played:
    """Rules `local_sgd` and `model_averaging`; `values` has one entry per round.

    Args:
        periods: Number of local steps in each round.
        num_workers: Number of workers, all of which take part in each round.
        learning_rate: Constant learning rate.
        optimizer: Optimizer of the local steps, with slots for each worker.
    """
    centre, values = script.initial_values(script.Linear()), []
    workers = [WorkerReplica(index, centre, num_workers) for index in range(num_workers)]
    optimizers = [Optimizer(optimizer) for _ in workers]
    for number, period in enumerate(periods):
        for worker, own in zip(workers, optimizers, strict=True):
            for step in range(period):
                gradient = worker.gradient()
                worker.copy = own.apply(worker.copy, gradient, worker.count - 1, learning_rate)
                if step < period - 1:
                    worker.end_step(None)
        centre = oracles.mean([worker.copy for worker in workers])
        for worker in workers:
            worker.copy, worker.known = centre, number + 1
            worker.end_step(0)
        values.append(centre | {"global_step": number + 1})
    return played(workers, values)
