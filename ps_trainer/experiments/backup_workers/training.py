"""Training with backup workers in virtual time: updates to a training accuracy, by the number of backup workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps_trainer.experiments.backup_workers.cases import (
    BARRIER,
    EXPONENTIAL,
    PERSISTENT,
    RULE_NAMES,
    SHAPES,
    TOKENS,
    options_of,
)
from ps_trainer.experiments.frame.base import Level, Measured, Results, Run
from ps_trainer.experiments.frame.claims import Measure
from ps_trainer.experiments.frame.tables import Column, Table, numbers
from ps_trainer.experiments.lab import virtual, virtual_training
from ps_trainer.experiments.lab.statistics import standard_error

TRAINING = "training"  # what a run is of
NUM_NEEDED = 8
BATCH_SIZE = 8
LEARNING_RATE = 0.2

_BACKUPS = (0, 1, 2, 4)
_SHAPES = (EXPONENTIAL, PERSISTENT)
_MODEL_OPTIONS = ("hidden=32",)
_MAX_UPDATES = 250
_EXPECTED_SECS = 3.0


def runs(quick: bool, seeds: Sequence[int]) -> list[Run]:
    """Both rules with every number of backup workers; in the quick form the token queue with none and two."""
    cases = [(shape, rule, b) for shape in _SHAPES for rule in (TOKENS, BARRIER) for b in _BACKUPS]
    return [
        Run(
            key=f"{TRAINING}-{rule}-b={b}-{shape.replace(' ', '_')}-seed={seed}",
            level=Level.VIRTUAL,
            settings={
                "what": TRAINING,
                "shape": shape,
                "rule": rule,
                "n": NUM_NEEDED + b,
                "b": b,
                "lr": LEARNING_RATE,
                "batch_size": BATCH_SIZE,
            },
            seed=seed,
            expected_secs=_EXPECTED_SECS,
        )
        for shape, rule, b in ([(EXPONENTIAL, TOKENS, 0), (EXPONENTIAL, TOKENS, 2)] if quick else cases)
        for seed in seeds
    ]


def carry_out(run: Run) -> Measured:
    """Trains a perceptron on digits along a schedule. Imports TensorFlow."""
    from ps_trainer.simulation.replay.run import Replay

    settings = run.settings
    rule, n, batch_size = settings["rule"], settings["n"], settings["batch_size"]
    options = options_of(rule, n, settings["b"])
    compute = [SHAPES[settings["shape"]]]
    schedule = virtual.run(
        rule, options, num_workers=n, compute=compute, num_updates=_MAX_UPDATES, seed=run.seed
    ).schedule
    training = virtual_training.digits(
        "mlp", settings["lr"], model_options=_MODEL_OPTIONS, batch_size=batch_size, seed=run.seed
    )
    with Replay(training, schedule, rule, options) as replay:
        course = virtual_training.follow(replay, batch_size)
    return Measured({"updates": course.target_version, "accuracy": course.accuracy})


class Arm(NamedTuple):
    """A rule with a number of backup workers.

    Attributes:
        shape: of the step times.
        rule: `TOKENS` or `BARRIER`.
        backups: b.
        updates: to the target, of each seed; inf where it was not reached.
    """

    shape: str
    rule: str
    backups: int
    updates: Sequence[float]

    @property
    def name(self) -> str:
        """For tables and claims."""
        return f"{RULE_NAMES[self.rule]}, {self.shape}, b = {self.backups}"

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return float(np.mean(self.updates))


def arms_of(results: Results) -> list[Arm]:
    """The arms, in the order of the runs."""
    return [
        Arm(shape, rule, b, [math.inf if value is None else value for value in group.figures("updates")])
        for (shape, rule, b), group in results.where(what=TRAINING).by("shape", "rule", "b").items()
    ]


def measures(arms: Sequence[Arm]) -> list[Measure]:
    """Updates with backup workers over those without."""
    without = {(arm.shape, arm.rule): arm.mean for arm in arms if not arm.backups}
    return [
        Measure(arm.name, arm.mean / without[arm.shape, arm.rule])
        for arm in arms
        if arm.backups and (arm.shape, arm.rule) in without
    ]


def table_of(arms: Sequence[Arm]) -> Table:
    """Updates to the target."""
    columns = (
        *(Column(name="step times"), Column(name="rule")),
        *numbers("d", "b"),
        *numbers(".1f", "updates", "± SE"),
        *numbers("d", "seeds"),
    )
    rows = [
        [arm.shape, RULE_NAMES[arm.rule], arm.backups, arm.mean]
        + [standard_error(arm.updates) if math.isfinite(arm.mean) else None, len(arm.updates)]
        for arm in arms
    ]
    title = f"Updates to a training accuracy of {virtual_training.TARGET_ACCURACY:.0%}, N = {NUM_NEEDED}"
    return Table(title=title, level=Level.VIRTUAL.value, columns=columns, rows=rows)
