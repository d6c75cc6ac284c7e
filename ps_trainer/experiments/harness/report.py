"""The report of one experiment, as files that need nothing else.

    <out_dir>/<experiment>/report.html     self-contained, plots inside
    <out_dir>/<experiment>/report.md       the same, with the plots beside it as PNG and SVG
    <out_dir>/<experiment>/results.csv     a line per run: settings, figures, CPU share
    <out_dir>/<experiment>/steps.jsonl     a line per step of the runs that kept them
    <out_dir>/<experiment>/provenance.json
    <out_dir>/<experiment>/conclusion.json input of the index page

`report.html` needs none of the other files.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer.checkpoints import durable_files
from ps_trainer.experiments.harness import index, page, plots, sections
from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.claims import ClaimFinding, ClaimLine, Elsewhere, JudgedClaim, verdict_on
from ps_trainer.experiments.harness.conclusion import FAILED, Conclusion
from ps_trainer.experiments.harness.elsewhere import findings_of
from ps_trainer.experiments.harness.runner import (
    ExecutionResult,
    PlannedExperiment,
    contended_sentence,
    others_sentence,
    waits_sentence,
)
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.launch.view import duration


def title_of(experiment: Experiment) -> str:
    """Returns the first line of the experiment's docstring."""
    return (type(experiment).__doc__ or experiment.name).strip().partition("\n")[0].rstrip(".")


def write(
    planned: PlannedExperiment, executed: ExecutionResult, origin: Mapping[str, Any]
) -> tuple[Conclusion, list[JudgedClaim]]:
    """Analyses the results and writes all files; after a failed run only those that need no analysis.

    Returns:
        The conclusion, and its checked claims; none where a run failed.
    """
    planned.folder.mkdir(parents=True, exist_ok=True)
    results = executed.results
    _write_csv(results, planned.folder / "results.csv")
    _write_steps(planned.experiment.name, results, planned.folder / "steps.jsonl")
    _write_json(planned.folder / "provenance.json", {**origin, **_origin_of_runs(planned, results)})
    if executed.failures:
        conclusion = conclude(planned, executed, [])
        checked = []
    else:
        analysis = planned.experiment.analyse(results)
        checked = list(analysis.checked)
        conclusion = conclude(planned, executed, checked)
        seen = {check.claim.sentence: plots.ClaimSummary(check.text, check.finding.value) for check in checked}
        files = [
            plots.save(drawing, planned.experiment.captions[drawing.plot.caption_key].text(seen), planned.folder)
            for drawing in planned.experiment.plots(results)
        ]
        of_runs = sections.OfRuns(results.levels, files, analysis, _remarks(planned, results), origin)
        for suffix, render in (("md", page.to_markdown), ("html", page.to_html)):
            blocks = sections.build(planned.experiment, conclusion, checked, of_runs, suffix)
            durable_files.replace_text(planned.folder / f"report.{suffix}", render(blocks))
    save_conclusion(planned, conclusion)
    return conclusion, checked


def save_conclusion(planned: PlannedExperiment, conclusion: Conclusion) -> None:
    """Writes `conclusion.json`."""
    _write_json(planned.folder / "conclusion.json", dataclasses.asdict(conclusion))


def conclude(
    planned: PlannedExperiment, executed: ExecutionResult, checked: Sequence[JudgedClaim], failure: str = ""
) -> Conclusion:
    """Returns the conclusion of an experiment, without claims after a failure; `failure`: what failed besides runs."""
    failures = [*(failed.key for failed in executed.failures), *([failure] if failure else [])]
    return Conclusion(
        name=planned.experiment.name,
        title=title_of(planned.experiment),
        source=planned.experiment.source,
        quick=planned.quick,
        question=planned.experiment.texts.question,
        answer=planned.experiment.texts.answer(checked) if checked else "",
        verdict=f"{FAILED}: {', '.join(failures)}"
        if failures
        else str(verdict_on(checked, planned.experiment.untested, _findings_elsewhere(planned))),
        claims=[
            ClaimLine(
                sentence=check.claim.sentence,
                measured=check.text,
                outcome=check.finding.value,
                kind=check.claim.kind.value,
            )
            for check in checked
        ],
        num_runs=len(executed.results),
        run_secs=sum(result.wall_secs for result in executed.results),
        contended=[result.run.key for result in executed.results if result.is_contended],
        failures=failures,
    )


def _findings_elsewhere(planned: PlannedExperiment) -> dict[Elsewhere, ClaimFinding]:
    """Returns the outcomes of claims that other experiments test, of those whose reports lie beside this one."""

    def lines_of(name: str) -> list[ClaimLine]:
        found = index.read(planned.folder.parent, [name])
        return [line for one in found if one.quick == planned.quick for line in one.claims]

    return findings_of(planned.experiment, lines_of)


def _seeds(results: Results) -> str:
    """Returns the seeds of the runs, one each, in words: "seeds 0 to 4, 7"."""
    seeds = sorted({result.run.seed for result in results})
    places = itertools.count()
    groups = [[*group] for _, group in itertools.groupby(seeds, lambda seed: seed - next(places))]
    ranges = [f"{group[0]} to {group[-1]}" if len(group) > 1 else f"{group[0]}" for group in groups]
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(ranges)}"


def _remarks(planned: PlannedExperiment, results: Results) -> list[str]:
    """Returns the remarks of the harness on the runs."""
    secs = sum(result.wall_secs for result in results)
    remarks = [f"{len(results)} runs with {_seeds(results)}, {duration(secs)} together; {results.levels}."]
    remarks += filter(None, (contended_sentence(results), waits_sentence(results), others_sentence(results)))
    if planned.old_versions:
        remarks.append(f"Some runs were measured by other versions of the code: {', '.join(planned.old_versions)}.")
    commits = Counter(result.commit[:7] for result in results if result.commit != planned.store.commit)
    made = [f"{count} by commit {commit}" for commit, count in commits.items() if commit]
    return [*remarks, f"Other commits made some runs: {', '.join(made)}."] if made else remarks


def _origin_of_runs(planned: PlannedExperiment, results: Results) -> dict[str, Any]:
    runs = {result.run.key: {**result.run.identity(), **_cost(result)} for result in results}
    return {
        "experiment": planned.experiment.name,
        "quick": planned.quick,
        "code_versions": {level.value: version for level, version in planned.store.versions.items()},
        "other_code_versions": list(planned.old_versions),
        "seeds": list(planned.seeds),
        "runs": runs,
    }


def _cost(result: RunResult) -> dict[str, Any]:
    """Returns the time and CPU of a run; `cpu_tasks_secs` counts its own processes, `cpu_share` the whole machine.

    `delayed_share` is the share of a step for which its tasks waited for a core.
    """
    cpu = result.cpu
    return {
        "wall_secs": round(result.wall_secs, 3),
        "cpu_tasks_secs": round(cpu.tasks_secs, 2) if cpu else None,
        "cpu_share": round(cpu.share, 4) if cpu else None,
        "delayed_share": round(cpu.delayed_share, 5) if cpu and cpu.delayed_share is not None else None,
        "is_comparable": not result.is_contended,
        "num_attempts": result.num_attempts,
        "commit": result.commit,
    }


def _write_csv(results: Results, path: pathlib.Path) -> None:
    rows = [
        {
            "run": result.run.key,
            "level": result.run.level.value,
            "seed": result.run.seed,
            **_scalars(result.run.settings.as_json()),
            **_scalars(result.figures.as_json()),
            **_cost(result),
        }
        for result in results
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if isinstance(value, (bool, int, float, str, type(None)))}


def _write_steps(name: str, results: Results, path: pathlib.Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for result in results:
            head = {"run_id": result.run.key, "exp_id": name, "level": result.run.level.value, "seed": result.run.seed}
            file.writelines(json.dumps({**head, **step}) + "\n" for step in result.steps())


def _write_json(path: pathlib.Path, value: Any) -> None:
    durable_files.replace_text(path, json.dumps(value, indent=1) + "\n")
