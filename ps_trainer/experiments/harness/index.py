"""The page over all experiments: `index.html` and `index.md`, made of the conclusions in the folder."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.experiments.harness import page
from ps_trainer.experiments.harness.claims import ClaimKind
from ps_trainer.experiments.harness.cpu import MAX_DELAYED_SHARE
from ps_trainer.experiments.harness.provenance import origin_sentence
from ps_trainer.experiments.harness.report import FAILED, ClaimLine, Conclusion, tally
from ps_trainer.experiments.harness.store import write_atomically
from ps_trainer.experiments.harness.tables import Table, texts
from ps_trainer.launch.view import duration

_COLUMNS = texts("experiment", "source", "verdict", *(kind.value for kind in ClaimKind), "run time", "not comparable")
_CLAIM_COLUMNS = texts("experiment", "claim", "kind", "measured", "outcome")


def read(out_dir: pathlib.Path, names: Sequence[str]) -> list[Conclusion]:
    """Returns the conclusions that the folder has, in the order of `names`."""
    paths = [path for name in names if (path := out_dir / name / "conclusion.json").exists()]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [Conclusion(**{**one, "claims": [ClaimLine(**claim) for claim in one["claims"]]}) for one in found]


def write(out_dir: pathlib.Path, conclusions: Sequence[Conclusion], origin: Mapping[str, Any]) -> None:
    """Writes the page of at least one conclusion."""
    markdown = build(conclusions, origin, "report.md")
    write_atomically(out_dir / "index.md", page.to_markdown(markdown))
    write_atomically(out_dir / "index.html", page.to_html(build(conclusions, origin, "report.html")))


def build(conclusions: Sequence[Conclusion], origin: Mapping[str, Any], report_name: str) -> list[page.Block]:
    """Returns the page's blocks, with links to the reports of that name."""
    rows = [_row(conclusion, report_name) for conclusion in conclusions]
    claims = [
        [conclusion.name, claim.sentence, claim.kind, claim.measured, claim.outcome]
        for conclusion in conclusions
        for claim in conclusion.claims
    ]
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
        Table("", _COLUMNS, rows, ""),
        Table("Claims", _CLAIM_COLUMNS, claims, ""),
        page.Paragraph(origin_sentence(origin)),
    ]


def _row(conclusion: Conclusion, report_name: str) -> list[str]:
    has_report = not conclusion.verdict.startswith(FAILED)
    link = f"[{conclusion.name}]({conclusion.name}/{report_name})" if has_report else conclusion.name
    num_contended = len(conclusion.contended)
    contended = f"{num_contended} of {conclusion.num_runs} runs" if num_contended else "none"
    counts = [tally(conclusion.claims, kind) for kind in ClaimKind]
    return [link, conclusion.source, conclusion.verdict, *counts, duration(conclusion.run_secs), contended]
