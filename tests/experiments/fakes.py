"""A tiny experiment, and a time that the test moves."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.claims import Claim, ClaimKind, Limit, Measure
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.harness.plots import Plot, finish
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Run
from ps_trainer.experiments.harness.tables import Column, Table

NUM_THROWS = 400


class FakeTime:
    """Seconds that pass only when the test moves them."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def draw(figure, sizes):
    axis = figure.add_subplot()
    axis.plot(range(len(sizes)), list(sizes.values()), label="mean")
    finish(axis, "run")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DieSettings(Record):
    """Settings of a run."""

    sides: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Throw(Record):
    """Figures of a run."""

    mean: float
    largest: int
    all: Sequence[int]  # the first throws


class Throws(Part):
    """Dice of several sizes; cases are the means by size."""

    figures_type = Throw
    claims = (
        Claim(
            key="mean",
            sentence="The mean of a die with k sides is (k + 1)/2",
            kind=ClaimKind.LITERATURE,
            quantity="|mean − (k + 1)/2| / k",
            limit=Limit(high=0.1),
            measure=lambda sizes: [Measure(f"k={k}", abs(mean - (k + 1) / 2) / k) for k, mean in sizes.items()],
        ),
        Claim(
            key="gravity",
            sentence="Dice fall",
            kind=ClaimKind.THEORY,
            quantity="acceleration in m/s²",
            limit=Limit(low=9, high=10),
            measure=lambda sizes: (),
            why_none=lambda sizes: "software does not fall",
        ),
    )

    def runs(self, seeds, *, quick):
        return [
            Run(
                key=f"d{sides}-{seed}",
                level=Dice.level,
                settings=DieSettings(sides=sides),
                seed=seed,
                expected_secs=sides,
            )
            for sides in ((6,) if quick else (4, 6))
            for seed in seeds
        ]

    def execute(self, run, folder):
        Dice.executed.append(run.key)
        (folder / "log.txt").write_text("thrown")
        if run.key in Dice.failing:
            raise Dice.failing[run.key]
        rng = random.Random(run.seed)
        throws = [rng.randint(1, run.settings.sides) + Dice.bonus for _ in range(NUM_THROWS)]
        return Measured(
            Throw(mean=sum(throws) / NUM_THROWS, largest=max(throws), all=throws[:3]),
            steps=({"local_step": i, "points": points} for i, points in enumerate(throws[:5])),
        )

    def cases(self, results):
        return {sides: group.median("mean") for (sides,), group in results.by("sides").items()}

    def tables(self, sizes):
        rows = [[f"d{sides}", sides, mean, None] for sides, mean in sizes.items()]
        columns = (Column(name="die"), Column(name="sides", form="d"), Column(name="mean", form=".2f", unit="points"))
        note = Column(name="note", form="s")
        return [Table("Means", (*columns, note), rows, Dice.level)]

    def notes(self, sizes):
        return ["Dice are `random.Random`."]

    plots = (
        Plot(
            key="means",
            title="Means & runs",
            shows="Each bar is a mean <of one>.",
            expected="they scatter little.",
            claims=("mean",),
            draw=draw,
            level=lambda sizes: Dice.level,
        ),
    )


class Dice(Experiment):
    """Throws dice and looks at the mean.

    Attributes:
        bonus: Number added to each throw, as a broken rule would do.
        failing: Keys of runs that fail, with their errors.
        executed: Keys in the order of execution, by all instances of the test.
    """

    name = "dice"
    source = "Pacioli 1494, p. 1 | and others"
    published = (Published("mean of six", 3.5, "points", Tag.RECALLED, "Pacioli 1494"),)
    texts = PageTexts(
        question="Are dice fair?",
        answers={
            "mean": "the means are [as|not as] they must be",
            "gravity": "dice [fall|rise]",
        },
        best_plot="means",
        background="A die with k sides has k equally likely numbers.",
        formula="mean = (k + 1)/2",
        finding="Pacioli (p. 1) divides the stakes.",
        setup="Dice of software.",
        intervals="counting",
        reasons={
            "mean": "[Each side is as likely.|Something is added to each throw.]",
        },
        limits=("Software does not fall.",),
    )
    num_seeds = 3
    num_quick_seeds = 1
    bonus = 0
    failing: dict[str, Exception] = {}
    executed: list[str] = []
    level = Level.VIRTUAL
    parts = (Throws(),)
