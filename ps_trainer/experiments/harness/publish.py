"""Puts the reports of a finished run into a clone of the repository: a page each, and their plots.

    python -m ps_trainer.experiments.harness.publish runs/experiments

writes into `docs/results` a page for each experiment of the run, its plots in `plots/`, and the figures of its runs in
`figures/` (`archive.py`), in place of earlier ones. The pages of other experiments stay. Then, or without a folder only
this, it updates all pages: texts (`page_texts.py`), captions, the overview in `index.md`, the claims of all pages in
`all-claims.md`, and marks (`marks.py`). Numbers and plots stay as they are.

    python -m ps_trainer.experiments.harness.publish --again [NAME…]

makes claims, tables and plots of the pages again whose runs are in `figures/`, without a run: of all such pages, or of
the named ones.
"""

from __future__ import annotations

import csv
import io
import json
import pathlib
import re
import sys

from ps_trainer import component_tables
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, PsTrainerError, UsageError
from ps_trainer.experiments.harness import archive, index, marks, plots, published_pages, sections
from ps_trainer.experiments.harness.claims import ClaimLine
from ps_trainer.experiments.harness.provenance import REPOSITORY

INDEX_NAME = "index.md"  # page over all experiments, of a run and in the repository
RESULTS = pathlib.Path("docs", "results")  # folder of the pages, in the repository
SUMMARY_NAME = "all-claims.md"  # page with the claims of all experiments
LIMITS_NAME = "limits.csv"  # first limit of each claim
PLOTS_FOLDER = "plots"
FIGURES_FOLDER = "figures"
MAX_BYTES = 6_000_000

_IMAGE = re.compile(r"\]\(([^)/\s]+)\.png\)")
_FORMS = (".png", ".svg")  # pages show the first one
_FILES_LINE = re.compile(r"^Beside this page: .*$", re.MULTILINE)
_PLOTS_LINE = f"Each plot is in `{PLOTS_FOLDER}/` as PNG and SVG."


def publish(out_dir: pathlib.Path, folder: pathlib.Path, names: list[str]) -> list[pathlib.Path]:
    """Writes the pages and their plots, and returns the files written.

    Args:
        out_dir: Folder of the `experiment` command, with `index.md` and a folder per experiment.
        folder: Folder of the pages.
        names: All experiments. Pages and plots of those without a report stay.

    Raises:
        UsageError: The folder holds no reports, a report is of a quick run, or all is more than `MAX_BYTES`.
    """
    reports = {name: path for name in names if (path := out_dir / name / "report.md").exists()}
    if not reports:
        raise UsageError(f"{out_dir} holds no reports; run `ps_trainer experiment all --out_dir={out_dir}`")
    for report in reports.values():
        if json.loads((report.parent / "conclusion.json").read_text(encoding="utf-8"))["quick"]:
            raise UsageError(f"{report} is of a quick run; only full ones are published. Run it without --quick")
    files: dict[str, bytes] = {}
    for name, report in reports.items():
        text = published_pages.with_local_links(_FILES_LINE.sub(_PLOTS_LINE, report.read_text(encoding="utf-8")))
        images = {
            f"{PLOTS_FOLDER}/{name}-{plot}{form}": (report.parent / f"{plot}{form}").read_bytes()
            for plot in _IMAGE.findall(text)
            for form in _FORMS
        }
        runs = {}
        if (folder_of_runs := report.parent / "runs").exists():
            with (report.parent / "results.csv").open(encoding="utf-8", newline="") as table:
                keys = [line["run"] for line in csv.DictReader(table)]
            runs = {f"{FIGURES_FOLDER}/{name}.jsonl.gz": archive.pack(folder_of_runs, keys)}
        files |= {f"{name}.md": _IMAGE.sub(rf"]({PLOTS_FOLDER}/{name}-\1.png)", text).encode(), **images, **runs}
    size = sum(map(len, files.values()))
    if size > MAX_BYTES:
        raise UsageError(f"pages and plots are {size:,} bytes; {MAX_BYTES:,} are allowed. Draw fewer or smaller plots")
    for old in [plot for name in reports for plot in (folder / PLOTS_FOLDER).glob(f"{name}-*.*")]:
        old.unlink()
    for subfolder in (PLOTS_FOLDER, FIGURES_FOLDER):
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return [folder / file for file in files]


def analyse_again(folder: pathlib.Path, names: list[str]) -> list[pathlib.Path]:
    """Makes claims, tables and plots of the pages again whose runs are in the folder of pages; returns the files.

    Raises:
        UsageError: The code, or this machine, cannot plan the runs of a page, or a page lacks a section.
    """
    written = []
    for name in names:
        runs, page = folder / FIGURES_FOLDER / f"{name}.jsonl.gz", folder / f"{name}.md"
        if not runs.exists():
            continue
        experiment = component_tables.EXPERIMENTS.create(name)
        results = archive.read(runs, experiment)
        for old in (folder / PLOTS_FOLDER).glob(f"{name}-*.*"):
            old.unlink()
        files = [
            plots.save(drawing, "", folder / PLOTS_FOLDER, f"{name}-{drawing.plot.key}")
            for drawing in experiment.plots(results)
        ]
        text = published_pages.with_results(page.read_text(encoding="utf-8"), experiment, results, files)
        page.write_text(text, encoding="utf-8")
        written += [page, *(path for one in files for path in (one.png, one.svg))]
    return written


def update(repository: pathlib.Path, names: list[str]) -> list[pathlib.Path]:
    """Updates texts, captions, overview, claims and marks of the published pages in a clone, and returns the pages."""
    all_marks = marks.read(repository)
    folder = repository / RESULTS
    experiments = {folder / f"{name}.md": component_tables.EXPERIMENTS.create(name) for name in names}
    named = [*experiments, *(repository / mark.page for mark in all_marks)]
    pages = {path: path.read_text(encoding="utf-8") for path in dict.fromkeys(named) if path.exists()}
    claims = {path.stem: published_pages.read_claims(page) for path, page in pages.items() if path in experiments}

    def lines_of(name: str) -> list[ClaimLine]:
        return claims.get(name, [])

    summaries, published, withdrawn = [], {}, _withdrawn(folder)
    for path, experiment in experiments.items():
        if path in pages:  # an experiment that was never published has none
            page = published_pages.with_texts(pages[path], experiment, lines_of)
            pages[path] = published_pages.with_captions(page, experiment.captions)
            summaries.append(published_pages.summary(experiment, page, lines_of))
            published[experiment.name] = page
    if published:
        pages[folder / SUMMARY_NAME] = published_pages.all_claims(published, experiments.values(), withdrawn)
    if (folder / INDEX_NAME).exists():
        page = (folder / INDEX_NAME).read_text(encoding="utf-8")
        page = published_pages.with_section(page, sections.SYMBOLS, [index.symbols()])
        pages[folder / INDEX_NAME] = published_pages.with_overview(page, summaries, len(withdrawn))
    for path, page in pages.items():
        page_marks = [mark for mark in all_marks if repository / mark.page == path]
        path.write_text(marks.with_marks(page, page_marks), encoding="utf-8")
    return list(pages)


def _withdrawn(folder: pathlib.Path) -> list[published_pages.WithdrawnClaim]:
    """Returns the claims that `limits.csv` names as withdrawn; none without the file."""
    path = folder / LIMITS_NAME
    with path.open(encoding="utf-8", newline="") if path.exists() else io.StringIO() as file:
        rows = [row for row in csv.DictReader(file) if row["withdrawn"]]
    columns = ("experiment", "claim", "limit", "withdrawn")
    return [published_pages.WithdrawnClaim(*(row[column] for column in columns)) for row in rows]


def main(argv: list[str]) -> int:
    """Publishes the folder `argv[1]`, or makes pages again, and updates all pages; returns the exit code."""
    names = component_tables.EXPERIMENTS.names()
    try:
        is_again = argv[1:2] == ["--again"]
        if len(argv) > 2 and not is_again:
            raise UsageError("usage: python -m ps_trainer.experiments.harness.publish [OUT_DIR | --again [NAME…]]")
        if not (REPOSITORY / RESULTS).is_dir():
            raise UsageError(f"{REPOSITORY} has no folder {RESULTS}; call this from a clone of the repository")
        if is_again:
            written = analyse_again(REPOSITORY / RESULTS, argv[2:] or names)
        else:
            written = publish(pathlib.Path(argv[1]), REPOSITORY / RESULTS, names) if argv[1:] else []
            # Archives round figures, and a page shall be the one that its archive gives.
            analyse_again(REPOSITORY / RESULTS, [path.stem for path in written if path.suffix == ".md"])
        pages = update(REPOSITORY, names)
    except PsTrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code or EXIT_FAILED
    if written:
        total = sum(path.stat().st_size for path in written)
        print(f"{written[0].parent}: {len(written)} files, {total / 1e6:.2f} MB")
    print(f"up to date: {', '.join(map(str, pages))}")
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv))
