"""Common parts of all experiments: claims and verdicts, runs and their files, progress, tables, plots, pages.

The names that an experiment declares itself with are here: `from ps_trainer.experiments import harness`.
"""

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import Case, case_factory, count, figures, find, mean, median, settings
from ps_trainer.experiments.harness.claims import (
    BY_UNSEEN_SEEDS,
    Claim,
    Limit,
    Measure,
    amend,
    extension_claim,
    literature_claim,
    simulator_claim,
    theory_claim,
)
from ps_trainer.experiments.harness.labels import Label, Level
from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.harness.plots import Axes, Figure, Plot, finish
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.harness.records import Record
from ps_trainer.experiments.harness.runs import Measured, Results, Run, runs_by_key, runs_of_seeds, unseen_seeds
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.harness.targets import (
    TargetCase,
    draw_cases,
    draw_course,
    draw_samples,
    ratio,
    target_columns,
)

__all__ = [
    "BY_UNSEEN_SEEDS",
    "Axes",
    "Case",
    "Claim",
    "Experiment",
    "Figure",
    "Label",
    "Level",
    "Limit",
    "Measure",
    "Measured",
    "PageTexts",
    "Part",
    "Plot",
    "Published",
    "Record",
    "Results",
    "Run",
    "Table",
    "Tag",
    "TargetCase",
    "amend",
    "case_factory",
    "count",
    "draw_cases",
    "draw_course",
    "draw_samples",
    "extension_claim",
    "figures",
    "find",
    "finish",
    "literature_claim",
    "mean",
    "median",
    "numbers",
    "ratio",
    "runs_by_key",
    "runs_of_seeds",
    "settings",
    "simulator_claim",
    "target_columns",
    "texts",
    "theory_claim",
    "unseen_seeds",
]
