"""Measures the cost of a step of the hand-written TF1 script with one worker, as `calibration.py` does of ours."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.runs import Measured, Run
from ps_trainer.experiments.toolkit.calibration import Calibration, Calibrations, CalibrationSettings, cost_table
from ps_trainer.experiments.toolkit.clusters import Training
from ps_trainer.experiments.toolkit.delayed_training import expected_secs
from ps_trainer.experiments.toolkit.statistics import median_interval
from ps_trainer.experiments.toolkit.stock_clusters import StockCluster

STOCK_CALIBRATION = "stock_calibration"
_DELAY_MS = 800.0
_NUM_STEPS = 75


def run_for(settings: Mapping[str, Any]) -> Run[CalibrationSettings]:
    """Returns the calibration run of the script: its `SyncReplicasOptimizer` with one worker, and even delays.

    Args:
        settings: Model, batch size and learning rate, as flags of the script.
    """
    calibration_settings = CalibrationSettings(
        what=STOCK_CALIBRATION,
        update="stock_sync",
        options=(),
        training=dict(settings),
        mean_ms=_DELAY_MS,
        num_steps=_NUM_STEPS,
    )
    secs = expected_secs(2, _NUM_STEPS * _DELAY_MS / 1000)
    return Run(f"L2-{STOCK_CALIBRATION}-{settings['model']}", calibration_settings, 0, secs, Level.PROCESSES)


def calibration_of(training: Training) -> Calibration:
    """Returns the cost of a step from the log of one worker; the time for which a ps task serves it is not known."""
    steps = training.warm_steps
    overhead, ends = median_interval([step.t_end - step.t_start - step.injected_delay for step in steps])
    return Calibration(
        overhead_secs=overhead,
        overhead_low=ends.low,
        overhead_high=ends.high,
        service_secs=0.0,
        service_low=0.0,
        service_high=0.0,
        num_steps=len(steps),
    )


class StockCalibrations(Calibrations):
    """The calibration run of the script that other parts of the experiment need; it plans none by itself."""

    selects = {"what": STOCK_CALIBRATION}

    def execute(self, run: Run[CalibrationSettings], folder: pathlib.Path) -> Measured[Calibration]:
        settings = run.settings
        flags = {
            **settings.training,
            "replicas_to_aggregate": 1,
            "straggler": (f"det:jitter=0,mean_ms={settings.mean_ms:g}",),
            "seed": run.seed,
        }
        deadline_secs = 10 * run.expected_secs
        training = StockCluster(
            num_workers=1, num_updates=settings.num_steps, settings=flags, deadline_secs=deadline_secs
        ).train(folder)
        return Measured(calibration_of(training), training.steps_as_json(), training.window)

    tables = staticmethod(
        lambda cases: [cost_table([(f"TF1 script, {case.name}", case.figures) for case in cases], Level.PROCESSES)]
    )
