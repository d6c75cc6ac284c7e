"""Measures the cost of a step besides its delay with one worker; the simulator takes this cost as input.

One worker waits for no other one. So its step takes the delay and the constant cost of a step: its push, the ps task's
work, its next pull, and its own code. A cluster of n workers is then compared with a simulation that knows this cost,
but nothing about the n workers.
"""

from __future__ import annotations

import dataclasses
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.experiments.harness.base import Part
from ps_trainer.experiments.harness.cases import Case
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Results, Run
from ps_trainer.experiments.harness.tables import Table, UpperBound, numbers, texts
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.delayed_training import DelayedTraining, StepCost, expected_secs
from ps_trainer.experiments.toolkit.statistics import Interval, median_interval

CALIBRATION = "calibration"
# As long as the steps of many tasks: the few ms for which a task that wakes waits for a core are a small share of it.
_DELAY_MS = 600.0
_MAX_STEPS = 125
_MIN_STEPS = 50
# Options with which a rule of several workers works alone; it costs the same, as a single worker waits for no other.
_ALONE = {"backup": ("backup_workers=0",), "softsync": ("splits=1",), "ssp": ("staleness=0",), "sync": ()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration(Record):
    """The cost of a step with one worker, each value with the ends of the 90 % interval of its median."""

    overhead_secs: float  # from the start of a step to its end, without the delay
    overhead_low: float
    overhead_high: float
    service_secs: float  # from the gradient to the applied update: transport of the push, and the ps task's work
    service_low: float
    service_high: float
    num_steps: int

    @property
    def cost(self) -> StepCost:
        """The cost as the simulator takes it. The service time is an upper bound, as it has the transport in it."""
        return StepCost(self.overhead_secs, min(self.service_secs, self.overhead_secs))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationSettings(Record):
    """Settings of a calibration run."""

    what: str  # `CALIBRATION`
    update: str
    options: Sequence[str]
    training: Mapping[str, Any]  # model, batch size, optimizer
    mean_ms: float  # delay of each step
    num_steps: int


def calibration_of(training: Training, transfer_secs: float = 0.0) -> Calibration:
    """Returns the cost of a step, from the step log of one worker.

    Args:
        training: Finished training with one worker.
        transfer_secs: Time of its transfers, both ways together, which the simulator adds by itself. Where they take
            time, the service time is not known and 0: its end arrives behind the parameters that the worker pulls.
    """
    steps = training.warm_steps
    rest = [step.t_end - step.t_start - step.injected_delay - transfer_secs for step in steps]
    served = [(step.t_computed, step.t_applied) for step in steps]
    service = [end - start for start, end in served if start is not None and end is not None and not transfer_secs]
    overhead, overhead_ends = _positive(median_interval(rest))
    pushed, pushed_ends = _positive(median_interval(service or [0.0]))
    return Calibration(
        overhead_secs=overhead,
        overhead_low=overhead_ends.low,
        overhead_high=overhead_ends.high,
        service_secs=pushed,
        service_low=pushed_ends.low,
        service_high=pushed_ends.high,
        num_steps=len(steps),
    )


def run_for(training: DelayedTraining, level: Level) -> Run[CalibrationSettings]:
    """Returns the calibration run of a training: the same rule and model with one worker, and even delays."""
    settings = {name: value for name, value in training.settings.items() if name != "learning_rate"}
    num_steps = min(_MAX_STEPS, max(_MIN_STEPS, training.num_updates))
    calibration_settings = CalibrationSettings(
        what=CALIBRATION,
        update=training.update,
        options=_ALONE.get(training.update, tuple(training.options)),
        training=settings,
        mean_ms=_DELAY_MS,
        num_steps=num_steps,
    )
    # The settings are too long for a file name.
    digest = zlib.crc32(repr(sorted(calibration_settings.as_json().items())).encode())
    key = f"L2-{CALIBRATION}-{training.update}-{settings['model']}-{digest:08x}"
    return Run(key, calibration_settings, 0, expected_secs(1, num_steps * _DELAY_MS / 1000), level)


class CalibratedCost(Case):
    """One calibration run."""

    @property
    def name(self) -> str:
        """Rule and model."""
        settings = self.runs[0].run.settings
        return f"{settings.update}, {settings.training['model']}, batch {settings.training['batch_size']}"

    @property
    def figures(self) -> Calibration:
        """The measured costs."""
        figures: Calibration = self.runs[0].figures
        return figures


class Calibrations(Part[CalibrationSettings, Calibration]):
    """The calibration runs that other parts of the experiment need; it plans none by itself."""

    figures_type = Calibration
    selects = {"what": CALIBRATION}

    def runs(self, seeds: Sequence[int], *, quick: bool) -> Sequence[Run[CalibrationSettings]]:
        return ()

    def execute(self, run: Run[CalibrationSettings], folder: pathlib.Path) -> Measured[Calibration]:
        settings = run.settings
        delays = [f"det:jitter=0,mean_ms={settings.mean_ms:g}"]
        rates = {**settings.training, "learning_rate": 0.001}
        delayed = DelayedTraining(settings.update, settings.options, 1, settings.num_steps, delays, rates)
        training = delayed.train(run, folder)
        return Measured(calibration_of(training), training.steps_as_json(), training.window)

    cases = staticmethod(lambda results: [CalibratedCost(Results([result])) for result in results])
    tables = staticmethod(lambda cases: [cost_table([(case.name, case.figures) for case in cases], Level.PROCESSES)])


def cost_table(costs: Sequence[tuple[str, Calibration]], level: Level) -> Table:
    """Returns the costs of a step with one worker, each with its interval; those below 0 were cut off there."""
    columns = (
        *texts("one worker"),
        *numbers(".2f", "a step besides its delay", "from", "to", unit="ms"),
        *numbers(".2f", "until the update is applied", "from", "to", unit="ms"),
        *numbers("d", "steps"),
    )

    def cells(*ends: float) -> list[float | UpperBound]:
        return [1000 * secs or UpperBound(0.0) for secs in ends]

    rows = [
        [name]
        + cells(cost.overhead_secs, cost.overhead_low, cost.overhead_high)
        + cells(cost.service_secs, cost.service_low, cost.service_high)
        + [cost.num_steps]
        for name, cost in costs
    ]
    return Table("Calibration of the simulator: medians, with 90 % intervals", columns, rows, level)


def _positive(measured: tuple[float, Interval]) -> tuple[float, Interval]:
    value, (low, high) = measured
    return max(0.0, value), Interval(max(0.0, low), max(0.0, high))
