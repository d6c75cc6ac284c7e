"""Puts the reports of a finished run into the repository: one page, its plots as small files.

    python -m ps_trainer.experiments.harness.publish runs/experiments

writes `RESULTS.md` and `results/*.png` into `ps_trainer/experiments`, and replaces the existing files.
Without a folder, it updates the existing pages with the current captions and marks (`marks.py`). The runs' own files
are not in the repository, so numbers and plots stay as they are.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys

from ps_trainer import component_tables
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, PsTrainerError, UsageError
from ps_trainer.experiments.harness import marks

PAGE_NAME = "RESULTS.md"
PLOTS_FOLDER = "results"
MAX_BYTES = 3_000_000

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_IMAGE = re.compile(r"\]\(([^)/\s]+\.png)\)")
_REPORT_LINK = re.compile(r"\]\(([\w.]+)/report\.md\)")
_FILES_LINE = re.compile(r"^Beside this page: .*\n*", re.MULTILINE)


def publish(out_dir: pathlib.Path, folder: pathlib.Path, names: list[str]) -> list[pathlib.Path]:
    """Writes the page and its plots, and returns the files written.

    Args:
        out_dir: Folder of the `experiment` command, with `index.md` and a folder per experiment.
        folder: Folder of the page.
        names: Experiments in the order of the page; those without a report are left out.

    Raises:
        UsageError: The folder holds no reports, a report is of a quick run, or all is more than `MAX_BYTES`.
    """
    index = out_dir / "index.md"
    reports = {name: path for name in names if (path := out_dir / name / "report.md").exists()}
    if not index.exists() or not reports:
        raise UsageError(f"{out_dir} holds no reports; run `ps_trainer experiment all --out_dir={out_dir}`")
    for report in reports.values():
        if json.loads((report.parent / "conclusion.json").read_text(encoding="utf-8"))["quick"]:
            raise UsageError(f"{report} is of a quick run; only full ones are published. Run it without --quick")
    parts = [_REPORT_LINK.sub(r"](#\1)", index.read_text(encoding="utf-8"))]
    images: dict[str, bytes] = {}
    for name, report in reports.items():
        text = _FILES_LINE.sub("", report.read_text(encoding="utf-8"))
        images |= {f"{name}-{file}": (report.parent / file).read_bytes() for file in _IMAGE.findall(text)}
        text = _IMAGE.sub(rf"]({PLOTS_FOLDER}/{name}-\1)", text)
        parts.append(f'<a id="{name}"></a>\n\n' + re.sub(r"^#", "##", text, flags=re.MULTILINE))
    page = "\n".join(parts)
    size = len(page.encode()) + sum(map(len, images.values()))
    if size > MAX_BYTES:
        raise UsageError(f"page and plots are {size:,} bytes; {MAX_BYTES:,} are allowed. Draw fewer or smaller plots")
    return _write(folder, page, images)


def _write(folder: pathlib.Path, page: str, images: dict[str, bytes]) -> list[pathlib.Path]:
    plots = folder / PLOTS_FOLDER
    plots.mkdir(parents=True, exist_ok=True)
    for old in plots.glob("*.png"):
        old.unlink()
    for name, data in images.items():
        (plots / name).write_bytes(data)
    (folder / PAGE_NAME).write_text(page, encoding="utf-8")
    return [folder / PAGE_NAME, *(plots / name for name in images)]


def update(package: pathlib.Path, names: list[str]) -> list[pathlib.Path]:
    """Updates captions and marks of the published pages in the package folder, and returns the pages."""
    all_marks = marks.read(package)
    captions = {name: component_tables.EXPERIMENTS.load(name).captions for name in names}
    results = package / "experiments" / PAGE_NAME
    pages = dict.fromkeys([results, *(package / mark.page for mark in all_marks)])
    for path in pages:
        page = path.read_text(encoding="utf-8")
        if path == results:
            page = marks.with_captions(page, captions)
        page_marks = [mark for mark in all_marks if package / mark.page == path]
        path.write_text(marks.with_marks(page, page_marks), encoding="utf-8")
    return list(pages)


def main(argv: list[str]) -> int:
    """Publishes the folder that `argv[1]` names, if any, and updates the pages; returns the exit code."""
    names = component_tables.EXPERIMENTS.names()
    try:
        if len(argv) > 2:
            raise UsageError("usage: python -m ps_trainer.experiments.harness.publish [OUT_DIR]")
        written = publish(pathlib.Path(argv[1]), _PACKAGE, names) if len(argv) == 2 else []
        pages = update(_PACKAGE.parent, names)
    except PsTrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code or EXIT_FAILED
    if written:
        total = sum(path.stat().st_size for path in written)
        print(f"{written[0]} and {len(written) - 1} plots, {total / 1e6:.2f} MB")
    print(f"up to date: {', '.join(map(str, pages))}")
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv))
