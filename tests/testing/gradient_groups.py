"""Rules that update by groups of gradients: their NumPy form, and their steps in scripted order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.training import components as components_lib
from ps_trainer.updates.base import TrainStep
from ps_trainer.updates.group_state import GroupState
from tests.testing import oracles
from tests.testing import script as script_lib
from tests.testing.cluster import InProcessCluster, config_of, wait_until
from tests.testing.oracles import LossAndGradient, Values
from tests.testing.script import Turnstile

LEARNING_RATE = 0.5
BATCH_SIZE = 2

MODELS = {
    "dense": ("tests.testing.script:Linear", oracles.linear),
    "sparse": ("tests.testing.script:EmbeddedLinear", oracles.embedded_linear),
}


class GroupTrajectory(NamedTuple):
    """The behaviour of a rule under a script.

    Attributes:
        values: Parameters and "global_step" after each entry of the script.
        ended: Workers whose step ends with each entry of the script.
        losses: Losses of each worker's ended steps.
        staleness: Staleness of each worker's ended steps; -1 where the rule dropped the gradient.
        global_steps: Global steps that each worker's ended steps returned.
    """

    values: list[Values]
    ended: list[list[int]]
    losses: list[list[float]]
    staleness: list[list[int]]
    global_steps: list[list[int]]


def group_sgd(
    loss_and_gradient: LossAndGradient,
    initial: Mapping[str, np.ndarray],
    script: Sequence[int],
    batch_of: Callable[[int, int], Mapping[str, np.ndarray]],
    *,
    num_workers: int,
    required: Callable[[int], int],
    is_fresh_only: bool,
    waits: bool,
    apply: Callable[[Values, Values, int], Values] = lambda params, mean, _: oracles.sgd(params, mean, LEARNING_RATE),
) -> GroupTrajectory:
    """Updates by the averages of groups of gradients.

    Args:
        loss_and_gradient: Function of the model, from parameters and batch.
        initial: Parameters that every worker pulls first.
        script: Worker of each push.
        batch_of: Function (worker, number of its step) -> batch.
        num_workers: Number of workers.
        required: Function: number of updates so far -> number of gradients in the next update.
        is_fresh_only: Whether the rule drops gradients of older parameters.
        waits: Whether a worker waits for the update that contains its gradient.
        apply: Function (parameters, mean gradient, number of updates so far) -> parameters; by default plain SGD.
    """
    clock, params = 0, dict(initial)
    pulled = [(0, params)] * num_workers
    num_pushed = [0] * num_workers
    group: list[Values] = []
    waiting: list[tuple[int, float, int]] = []
    out = GroupTrajectory([], [], *([[] for _ in range(num_workers)] for _ in range(3)))
    for worker in script:
        pulled_at, seen = pulled[worker]
        loss, gradient = loss_and_gradient(seen, batch_of(worker, num_pushed[worker]))
        num_pushed[worker] += 1
        is_dropped = is_fresh_only and pulled_at != clock
        ending = [(worker, loss, -1 if is_dropped else clock - pulled_at)]
        if not is_dropped:
            group.append(gradient)
            if waits:
                waiting, ending = [*waiting, *ending], []
            if len(group) == required(clock):
                params = apply(params, oracles.mean(group), clock)
                clock, group = clock + 1, []
                waiting, ending = [], [*waiting, *ending]
        for ended, loss_of, stale in ending:
            pulled[ended] = (clock, params)
            out.losses[ended].append(loss_of)
            out.staleness[ended].append(stale)
            out.global_steps[ended].append(clock)
        out.values.append(params | {"global_step": clock})
        out.ended.append([ended for ended, _, _ in ending])
    return out


class GroupScript:
    """A run whose pushes come in scripted order, although workers wait for one another.

    Args:
        cluster: Cluster that runs the workers.
        gate: Turnstile that is entered.
        model: Key of `MODELS`.
        **fields: Fields of the run's configuration.
    """

    def __init__(self, cluster: InProcessCluster, gate: Turnstile, model: str, **fields: Any):
        fields = {"learning_rate": LEARNING_RATE, "batch_size": BATCH_SIZE} | fields
        config = config_of(MODELS[model][0], "Rows", **fields)
        components = components_lib.load(config, cluster.num_workers)
        built: list[TrainStep] = []
        build = components.rule.build

        def noting(store: Any, gradients: Any, context: Any) -> TrainStep:
            step = build(store, gradients, context)
            if context.is_chief:
                built.append(step)
            return step

        components.rule.build = noting
        self._gate = gate
        self._built = built
        self._arrivals = [0] * cluster.num_workers
        gate.start(config, components=components)
        # Three graphs built at once in one process may take longer than the gate waits.
        wait_until(lambda: all(gate._num_arrived) or any(call.error for call in gate.calls.values()))
        for worker in range(cluster.num_workers):
            self._wait_at_gate(worker, or_ended=False)

    def push(self, worker: int, ended: Sequence[int]) -> None:
        """Lets `worker` push; returns when the steps of `ended` are over and those workers are at the gate again.

        If no step ends, it returns when every ps task has added the gradient.
        """
        before = self._num_taken_in(worker)
        steps = {of: self._gate.steps(of) for of in ended}
        self._gate.release(worker)
        for of in ended:
            self._gate.wait_steps(of, steps[of] + 1)
            self._wait_at_gate(of, or_ended=True)
        if not ended:
            wait_until(lambda: np.all(self._num_taken_in(worker) == before + 1))

    def play(self, script: Sequence[int], trajectory: GroupTrajectory) -> None:
        """Plays a script and compares the parameters with the oracle's after each entry."""
        for worker, ended, values in zip(script, trajectory.ended, trajectory.values, strict=True):
            self.push(worker, ended)
            now = self._gate.values()
            for name, value in values.items():
                np.testing.assert_allclose(now[name], value, rtol=0, atol=1e-6, err_msg=name)

    def read(self, part: str) -> np.ndarray:
        """The rule's ps variables with `part` in their names, one entry per variable."""
        (step,) = self._built
        return np.array(self._gate.read([variable for variable in step.state if part in variable.op.name]))

    def service(self) -> Any:
        """The chief's service."""
        return self._built[0].service

    def _num_taken_in(self, worker: int) -> np.ndarray:
        """A number for each ps task that grows by 1 when it takes in a gradient of `worker`."""
        return self.read("/by_worker_")[:, GroupState._fields.index("accepted"), worker]

    def _wait_at_gate(self, worker: int, *, or_ended: bool) -> None:
        self._arrivals[worker] += 1
        self._gate.wait_arrived(worker, self._arrivals[worker], or_ended=or_ended)


class AccumulatorScript(GroupScript):
    """A run whose ps tasks take gradients into TensorFlow's accumulators."""

    def _num_taken_in(self, worker: int) -> np.ndarray:
        return self._gate.count_accumulated([f"sync_replicas/ps_{ps}/count" for ps in range(self._gate.num_ps)])


def check_script(
    cluster: InProcessCluster,
    model: str,
    script: Sequence[int],
    *,
    required: Callable[[int], int],
    is_fresh_only: bool,
    waits: bool,
    script_class: type[GroupScript] = GroupScript,
    **fields: Any,
) -> GroupTrajectory:
    """Plays a script on a cluster, compares its behaviour with `group_sgd`, and returns the oracle's trajectory.

    Args:
        cluster: Cluster that runs the workers.
        model: Key of `MODELS`.
        script: Worker of each push.
        required: Function: number of updates so far -> number of gradients in the next update.
        is_fresh_only: Whether the rule drops gradients of older parameters.
        waits: Whether a worker waits for the update that contains its gradient.
        script_class: Kind of the script.
        **fields: Fields of the run's configuration.
    """
    num_workers, num_ps = cluster.num_workers, cluster.num_ps
    model_class = getattr(script_lib, MODELS[model][0].partition(":")[2])
    wanted = group_sgd(
        MODELS[model][1],
        script_lib.initial_values(model_class()),
        script,
        lambda worker, step: script_lib.worker_batch(worker, num_workers, BATCH_SIZE, step),
        num_workers=num_workers,
        required=required,
        is_fresh_only=is_fresh_only,
        waits=waits,
    )
    num_updates = max(max(steps, default=0) for steps in wanted.global_steps)
    with Turnstile(cluster) as gate:
        run = script_class(cluster, gate, model, max_steps=num_updates + 1, **fields)
        run.play(script, wanted)
        gate.open()
        outcomes = [cluster.finish(call) for call in gate.calls.values()]
    for worker, outcome in enumerate(outcomes):
        assert outcome.code == 0, outcome.error
        progress, count = outcome.progress, len(wanted.losses[worker])
        np.testing.assert_allclose(progress.losses[:count], wanted.losses[worker], rtol=0, atol=1e-6)
        staleness = np.repeat(np.array(wanted.staleness[worker], int)[:, None], num_ps, axis=1)
        np.testing.assert_array_equal(np.reshape(progress.staleness_values[:count], [-1, num_ps]), staleness)
        assert progress.global_steps[:count] == wanted.global_steps[worker]
    assert outcomes[0].worker.final_values["global_step"] == num_updates + 1
    return wanted
