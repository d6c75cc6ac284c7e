"""A schedule of the simulator, played on a real cluster entry by entry and replayed in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ps_trainer import component_tables
from ps_trainer.simulation.replay.replay import Replay
from ps_trainer.simulation.replay.training_setup import TrainingSetup
from ps_trainer.simulation.rules import schedule_table
from ps_trainer.simulation.schedule import LOCAL, Schedule
from tests.simulation import runs
from tests.testing import script as script_lib
from tests.testing.cluster import InProcessCluster, wait_until
from tests.testing.components import RowOptions, Rows
from tests.testing.gradient_groups import BATCH_SIZE, LEARNING_RATE, GroupScript
from tests.testing.oracles import Values
from tests.testing.script import Turnstile

MODELS = {"dense": script_lib.Linear, "sparse": script_lib.EmbeddedLinear}
GROUPS = {"backup", "softsync", "k_sync", "k_async", "k_batch_sync", "k_batch_async"}


def schedule_of(update: str, options: Sequence[str], num_workers: int, num_updates: int, seed: int = 0) -> Schedule:
    """A schedule with compute times so uneven that workers overtake each other."""
    cluster = runs.cluster_of("lognormal:sigma=1", num_workers, seed=seed)
    return runs.by_events(cluster, update, options, num_updates)


def training_of(model: Any, optimizer: str, learning_rate: float = LEARNING_RATE, **fields: Any) -> TrainingSetup:
    """The training of `GroupScript`, changed by `fields`."""
    fields = {
        "dataset": Rows(RowOptions()),
        "rate_schedule": component_tables.SCHEDULES.create("constant", ()),
        "batch_size": BATCH_SIZE,
    } | fields
    return TrainingSetup(
        model=model, optimizer=component_tables.OPTIMIZERS.create(optimizer, ()), learning_rate=learning_rate, **fields
    )


def replayed(training: TrainingSetup, schedule: Schedule, update: str, options: Sequence[str]) -> list[Values]:
    """The variables and "global_step" after each step of the schedule."""
    with Replay(training, schedule, update, options) as replay:
        return [replay.values() | {"global_step": step.version} for step in replay.steps()]


def played(
    cluster: InProcessCluster, schedule: Schedule, model: str, update: str, options: Sequence[str], **fields: Any
) -> list[Values]:
    """The same values on a real cluster, in which one gradient after the other arrives as in the schedule."""
    ended = _ended(schedule, update, options)
    version, values = 0, []
    with Turnstile(cluster) as gate:
        run = GroupScript(
            cluster, gate, model, update=update, update_option=tuple(options), max_steps=schedule.num_updates + 1,
            **fields,
        )  # fmt: skip
        for index, worker in enumerate(schedule.steps.worker.tolist()):
            version += bool(schedule.steps.update[index] == version and _is_closing(schedule, index))
            if update in GROUPS:
                run.push(worker, ended[index])
            else:
                _push(gate, run, worker, ended[index])
                # Applied at once, even if the worker then waits. Each ps task applies its part by itself.
                wait_until(lambda wanted=version: set(gate.clocks()) == {wanted})
            values.append(gate.values())
        gate.open()
        for call in gate.calls.values():
            outcome = cluster.finish(call)
            if outcome.error is not None:
                raise outcome.error
    return values


def _push(gate: Turnstile, run: GroupScript, worker: int, ended: Sequence[int]) -> None:
    """Pushes like `GroupScript.push`, for rules that collect nothing on the ps tasks."""
    steps = {of: gate.steps(of) for of in ended}
    gate.release(worker)
    for of in ended:
        gate.wait_steps(of, steps[of] + 1)
        run._wait_at_gate(of, or_ended=True)


def _ended(schedule: Schedule, update: str, options: Sequence[str]) -> list[list[int]]:
    """For each step of a schedule the workers that continue after it."""
    rule = schedule_table.create(update, options, runs.cluster_of("det", schedule.num_workers))
    steps, ended = schedule.steps, []
    for worker, version, made in zip(*(c.tolist() for c in (steps.worker, steps.version, steps.update)), strict=True):
        ended.append([worker] if made == LOCAL else list(rule.push(worker, version).resumed))
    return ended


def _is_closing(schedule: Schedule, index: int) -> bool:
    update = schedule.steps.update
    return not (update[index + 1 :] == update[index]).any()
