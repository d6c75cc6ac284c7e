"""Puts the reports of a finished run into the repository: one page, its plots as small files.

    python -m ps_trainer.experiments.frame.publish runs/experiments

writes `RESULTS.md` and `results/*.png` into `ps_trainer/experiments`, in place of those that are there.
"""

from __future__ import annotations

import io
import json
import pathlib
import re
import sys

from ps_trainer import registry
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, PsTrainerError, UsageError

PAGE_NAME = "RESULTS.md"
PLOTS_FOLDER = "results"
MAX_BYTES = 3_000_000

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_COLORS = 48  # enough for lines, bars and the edges of letters; a third of the bytes
_IMAGE = re.compile(r"\]\(([^)/\s]+\.png)\)")
_REPORT_LINK = re.compile(r"\]\(([\w.]+)/report\.md\)")
_FILES_LINE = re.compile(r"^Beside this page: .*\n*", re.MULTILINE)


def publish(out_dir: pathlib.Path, folder: pathlib.Path, names: list[str]) -> list[pathlib.Path]:
    """Writes the page and its plots.

    Args:
        out_dir: of the `experiment` command: `index.md` and a folder per experiment.
        folder: where to write.
        names: of the experiments, in the order of the page; those without a report are left out.

    Returns:
        The files written.

    Raises:
        UsageError: nothing was run there, an experiment ran in its quick form, or all is more than `MAX_BYTES`.
    """
    index = out_dir / "index.md"
    reports = {name: path for name in names if (path := out_dir / name / "report.md").exists()}
    if not index.exists() or not reports:
        raise UsageError(f"{out_dir} holds no reports; run `python -m ps_trainer experiment all --out_dir={out_dir}`")
    for report in reports.values():
        if json.loads((report.parent / "conclusion.json").read_text(encoding="utf-8"))["quick"]:
            raise UsageError(f"{report} is of a quick run; only full ones are published. Run it without --quick")
    parts = [_REPORT_LINK.sub(r"](#\1)", index.read_text(encoding="utf-8"))]
    images: dict[str, bytes] = {}
    for name, report in reports.items():
        text = _FILES_LINE.sub("", report.read_text(encoding="utf-8"))
        images |= {f"{name}-{file}": _small_png(report.parent / file) for file in _IMAGE.findall(text)}
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


def _small_png(path: pathlib.Path) -> bytes:
    """The picture with few colors."""
    from PIL import Image  # comes with matplotlib

    buffer = io.BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").quantize(_COLORS).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def main(argv: list[str]) -> int:
    """Publishes the folder that `argv[1]` names; returns the exit code."""
    try:
        if len(argv) != 2:
            raise UsageError("usage: python -m ps_trainer.experiments.frame.publish OUT_DIR")
        written = publish(pathlib.Path(argv[1]), _PACKAGE, registry.EXPERIMENTS.names())
    except PsTrainerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code or EXIT_FAILED
    total = sum(path.stat().st_size for path in written)
    print(f"{written[0]} and {len(written) - 1} plots, {total / 1e6:.2f} MB")
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv))
