"""The sections of an experiment's page, in their order.

    question, answer, verdict        from the texts and the claims
    best plot
    background, finding, set-up      from the texts
    what you see, and why            from the texts and the claims
    claims, more plots, tables       from the runs
    limits                           from the texts
    how to reproduce                 from the runs

`of_texts` makes the sections that need no runs, `of_results` those that need their figures. So a published page, whose
runs are not in the repository, can get the current texts, and with the figures the current claims, plots and tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.experiments.harness.base import Analysis, Experiment
from ps_trainer.experiments.harness.claims import ClaimKind, ClaimLine, JudgedClaim, tally
from ps_trainer.experiments.harness.conclusion import Conclusion
from ps_trainer.experiments.harness.page import Block, Bullets, Formula, Heading, Paragraph, anchor
from ps_trainer.experiments.harness.plots import PlotFiles
from ps_trainer.experiments.harness.provenance import origin_sentence
from ps_trainer.experiments.harness.published import Published
from ps_trainer.experiments.harness.tables import Table, texts

HEAD = ""  # lines between the title and the best plot
BACKGROUND = "Background"
FINDING = "What the sources found"
SETUP = "What was run"
SEEN = "What you see, and why"
CLAIMS = "Claims"
PLOTS = "More plots"
TABLES = "Tables"
LIMITS = "Limits"
REPRODUCTION = "How to reproduce"
SYMBOLS = "Symbols and levels"  # heading on the index page

_CLAIM_COLUMNS = texts("claim", "kind", "measured", "refuted if", "outcome")
_MAX_LISTED = 8  # numbers of the sources
_FILES = ("results.csv", "steps.jsonl", "provenance.json")


class OfRuns(NamedTuple):
    """The parts of a page that come from the runs."""

    levels: str  # levels of the runs, in words
    plots: Sequence[PlotFiles]  # plots of the results
    analysis: Analysis  # analysis of the results
    remarks: Sequence[str]  # remarks of the harness on the runs
    origin: Mapping[str, Any]  # provenance


def of_texts(
    experiment: Experiment,
    checked: Sequence[JudgedClaim],
    claims: Sequence[ClaimLine],
    verdict: str,
    *,
    quick: bool = False,
    suffix: str = "md",
) -> dict[str, list[Block]]:
    """Returns the blocks of the sections that need no runs, by heading.

    Args:
        experiment: Experiment.
        checked: Its claims.
        claims: The lines of the page's table of claims.
        verdict: The verdict on it.
        quick: Whether it was the quick form.
        suffix: Suffix of the index page.
    """
    words = experiment.texts
    counts = "; ".join(f"{kind.value}: {count}" for kind in ClaimKind if (count := tally(claims, kind)))
    published = _published(experiment.published)
    return {
        HEAD: [
            Paragraph(f"**Question:** {words.question}"),
            Paragraph(f"**Answer:** {words.answer(checked)}"),
            Paragraph(f"`{experiment.name}`{', quick form' if quick else ''}. Verdict: {verdict}."),
            Paragraph(f"Claims: {counts}. The verdict comes from those of the literature."),
        ],
        BACKGROUND: [
            Paragraph(words.background),
            Formula(words.formula),
            Paragraph(f"All symbols: [{SYMBOLS}](../index.{suffix}#{anchor(SYMBOLS)})."),
        ],
        FINDING: [Paragraph(words.finding), Paragraph(f"Sources: {experiment.source}."), *published],
        SETUP: [Paragraph(words.setup)],
        SEEN: [Bullets(words.seen(checked))],
        LIMITS: [Bullets([f"Intervals are of 90 %, by {words.intervals}.", *words.limits])],
    }


def _published(numbers: Sequence[Published]) -> list[Block]:
    """Returns the numbers of the sources, many of them as a folded table."""
    if len(numbers) > _MAX_LISTED:
        rows = [[one.what, one.number, one.origin] for one in numbers]
        return [Table("Numbers of the sources", texts("quantity", "number", "origin"), rows, "")]
    return [Bullets([str(one) for one in numbers])] if numbers else []


def best_plot(experiment: Experiment, plots: Sequence[PlotFiles]) -> list[PlotFiles]:
    """Returns the plot that stands above all sections, if it was drawn."""
    return [files for files in plots if files.drawing.plot.key == experiment.texts.best_plot]


def of_results(
    experiment: Experiment, analysis: Analysis, plots: Sequence[PlotFiles], levels: str
) -> dict[str, list[Block]]:
    """Returns the blocks of the sections that come from the figures of the runs, by heading; some may have none.

    Args:
        experiment: Experiment.
        analysis: Analysis of the runs.
        plots: Their plots; the best one is left out.
        levels: Levels of the runs, in words.
    """
    rows = [
        [check.claim.sentence, check.claim.kind.value, check.text, check.claim.refuted_if, check.finding.value]
        for check in analysis.checked
    ]
    best = best_plot(experiment, plots)
    notes = [Bullets(analysis.notes)] if analysis.notes else []
    return {
        CLAIMS: [Table("", _CLAIM_COLUMNS, rows, levels)],
        PLOTS: [files for files in plots if files not in best],
        TABLES: [*notes, *analysis.tables],
    }


def build(
    experiment: Experiment, conclusion: Conclusion, checked: Sequence[JudgedClaim], runs: OfRuns, suffix: str
) -> list[Block]:
    """Returns the blocks of a page whose index page has that suffix."""
    sections = of_texts(
        experiment, checked, conclusion.claims, conclusion.verdict, quick=conclusion.quick, suffix=suffix
    )
    sections |= of_results(experiment, runs.analysis, runs.plots, runs.levels)
    sections[REPRODUCTION] = _reproduction(conclusion, runs)
    order = (BACKGROUND, FINDING, SETUP, SEEN, CLAIMS, PLOTS, TABLES, LIMITS, REPRODUCTION)
    return [
        Heading(conclusion.title, 1),
        *sections[HEAD],
        *best_plot(experiment, runs.plots),
        *(block for heading in order for block in _section(heading, sections[heading])),
    ]


def minutes(secs: float) -> int:
    """Returns a duration in minutes, at least one."""
    return max(1, round(secs / 60))


def reproduction_sentence(name: str, num_runs: int, secs: float, *, quick: bool = False) -> str:
    """Returns the command that makes the runs of an experiment, and the minutes that it takes."""
    return (
        f"`ps_trainer experiment {name}{' --quick' if quick else ''}` makes these {num_runs} runs in {minutes(secs)}"
        f" minute{'s' if minutes(secs) > 1 else ''} on a machine like the one below."
    )


def _section(heading: str, blocks: Sequence[Block]) -> list[Block]:
    return [Heading(heading), *blocks] if blocks else []


def _reproduction(conclusion: Conclusion, runs: OfRuns) -> list[Block]:
    return [
        Paragraph(
            reproduction_sentence(conclusion.name, conclusion.num_runs, conclusion.run_secs, quick=conclusion.quick)
        ),
        Bullets(runs.remarks),
        Paragraph(origin_sentence(runs.origin)),
        Paragraph("Beside this page: " + ", ".join(f"[{name}]({name})" for name in _FILES) + "."),
    ]
