"""The page over all experiments: `index.html` and `index.md`, made of the conclusions in the folder."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ps_trainer.checkpoints import durable_files
from ps_trainer.experiments.harness import page
from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.claims import ClaimFinding, ClaimKind, ClaimLine
from ps_trainer.experiments.harness.conclusion import FAILED, Conclusion
from ps_trainer.experiments.harness.cpu import MAX_DELAYED_SHARE
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.provenance import origin_sentence
from ps_trainer.experiments.harness.sections import SYMBOLS, minutes
from ps_trainer.experiments.harness.tables import NOTHING, Table, numbers, texts
from ps_trainer.launch.view import duration

_OTHER_KINDS = (ClaimKind.THEORY, ClaimKind.SIMULATOR, ClaimKind.EXTENSION)
COLUMNS = (
    *texts("experiment", "question", "answer", "verdict", *(kind.value for kind in _OTHER_KINDS)),
    *numbers("d", "minutes"),
)
CLAIMS = "Claims"

_CLAIM_COLUMNS = texts("experiment", "claim", "kind", "measured", "outcome")
_SYMBOLS = (
    ("n, p", "workers, and ps tasks"),
    ("M, B", "the size of all parameters in bytes, and what a link carries in bytes per second, in each direction"),
    ("T, X", "the time to compute a gradient; the time of a step, which differs from step to step"),
    ("E[X], E[max]", "means: of one step, and of the slowest of n steps"),
    ("H_n", "1 + 1/2 + … + 1/n, which grows as log n"),
    ("α", "the share of a step's time that is exponential, and the rest constant, unless a page says otherwise"),
    ("τ", "staleness: updates that others made between a worker's pull and its push"),
    ("η, k", "learning rate, and workers whose gradients one update averages"),
    ("s", "bound on the lead of the fastest worker over the slowest, in steps"),
    (
        "N, b",
        "gradients of an update, and backup workers, N + b workers in all, unless a page says otherwise of b",
    ),
    ("arm", "one of the ways of training that an experiment compares"),
    ("pilot run", "a run with other seeds, which chooses a learning rate or a bound before the compared runs"),
    ("round, clock", "a time in which each worker makes one step; the number of steps that a worker has made"),
    ("λ, c", "learners (workers) of n-softsync, and the gradients of one update, c = λ/n"),
    ("α₀, μ", "learning rate before it is divided, and momentum or batch size of a learner, as the page says"),
    ("A1, A2, …", "closed forms and models; the guide to experiments lists them"),
    ("L0", f"{Level.VIRTUAL.value[3:]}: a simulator gives all times; gradients, where there are any, are real"),
    ("L2", f"{Level.PROCESSES.value[3:]}: real processes and connections, without a network between them"),
    ("L3", f"{Level.SHAPED.value[3:]}: each task has a network namespace and a link of limited bandwidth"),
    (
        "ok, refuted",
        "every case is inside of the claim's limit, with its whole interval; at least one is outside, with its whole"
        " interval. Where a claim names a median or a mean of cases, that is judged in place of each",
    ),
    ("partly", "inside of the limit, but outside of a narrower range that was expected"),
    ("undecided", "neither: the limit lies within the 90 % confidence interval of a value"),
    (
        "comparable",
        "a real run whose tasks waited for cores for at most 2 % of a step; of L3 without gRPC's network threads, as"
        " links go on meanwhile. Of tasks that compute all the time: other programs used at most 10 % of the cores",
    ),
    ("x [a, b]", "a value and its 90 % confidence interval, by the method that the page's limits name"),
    (
        "nearest, farthest",
        "of several cases, if all are inside: the one whose interval reaches farthest towards the limit or beyond; else"
        " the one that is farthest outside",
    ),
    ("σ", "of lognormal times: the standard deviation of their logarithm"),
    ("p10, p90; ± SE", "10th and 90th percentile over the seeds; standard error of their mean"),
    ("median of k", "of k cases; order statistics give its interval"),
    ("≥, ≤", "only a bound of the value is known, because most runs gave up before the target"),
    ("literature", "a source claims it about the system that it measured; only these claims make the verdict"),
    ("theory", "a formula, or a count that must come out"),
    ("simulator", "the simulator against a real cluster, or against what it was fitted to"),
    ("extension", "beyond what the sources say"),
    ("shape reproduced", "as a verdict: every claim of the literature is ok"),
    ("partly, undecided", "as verdicts: some claims of the literature are not ok or not tested; some are undecided"),
)


def read(out_dir: pathlib.Path, names: Sequence[str]) -> list[Conclusion]:
    """Returns the conclusions that the folder has, in the order of `names`."""
    paths = [path for name in names if (path := out_dir / name / "conclusion.json").exists()]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [Conclusion(**{**one, "claims": [ClaimLine(**claim) for claim in one["claims"]]}) for one in found]


def write(out_dir: pathlib.Path, conclusions: Sequence[Conclusion], origin: Mapping[str, Any]) -> None:
    """Writes the page of at least one conclusion."""
    markdown = build(conclusions, origin, "report.md")
    durable_files.replace_text(out_dir / "index.md", page.to_markdown(markdown))
    durable_files.replace_text(out_dir / "index.html", page.to_html(build(conclusions, origin, "report.html")))


def build(conclusions: Sequence[Conclusion], origin: Mapping[str, Any], report_name: str) -> list[page.Block]:
    """Returns the page's blocks, with links to the reports of that name."""
    rows = [_row(conclusion, report_name) for conclusion in conclusions]
    secs = sum(conclusion.run_secs for conclusion in conclusions)
    number = f"{len(conclusions)} experiment{'s' if len(conclusions) != 1 else ''}"
    quick = " Quick forms: few repetitions, short runs." if any(one.quick for one in conclusions) else ""
    return [
        page.Heading("Experiments", 1),
        page.Paragraph(
            f"{number}, {sum(one.num_runs for one in conclusions)} runs, {duration(secs)}.{quick} A claim's threshold"
            " is written in the experiment's file before it is run; amendments have a date and a reason. The verdict"
            " comes from the claims of the literature. The times of a real run are not comparable if its tasks waited"
            f" for a core for more than {100 * MAX_DELAYED_SHARE:g} % of a step, or, where they compute all the time,"
            " if other programs used the cores."
        ),
        Table("", COLUMNS, rows),
        page.Heading(SYMBOLS),
        symbols(),
        page.Heading(CLAIMS),
        claims({one.name: one.claims for one in conclusions}),
        page.Paragraph(origin_sentence(origin)),
    ]


def symbols() -> Table:
    """Returns the table that explains symbols, levels, outcomes and kinds of claims."""
    return Table("", texts("symbol or word", "meaning"), _SYMBOLS)


def claims(lines: Mapping[str, Sequence[ClaimLine]]) -> Table:
    """Returns the table of the claims of all experiments, whose lines are given by the name of the experiment."""
    rows = [
        [name, claim.sentence, claim.kind, claim.measured, claim.outcome]
        for name, of_one in lines.items()
        for claim in of_one
    ]
    return Table("", _CLAIM_COLUMNS, rows)


def amendments(experiments: Iterable[Experiment]) -> Table:
    """Returns the table of the claims that were changed after their first run, with dates and reasons."""
    rows = [[one.name, claim.sentence, claim.amended] for one in experiments for claim in one.claims if claim.amended]
    return Table("", texts("experiment", "claim", "amended"), rows)


def other_kinds(lines: Iterable[ClaimLine]) -> list[str]:
    """Returns the cells of the claims that do not make the verdict: for each kind, how many of them are ok."""
    outcomes = {kind: [line.outcome for line in lines if line.kind == kind.value] for kind in _OTHER_KINDS}
    return [f"{own.count(ClaimFinding.OK.value)} of {len(own)} ok" if own else NOTHING for own in outcomes.values()]


def _row(conclusion: Conclusion, report_name: str) -> list[Any]:
    has_report = not conclusion.verdict.startswith(FAILED)
    link = f"[{conclusion.name}]({conclusion.name}/{report_name})" if has_report else conclusion.name
    found = [conclusion.question, conclusion.answer, conclusion.verdict, *other_kinds(conclusion.claims)]
    return [link, *found, minutes(conclusion.run_secs)]
