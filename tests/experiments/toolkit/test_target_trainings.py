"""Trainings up to a training accuracy: what a run gives, and the curve of its losses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from matplotlib.figure import Figure

from ps_trainer.experiments.harness.runs import Results, Run, RunResult
from ps_trainer.experiments.harness.targets import TargetCase
from ps_trainer.experiments.toolkit.target_trainings import TargetPart, TargetTraining, draw_losses
from ps_trainer.experiments.toolkit.virtual_training import WINDOW_EXAMPLES
from tests.experiments.fakes import DieSettings

BATCH_SIZE = 64
NUM_WORKERS = 2
NUM_UPDATES = 30


class Trainings(TargetPart[DieSettings]):
    """Trainings of softmax regression on digits."""

    target = 0.3

    def runs(self, seeds, *, quick):
        return [Run("run", DieSettings(sides=6), seed) for seed in seeds]

    def training_of(self, settings):
        setup = {"model": "softmax", "learning_rate": 0.1}
        return TargetTraining("sync", NUM_WORKERS, ["det:mean_ms=1"], NUM_UPDATES, self.target, BATCH_SIZE, setup)


def executed(target):
    part = Trainings()
    part.target = target
    (run,) = part.runs([3], quick=True)
    return part.execute(run, None)


def test_a_training_ends_at_the_target_and_counts_its_examples():
    measured = executed(0.3)
    figures = measured.figures
    assert WINDOW_EXAMPLES <= figures.examples < NUM_UPDATES * NUM_WORKERS * BATCH_SIZE
    assert figures.examples % BATCH_SIZE == 0
    assert len(figures.losses) == -(-figures.examples // WINDOW_EXAMPLES)
    assert [one["loss"] for one in measured.steps] == list(figures.losses)


def test_a_training_that_misses_the_target_has_no_examples_and_all_losses():
    figures = executed(1.01).figures
    assert figures.examples is None
    assert len(figures.losses) == NUM_UPDATES * NUM_WORKERS * BATCH_SIZE // WINDOW_EXAMPLES


def test_losses_are_drawn_against_the_examples_until_the_first_seed_ends():
    axis = Figure().add_subplot()
    figures = [SimpleNamespace(losses=[2.0, 1.0]), SimpleNamespace(losses=[4.0, 3.0, 0.5])]
    case = TargetCase(Results(RunResult(Run("run", DieSettings(sides=6)), one, 1.0, None, None) for one in figures))
    draw_losses(axis, case, color="#0072B2")
    (line,) = axis.get_lines()
    np.testing.assert_array_equal(line.get_xydata(), [[WINDOW_EXAMPLES, 3.0], [2 * WINDOW_EXAMPLES, 2.0]])
    assert line.get_color() == "#0072B2"
