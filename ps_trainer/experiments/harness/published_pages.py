"""The published pages of `docs/results`, whose runs are not in the repository: what they say, and their current texts.

Numbers, plots and tables of a page stay as they are, unless its figures are given (`with_results`). What the claims
found is read from the page's table of claims.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness import index, sections
from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.claims import ClaimFinding, ClaimKind, ClaimLine, JudgedClaim, Verdict, verdict_on
from ps_trainer.experiments.harness.elsewhere import LinesOf, findings_of
from ps_trainer.experiments.harness.page import Block, Heading, Paragraph, to_markdown
from ps_trainer.experiments.harness.plots import Caption, ClaimSummary, PlotFiles
from ps_trainer.experiments.harness.report import title_of
from ps_trainer.experiments.harness.runs import Results
from ps_trainer.experiments.harness.tables import Table, texts

_CELL = re.compile(r" \| ")
_COMMIT = re.compile(r"\bcommit ([0-9a-f]{7})\b")
_PLOT = re.compile(r"(\]\(\w+/\w+?-([^)\s]+)\.png\)\n\n\*[^\n]*\* \([^)\n]*\)\. )[^\n]*")
_IMAGE = re.compile(r"!\[([^\]]*)\]\((plots/[^)\s]+)\)")
_BEST_PLOT = re.compile(r"^!\[[^\n]*\n\n[^\n]*\n", re.MULTILINE)
_PLOT_BESIDE = re.compile(r"\]\(([^)/\s]+\.png)\)")
_TITLE = re.compile(r"\A# [^\n]*")
_HEAD = re.compile(r"\A(# [^\n]*\n\n).*?(?=^!\[|^## )", re.MULTILINE | re.DOTALL)
_RUNS = re.compile(r"makes these (\d+) runs in (\d+) minute")
_OVERVIEW = re.compile(r"^\| experiment \| question .*\n(?:\|.*\n)*", re.MULTILINE)
_TOTALS = re.compile(r"[\d,]+ runs, \d+ hours and \d+ minutes")
_OUTCOMES = re.compile(r"Of \d+ claims.*?withdrawn\S*\.", re.DOTALL)
_INDEX_LINK = re.compile(r"\]\(\.\./index\.md#")
_THUMBNAIL_WIDTH = 160


class PageSummary(NamedTuple):
    """The facts of a published page that the overview shows."""

    experiment: Experiment
    answer: str  # answer in a sentence
    verdict: Verdict
    lines: Sequence[ClaimLine]  # all claims with their outcomes
    num_runs: int  # number of runs
    minutes: int  # their duration
    image: tuple[str, str]  # title and path of the first plot

    def row(self) -> list[Any]:
        """Returns the row of the overview."""
        name, (title, path) = self.experiment.name, self.image
        plot = f'<img src="{path}" alt="{title}" width="{_THUMBNAIL_WIDTH}">'
        question, verdict = self.experiment.texts.question, self.verdict.kind.value
        link = f"[{name}]({name}.md)<br>{plot}"
        return [link, question, self.answer, verdict, *index.other_kinds(self.lines), self.minutes]


def read_claims(page: str) -> list[ClaimLine]:
    """Returns the lines of the page's table of claims; none without a table."""
    lines = iter(page.splitlines())
    header = next((line for line in lines if line.startswith("| claim |")), "")
    _, *rows = [_cells(line) for line in itertools.takewhile(lambda line: line.startswith("|"), lines)] or [[]]
    named = [dict(zip(_cells(header), row, strict=True)) for row in rows]
    return [
        ClaimLine(sentence=row["claim"], measured=row["measured"], outcome=row["outcome"], kind=row.get("kind", ""))
        for row in named
    ]


def judged(experiment: Experiment, lines: Iterable[ClaimLine]) -> list[JudgedClaim]:
    """Returns the claims of the lines that the experiment still has, with their outcomes."""
    claims = {claim.sentence: claim for claim in experiment.claims}
    return [
        JudgedClaim(claims[line.sentence], ClaimFinding(line.outcome), line.measured)
        for line in lines
        if line.sentence in claims
    ]


def untested(experiment: Experiment, lines: Iterable[ClaimLine]) -> str:
    """Returns what the sources claim and the page does not test, in words: claims are newer than its runs, too."""
    shown = {line.sentence for line in lines}
    own = [claim.sentence for claim in experiment.claims if claim.kind is ClaimKind.LITERATURE]
    newer = [f"“{sentence}” (newer than these runs)" for sentence in own if sentence not in shown]
    return "; ".join([*([experiment.untested] if experiment.untested else []), *newer])


def _no_lines(name: str) -> Sequence[ClaimLine]:
    del name
    return ()


def verdict(experiment: Experiment, lines: Sequence[ClaimLine], lines_of: LinesOf = _no_lines) -> Verdict:
    """Returns the verdict on an experiment from the lines of its page, and from those of other pages by name."""
    elsewhere = findings_of(experiment, lines_of)
    return verdict_on(judged(experiment, lines), untested(experiment, lines), elsewhere)


def summary(experiment: Experiment, page: str, lines_of: LinesOf = _no_lines) -> PageSummary:
    """Returns the facts of a page that the overview shows; `lines_of` returns the lines of other pages by name."""
    lines = read_claims(page)
    checked = judged(experiment, lines)
    runs, image = _RUNS.search(page), _IMAGE.search(page)
    if not runs or not image:
        raise UsageError(f"the page of {experiment.name} does not state its runs, or has no plot; publish it again")
    found = verdict(experiment, lines, lines_of)
    answer = experiment.texts.answer(checked)
    return PageSummary(experiment, answer, found, lines, int(runs[1]), int(runs[2]), (image[1], image[2]))


class WithdrawnClaim(NamedTuple):
    """A claim that no experiment has any more."""

    experiment: str  # name
    key: str
    limit: str  # first limit, in words
    why: str  # date and reason


def all_claims(
    pages: Mapping[str, str], experiments: Iterable[Experiment], withdrawn: Sequence[WithdrawnClaim] = ()
) -> str:
    """Returns the page with the claims of at least one experiment.

    Args:
        pages: Published pages by the experiments' names.
        experiments: All experiments; their amended claims are listed, published or not.
        withdrawn: Claims that no experiment has any more.
    """
    by_commit: dict[str, list[str]] = {}
    for name, page in pages.items():
        by_commit.setdefault(_COMMIT.findall(page)[-1], []).append(name)
    made = [f"commit {commit} made {', '.join(names)}" for commit, names in by_commit.items()]
    claims = index.claims({name: read_claims(page) for name, page in pages.items()})
    return to_markdown(
        [
            Heading("All claims of the experiments", 1),
            claims,
            Paragraph(f"Of these, {'; '.join(made)}."),
            Heading("Amended claims"),
            Paragraph(
                "These claims were changed or added after the first run of their experiment. All other limits are those"
                " that were fixed before it. A page shows a change only once its experiment has run again."
                " [limits.csv](limits.csv) has the first limit of each claim, and its date. An origin *plan* means that"
                " the description of the experiments, which preceded their code, gave this limit. All others were"
                " fixed with the claim."
            ),
            index.amendments(experiments),
            Heading("Withdrawn claims"),
            Paragraph("No run is judged by these claims any more." if withdrawn else "None."),
            Table("", texts("experiment", "claim", "first limit", "withdrawn"), withdrawn),
        ]
    )


def with_captions(page: str, captions: Mapping[str, Caption]) -> str:
    """Returns a page with its captions, by key up to its first `-`, below its plots."""
    seen = {line.sentence: ClaimSummary(line.measured, line.outcome) for line in read_claims(page)}
    return _PLOT.sub(lambda match: match[1] + captions[match[2].partition("-")[0]].text(seen), page)


def with_texts(page: str, experiment: Experiment, lines_of: LinesOf = _no_lines) -> str:
    """Returns a page with the current texts of its experiment, without marks in the sections that get them.

    `lines_of` returns the lines of claims of other pages, by the name of the experiment.
    """
    lines = read_claims(page)
    checked = judged(experiment, lines)
    found = str(verdict(experiment, lines, lines_of))
    page = _TITLE.sub(lambda _: f"# {title_of(experiment)}", page, count=1)
    for heading, blocks in sections.of_texts(experiment, checked, lines, found).items():
        page = with_section(page, heading, blocks)
    return page


def with_results(page: str, experiment: Experiment, results: Results, files: Sequence[PlotFiles]) -> str:
    """Returns a page with the claims, tables and plots that the current code makes of the figures of its runs.

    Captions and texts are those of before; `with_captions` and `with_texts` follow the claims.
    """
    (best,) = sections.best_plot(experiment, files)
    page = _BEST_PLOT.sub(lambda _: _with_plots_folder(to_markdown([best])), page, count=1)
    for heading, blocks in sections.of_results(experiment, experiment.analyse(results), files, results.levels).items():
        if blocks:
            page = with_section(page, heading, blocks)
    return page


def with_section(page: str, heading: str, blocks: Sequence[Block]) -> str:
    """Returns a page with other blocks below a heading; without a heading, those between the title and the first plot.

    Raises:
        UsageError: The page has no such heading.
    """
    section = re.compile(rf"^(## {re.escape(heading)}\n\n).*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    text = _with_plots_folder(with_local_links(to_markdown(blocks)))
    page, count = (section if heading else _HEAD).subn(lambda match: f"{match[1]}{text}\n", page, count=1)
    if not count:
        raise UsageError(f"a page has no section {heading!r}; publish it again")
    return f"{page.rstrip()}\n"


def with_overview(page: str, summaries: Sequence[PageSummary], num_withdrawn: int = 0) -> str:
    """Returns the index page with this overview of the experiments, and the totals of runs, time and outcomes."""
    table = Table("", index.COLUMNS, [summary.row() for summary in summaries])
    hours, minutes = divmod(sum(one.minutes for one in summaries), 60)
    totals = f"{sum(one.num_runs for one in summaries):,} runs, {hours} hours and {minutes} minutes"
    lines = Counter(line.outcome for one in summaries for line in one.lines)
    outcomes = {one.value: lines[one.value] for one in ClaimFinding if lines[one.value]}
    counts = ", ".join(f"{count} {'are' if count > 1 else 'is'} {outcome}" for outcome, count in outcomes.items())
    claims = (
        f"Of {sum(outcomes.values())} claims, {counts}; {num_withdrawn} more were"
        " [withdrawn](all-claims.md#withdrawn-claims)."
    )
    page = _OUTCOMES.sub(lambda _: claims, _TOTALS.sub(totals, page))
    return _OVERVIEW.sub(lambda _: to_markdown([table]), page)


def with_local_links(page: str) -> str:
    """Returns a page whose index page lies beside it."""
    return _INDEX_LINK.sub("](index.md#", page)


def _with_plots_folder(page: str) -> str:
    return _PLOT_BESIDE.sub(r"](plots/\1)", page)


def _cells(line: str) -> list[str]:
    return [cell.replace("\\|", "|") for cell in _CELL.split(line.removeprefix("| ").removesuffix(" |"))]
