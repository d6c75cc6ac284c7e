"""Writes a comparison: one HTML page that needs no network and no script, and a PNG file of each plot."""

from __future__ import annotations

import html
import io
import pathlib
import re
from collections.abc import Callable, Sequence

from ps_trainer.comparison import plots
from ps_trainer.comparison.plots import NamedPlot
from ps_trainer.comparison.recorded_run import RecordedRun

PAGE_NAME = "index.html"
# Settings that differ between any two runs, and so say nothing about the difference of their results.
_UNINTERESTING = frozenset({"logdir"})
_STYLE = """
body { font-family: system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .75rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
"""
_FIGURES: dict[str, Callable[[RecordedRun], object]] = {
    "status": lambda run: run.summary.status or f"no summary; last report at step {run.totals.last_step:,}",
    "update rule": lambda run: run.update,
    "ps tasks": lambda run: run.num_ps,
    "workers": lambda run: run.num_workers,
    "global step": lambda run: run.global_step,
    "examples": lambda run: run.totals.examples,
    "examples per second": lambda run: run.totals.examples_per_sec,
    "mean staleness": lambda run: run.totals.staleness_mean,
    "gradients dropped": lambda run: _num_dropped(run),
    "bytes pushed per step": lambda run: run.totals.push_bytes_per_step,
    "bytes pulled per step": lambda run: run.totals.pull_bytes_per_step,
    "restarts": lambda run: run.summary.num_restarts or None,
    "faults": lambda run: len(run.events) or None,
}


def write(runs: Sequence[RecordedRun], out_dir: pathlib.Path) -> pathlib.Path:
    """Writes the page and the PNG files.

    Args:
        runs: Runs to show, in this order.
        out_dir: Folder of the files; made if it does not exist. Files of the same names are overwritten.

    Returns:
        Path of the page.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    sections = []
    for drawn in plots.draw(runs):
        drawn.save(out_dir / f"{drawn.name}.png", "png")
        sections.append(f"<h2>{html.escape(drawn.title)}</h2>\n{_to_svg(drawn)}")
    *others, last = (run.name for run in runs)
    title = html.escape(f"{', '.join(others)} and {last}" if others else last)
    page = "\n".join(
        [
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>',
            f'<link rel="icon" href="data:,">\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>',
            _build_table("Result", runs, results(runs)),
            *(f"<p>{html.escape(note)}</p>" for note in notes(runs)),
            _build_table("Settings that differ", runs, differences(runs)) if len(runs) > 1 else "",
            *sections,
            _event_list(runs),
            "</body>\n</html>\n",
        ]
    )
    path = out_dir / PAGE_NAME
    path.write_text(page, encoding="utf-8")
    return path


def results(runs: Sequence[RecordedRun]) -> dict[str, list[str]]:
    """Returns the figures of the runs by name, as text; figures that no run has are left out."""
    metrics = dict.fromkeys(name for run in runs for name in run.metrics)
    rows = {name: [value(run) for run in runs] for name, value in _FIGURES.items()}
    rows |= {
        f"test {name}": [run.metrics[name].y[-1] if name in run.metrics else None for run in runs] for name in metrics
    }
    return {
        name: [_format_value(value) for value in row] for name, row in rows.items() if any(v is not None for v in row)
    }


def notes(runs: Sequence[RecordedRun]) -> list[str]:
    """Returns the sentences which say what the figures count."""
    found = [
        "Examples, rates and bytes count every step that a worker reported, also the steps that a rollback undid."
        " The examples per second leave out the time in which no worker trained."
    ]
    for run in runs:
        partial = {
            "the staleness histogram": bool(run.summary.staleness) and run.has_partial_summary,
            "the plot of used and dropped gradients": run.gradients_used is not None and run.has_partial_gradients,
        }
        names = " and ".join(name for name, is_partial in partial.items() if is_partial)
        if names:
            verb = "count" if all(partial.values()) else "counts"
            found.append(
                f"{run.name}: {names} {verb} only since the workers last joined"
                f" ({run.summary.local_steps:,} of {run.totals.steps:,} steps)."
            )
    return found


def differences(runs: Sequence[RecordedRun]) -> dict[str, list[str]]:
    """Returns the flags whose values differ between the runs, as text."""
    names = dict.fromkeys(name for run in runs for name in run.settings if name not in _UNINTERESTING)
    rows = {f"--{name}": [_format_value(run.settings.get(name)) for run in runs] for name in names}
    return {name: row for name, row in rows.items() if len(set(row)) > 1}


def _num_dropped(run: RecordedRun) -> int | None:
    """Returns the count of dropped gradients over all joins; summary.json also counts those of killed workers."""
    no_summary = run.gradients_dropped is None or run.has_partial_gradients
    return run.totals.gradients_dropped if no_summary else run.gradients_dropped


def _build_table(title: str, runs: Sequence[RecordedRun], rows: dict[str, list[str]]) -> str:
    if not rows:
        return f"<h2>{title}</h2>\n<p>None.</p>"
    head = "".join(f"<th>{html.escape(run.name)}</th>" for run in runs)
    body = "\n".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{html.escape(value)}</td>' for value in row)}</tr>"
        for name, row in rows.items()
    )
    return f"<h2>{title}</h2>\n<table>\n<tr><th></th>{head}</tr>\n{body}\n</table>"


def _event_list(runs: Sequence[RecordedRun]) -> str:
    items = [
        f"<li>{html.escape(run.name)}: {html.escape(event.text)} after {event.secs:.1f} s"
        + ("" if event.step is None else f", at step {event.step:,}")
        + "</li>"
        for run in runs
        for event in run.events
    ]
    return (
        "<h2>Faults</h2>\n<p>Dotted vertical lines mark them.</p>\n<ul>\n" + "\n".join(items) + "\n</ul>"
        if items
        else ""
    )


def _to_svg(drawn: NamedPlot) -> str:
    """Returns a plot as an SVG element. Its ids get the plot's name, because ids are unique within a page."""
    buffer = io.BytesIO()
    drawn.save(buffer, "svg")
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue().decode(), flags=re.DOTALL)
    svg = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{drawn.name}-", svg)
    return re.sub("<svg ", f'<svg id="{drawn.name}" role="img" aria-label="{html.escape(drawn.title)}" ', svg, count=1)


def _format_value(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
