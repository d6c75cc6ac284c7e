"""Learning rates that follow the staleness on a real cluster: one training of each arm, beside one in virtual time."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ps_trainer.errors import RunError
from ps_trainer.experiments.frame.base import Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.lab import real, virtual, virtual_training
from ps_trainer.experiments.lab.clusters import LOGDIR_NAME, Training, read_steps
from ps_trainer.experiments.lab.statistics import WARMUP_SHARE, without_warmup
from ps_trainer.experiments.lab.step_times import with_mean
from ps_trainer.experiments.staleness_aware_rate.cases import BY_RULE, BY_SPLITS, EVEN, FAILED_ERROR, FULL, SHAPES

ARMS = {FULL: "full", BY_SPLITS: "n", BY_RULE: "rule"}  # and how keys call them
NUM_LEARNERS = 8

_BATCH_SIZE = 15
_NUM_EPOCHS = 16
_NUM_EXAMPLES = 1437
_MEAN_MS = 150.0  # 53 gradients per second, with their arithmetic
_MODEL_OPTION = "hidden=32"


def runs(quick: bool, learning_rate: float, momentum: float, seeds: Sequence[int]) -> list[Run]:
    """λ-softsync, where each gradient is an update, with each arm's learning rate; none in the quick form.

    Args:
        quick: whether in the quick form.
        learning_rate: α₀.
        momentum: of the optimizer.
        seeds: of which the first is taken.
    """
    num_updates = _NUM_EPOCHS * _NUM_EXAMPLES // _BATCH_SIZE
    return [
        Run(
            key=f"L2-lr={learning_rate:g}-arm={name}-learners={NUM_LEARNERS}-seed={seeds[0]}",
            level=real.LEVEL,
            settings={
                "arm": arm,
                "learners": NUM_LEARNERS,
                "lr": learning_rate,
                "momentum": momentum,
                "batch_size": _BATCH_SIZE,
                "num_updates": num_updates,
                "mean_ms": _MEAN_MS,
            },
            seed=seeds[0],
            expected_secs=real.expected_secs(NUM_LEARNERS, num_updates / NUM_LEARNERS * _MEAN_MS / 1000),
        )
        for arm, name in ({} if quick else ARMS).items()
    ]


def carry_out(run: Run, folder: pathlib.Path) -> Measured:
    """Trains on a cluster, and along the schedule that the simulator makes of the same delays."""
    settings = run.settings
    learners, arm = settings["learners"], settings["arm"]
    rate = settings["lr"] / (learners if arm == BY_SPLITS else 1)
    update, options = ("staleness_aware", []) if arm == BY_RULE else ("softsync", [f"splits={learners}"])
    setup = {
        "num_workers": learners,
        "num_updates": settings["num_updates"],
        "compute": [with_mean(SHAPES[EVEN], settings["mean_ms"])],
    }
    flags = [
        "--model=mlp",
        f"--model_option={_MODEL_OPTION}",
        "--optimizer=momentum",
        f"--optimizer_option=momentum={settings['momentum']}",
        f"--batch_size={settings['batch_size']}",
        f"--learning_rate={rate!r}",
    ]
    training = _train(run, folder, update=update, options=options, flags=flags, **setup)
    done = virtual.run(update, options, seed=run.seed, **setup)
    figures = real.both(training, _measured(training), _simulated(run, done, update, options, rate))
    return Measured(figures, training.steps, training.window)


def measures(results: Results) -> dict[str, list[Measure]]:
    """Of the claims about real clusters."""
    made: dict[str, list[Measure]] = {"real_staleness": [], "real_arms": [], "real_errors": []}
    for arm, measured, simulated in _pairs(results):
        stale = abs(measured["staleness"] - simulated["staleness"]) / NUM_LEARNERS
        made["real_staleness"].append(Measure(arm, stale))
        fails = [one["test_error"] > FAILED_ERROR for one in (measured, simulated)]
        made["real_arms"].append(Measure(arm, float(fails[0] != fails[1])))
        if not any(fails):
            made["real_errors"].append(Measure(arm, abs(measured["test_error"] - simulated["test_error"])))
    return made


def tables(results: Results) -> list[Table]:
    """Both trainings of each arm, and the simulator's timing; none without runs."""
    rows = [
        [arm, *(one[name] * scale for name, scale in (("staleness", 1), ("test_error", 100)) for one in both)]
        for arm, *both in _pairs(results)
    ]
    if not rows:
        return []
    columns = (
        Column(name="learning rate"),
        *numbers(".2f", "mean staleness", "virtual staleness"),
        *numbers(".1f", "test error", "virtual test error", unit="%"),
    )
    title = f"One real training of each arm, λ = n = {NUM_LEARNERS}"
    groups = results.where(level=real.LEVEL).uncontended().by("arm").items()
    timed = [real.pair(f"L2, {arm}", group, "rate") for (arm,), group in groups]
    return [
        Table(title=title, level=real.LEVEL.value, columns=columns, rows=rows),
        *([real.timing_table("throughput", "gradients/s", timed)] if timed else ()),
    ]


def _pairs(results: Results) -> list[tuple[str, Mapping[str, float], Mapping[str, float]]]:
    return [
        (f"L2, {r.run.settings['arm']}", r.figures["measured"], r.figures["simulated"])
        for r in results.where(level=real.LEVEL)
    ]


def _train(run: Run, folder: pathlib.Path, **setup: Any) -> Training:
    """As `real.train`, but a run whose loss is no number any more has done what it had to show."""
    try:
        return real.train(run, folder, **setup)
    except RunError:
        steps = read_steps(folder.resolve() / LOGDIR_NAME)
        if all(step["loss"] is not None for step in steps):
            raise
        return Training({}, steps, 0.0)


def _measured(training: Training) -> dict[str, float]:
    used = [step["staleness"] for step in training.warm_steps if step["staleness"] is not None]
    metrics = training.summary.get("metrics", {})
    return {
        "staleness": float(np.mean(used)),
        # With values that are no numbers the first class is the answer to everything: that of guessing.
        "test_error": 1.0 - metrics["accuracy"] if metrics else 0.9,
        "rate": _rate(real.update_secs(training)),
    }


def _simulated(
    run: Run, done: virtual.VirtualRun, update: str, options: Sequence[str], rate: float
) -> dict[str, float]:
    from ps_trainer.simulation.replay.run import Replay  # brings TensorFlow, which lists do not need

    batch_size = run.settings["batch_size"]
    training = virtual_training.digits(
        "mlp",
        rate,
        model_options=(_MODEL_OPTION,),
        optimizer="momentum",
        optimizer_options=(f"momentum={run.settings['momentum']}",),
        batch_size=batch_size,
        seed=run.seed,
    )
    with Replay(training, done.schedule, update, options) as replay:
        virtual_training.follow(replay, batch_size, target=None)
        accuracy = replay.evaluate().metrics["accuracy"]
    return {
        "staleness": float(np.mean(done.warm_steps.staleness[done.warm_steps.update >= 0])),
        "test_error": 1.0 - accuracy,
        "rate": _rate(done.schedule.update_secs),
    }


def _rate(update_secs: np.ndarray) -> float:
    """Updates, of one gradient each, per second after warm-up."""
    warm, _ = without_warmup(update_secs, WARMUP_SHARE)
    return (len(warm) - 1) / float(warm[-1] - warm[0])
