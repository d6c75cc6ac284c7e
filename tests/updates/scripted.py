"""Scripted runs of two workers, and the replay of a rule in NumPy that tests compare them with.

`play` runs a script on a real cluster and records the visible state after each entry. `replay` follows the same script
with NumPy parameters; a rule is a function that turns one arrived gradient into an update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tests.optimizers import oracle as optimizer_oracle
from tests.testing import oracles, script
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.oracles import Values

BATCH_SIZE = 4
MODELS = {
    "dense": (script.Linear, oracles.linear),
    "sparse": (script.EmbeddedLinear, oracles.embedded_linear),
}


class Played(NamedTuple):
    """The record of a script on a cluster.

    Attributes:
        values: The model's variables and "global_step" after each entry.
        losses: Losses of each worker's steps.
        staleness: Staleness vectors of each worker's steps, as lists.
        global_steps: Global steps that each worker's steps returned.
    """

    values: list[Values]
    losses: list[list[float]]
    staleness: list[list[list[int]]]
    global_steps: list[list[int]]


class Arrived(NamedTuple):
    """A gradient as it arrives at the ps tasks.

    Attributes:
        worker: Worker that sent it.
        gradient: Dense gradient of each variable.
        params: Parameters on the ps tasks at its arrival.
        pulled: Parameters from which the worker computed it.
        staleness: Number of updates since the worker pulled these.
        clock: Number of updates so far.
    """

    worker: int
    gradient: Values
    params: Values
    pulled: Values
    staleness: int
    clock: int


class Optimizer:
    """One optimizer in NumPy for all variables of a model, with its slots.

    Args:
        name: "sgd", "momentum", "adagrad" or "adam", each with the defaults of the component of that name.
    """

    _FIRST_SLOTS: ClassVar = {
        "sgd": {},
        "momentum": {"momentum": 0.0},
        "adagrad": {"accumulator": 0.1},
        "adam": {"m": 0.0, "v": 0.0},
    }

    def __init__(self, name: str):
        self._update = getattr(optimizer_oracle, name)
        self._first = self._FIRST_SLOTS[name]
        self._slots: dict[str, Values] = {}

    def apply(self, params: Values, gradient: Values, clock: int, learning_rate: float) -> Values:
        """The parameters after update number `clock` + 1."""
        updated = {}
        for name, value in params.items():
            slots = self._slots.setdefault(name, {slot: np.full(value.shape, v) for slot, v in self._first.items()})
            state = self._update({"w": value.astype(np.float64), **slots}, gradient[name], clock + 1, learning_rate)
            updated[name] = state.pop("w").astype(np.float32)
            self._slots[name] = state
        return updated


Apply = Callable[[Arrived], Values | None]
"""The parameters after an update; None if there is none."""


def play(cluster: InProcessCluster, entries: Sequence[int], model: str, **fields: Any) -> Played:
    """Runs the script on a cluster of two workers until their data end."""
    cls, _ = MODELS[model]
    lengths = ",".join(str(entries.count(worker)) for worker in (0, 1))
    config = config_of(
        f"{cls.__module__}:{cls.__name__}", "Rows", [f"lengths={lengths}"], batch_size=BATCH_SIZE, max_steps=None,
        num_epochs=100, **fields,
    )  # fmt: skip
    with script.Turnstile(cluster) as gate:
        calls = gate.start(config)
        values = []
        for entry in entries:
            gate.play([entry])
            values.append(gate.values())
    recorders = []
    for call in calls:
        outcome = cluster.finish(call)
        if outcome.error is not None:
            raise outcome.error
        recorders.append(outcome.progress)
    return Played(
        values,
        [recorder.losses for recorder in recorders],
        [[vector.tolist() for vector in recorder.staleness_values] for recorder in recorders],
        [recorder.global_steps for recorder in recorders],
    )


def replay(
    entries: Sequence[int],
    model: str,
    apply: Apply,
    *,
    hold_steps: int = 1,
    pull: Callable[[Values], Values] = lambda params: params,
    num_workers: int = 2,
) -> Played:
    """Replays the script in NumPy, where every worker pulls right after its own step.

    Args:
        entries: The script.
        model: Key of `MODELS`.
        apply: The rule.
        hold_steps: Number of gradients, all of the same dense parameters, that a worker sums before it pushes.
        pull: Function from the ps tasks' parameters to the ones that a worker receives.
        num_workers: Number of workers in the cluster.
    """
    cls, loss_and_gradient = MODELS[model]
    params, clock = script.initial_values(cls()), 0
    pulled, known = [(0, pull(params))] * num_workers, [0] * num_workers
    held: list[list[Values]] = [[] for _ in range(num_workers)]
    played = Played([], *([[] for _ in range(num_workers)] for _ in range(3)))
    for worker in entries:
        pulled_at, seen = pulled[worker]
        batch = script.worker_batch(worker, num_workers, BATCH_SIZE, len(played.losses[worker]))
        loss, gradient = loss_and_gradient(seen, batch)
        held[worker].append(gradient)
        staleness = []
        if len(held[worker]) == hold_steps:
            staleness = [clock - pulled_at]
            summed = total(held[worker])
            updated = apply(Arrived(worker, summed, params, seen, clock - pulled_at, clock))
            if updated is None:
                staleness = [-1]
            else:
                params, clock = updated, clock + 1
            held[worker] = []
            pulled[worker], known[worker] = (clock, pull(params)), clock
        elif "table" in params:  # each step reads its rows from the ps tasks
            pulled[worker] = (pulled_at, seen | {"table": params["table"]})
        played.values.append(params | {"global_step": clock})
        played.losses[worker].append(loss)
        played.staleness[worker].append(staleness)
        played.global_steps[worker].append(known[worker])
    return played


def assert_same(played: Played, wanted: Played, *, num_ps: int, atol: float = 1e-6) -> None:
    """Compares all numbers; the sequences of steps and staleness must be equal exactly."""
    assert played.global_steps == wanted.global_steps
    # The script lets each gradient arrive alone, so that all ps tasks see the same order.
    assert played.staleness == [[vector * num_ps for vector in vectors] for vectors in wanted.staleness]
    for number, (got, expected) in enumerate(zip(played.values, wanted.values, strict=True)):
        assert set(got) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=0, atol=atol, err_msg=f"{name} after entry {number}")
    for worker, losses in enumerate(wanted.losses):
        np.testing.assert_allclose(played.losses[worker], losses, rtol=0, atol=10 * atol)


def total(gradients: Sequence[Mapping[str, np.ndarray]]) -> Values:
    """The sum of gradients of each variable."""
    return {name: np.sum([gradient[name] for gradient in gradients], axis=0) for name in gradients[0]}
