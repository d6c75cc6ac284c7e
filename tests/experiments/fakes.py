"""A tiny experiment, and a clock that the test moves."""

from __future__ import annotations

import random

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Run
from ps_trainer.experiments.frame.captions import Caption
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.frame.tables import Column, Table
from ps_trainer.experiments.lab.statistics import spread

NUM_THROWS = 400


class Clock:
    """Seconds, as the test says."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Dice(Experiment):
    """Throws dice and looks at the mean.

    Attributes:
        bonus: added to each throw: what a broken rule would do.
        failing: keys of runs that fail, and the error.
        carried_out: keys in the order in which they were carried out, by all instances of the test.
    """

    name = "dice"
    source = "Pacioli 1494, p. 1 | and others"
    claims = (
        Claim(
            key="mean",
            sentence="The mean of a die with k sides is (k + 1)/2",
            measures="|mean − (k + 1)/2| / k",
            limit=Limit(high=0.1),
        ),
        Claim(key="gravity", sentence="Dice fall", measures="acceleration in m/s²", limit=Limit(low=9, high=10)),
    )
    published = (Published(what="mean of six", value=3.5, unit="points", tag=Tag.RECALLED, source="Pacioli 1494"),)
    scale_down = "Dice of software."
    captions = {"means": Caption("Each bar is a mean <of one>.", "they scatter little.")}
    num_seeds = 3
    num_quick_seeds = 1
    bonus = 0
    failing: dict[str, Exception] = {}
    carried_out: list[str] = []
    level = Level.VIRTUAL

    def runs(self, quick, seeds):
        return [
            Run(key=f"d{sides}-{seed}", level=self.level, settings={"sides": sides}, seed=seed, expected_secs=sides)
            for sides in ((6,) if quick else (4, 6))
            for seed in seeds
        ]

    def carry_out(self, run, folder):
        self.carried_out.append(run.key)
        (folder / "log.txt").write_text("thrown")
        if run.key in self.failing:
            raise self.failing[run.key]
        rng = random.Random(run.seed)
        throws = [rng.randint(1, run.settings["sides"]) + self.bonus for _ in range(NUM_THROWS)]
        return Measured(
            {"mean": sum(throws) / NUM_THROWS, "largest": max(throws), "all": throws[:3]},
            steps=({"local_step": i, "points": points} for i, points in enumerate(throws[:5])),
        )

    def analyse(self, results):
        rows, measured = [], []
        for (sides,), group in results.by("sides").items():
            mean = spread(group.figures("mean")).median
            rows.append([f"d{sides}", sides, mean, None])
            measured.append(Measure(f"k={sides}", abs(mean - (sides + 1) / 2) / sides))
        columns = (Column(name="die"), Column(name="sides", form="d"), Column(name="mean", form=".2f", unit="points"))
        table = Table(
            title="Means", level=self.level.value, columns=(*columns, Column(name="note", form="s")), rows=rows
        )
        return Analysis(
            tables=[table],
            measured={"mean": measured},
            not_testable={"gravity": "software does not fall"},
            notes=["Dice are `random.Random`."],
        )

    def plots(self, results):
        def draw(figure):
            axes = figure.add_subplot()
            axes.plot(range(len(results)), results.figures("mean"), label="mean")
            axes.set_xlabel("run")
            axes.legend()

        return [Plot(key="means", title="Means & runs", level=self.level.value, draw=draw)]
