from __future__ import annotations

import json
import pathlib
import shutil

import pytest

pytest.importorskip("PIL")
from PIL import Image

from ps_trainer import component_tables
from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness import marks, publish


@pytest.fixture
def out_dir(tmp_path):
    """One finished experiment, as written by the `experiment` command."""
    folder = tmp_path / "out" / "falling_apples"
    folder.mkdir(parents=True)
    (folder.parent / "index.md").write_text("# Experiments\n\n| [falling_apples](falling_apples/report.md) | ok |\n")
    (folder / "report.md").write_text(
        "# Apples fall\n\n## Claims\n\n![Height](height.png)\n\nBeside this page: [results.csv](results.csv).\n"
    )
    (folder / "conclusion.json").write_text(json.dumps({"quick": False}))
    Image.effect_noise((64, 48), 50).convert("RGB").save(folder / "height.png")
    return folder.parent


def test_one_page_holds_the_index_and_every_report(out_dir, tmp_path):
    written = publish.publish(out_dir, tmp_path / "repository", ["missing", "falling_apples"])
    page = (tmp_path / "repository" / "RESULTS.md").read_text()
    assert "| [falling_apples](#falling_apples) | ok |" in page
    assert '<a id="falling_apples"></a>\n\n## Apples fall\n\n### Claims\n' in page
    assert "![Height](results/falling_apples-height.png)" in page
    assert "Beside this page" not in page
    assert [path.name for path in written] == ["RESULTS.md", "falling_apples-height.png"]
    assert written[1].read_bytes() == (out_dir / "falling_apples" / "height.png").read_bytes()


def test_plots_of_an_earlier_page_are_removed(out_dir, tmp_path):
    plots = tmp_path / "repository" / "results"
    plots.mkdir(parents=True)
    (plots / "old.png").write_bytes(b"")
    publish.publish(out_dir, tmp_path / "repository", ["falling_apples"])
    assert [path.name for path in plots.iterdir()] == ["falling_apples-height.png"]


def test_a_failed_publication_leaves_the_repository_unchanged(out_dir, tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    with pytest.raises(UsageError, match="holds no reports"):
        publish.publish(tmp_path, repository, ["falling_apples"])
    monkeypatch.setattr(publish, "MAX_BYTES", 100)
    with pytest.raises(UsageError, match="100 are allowed"):
        publish.publish(out_dir, repository, ["falling_apples"])
    (out_dir / "falling_apples" / "conclusion.json").write_text(json.dumps({"quick": True}))
    with pytest.raises(UsageError, match="quick run"):
        publish.publish(out_dir, repository, ["falling_apples"])
    assert not repository.exists()


def test_the_command_names_its_usage(capsys):
    assert publish.main(["publish", "a", "b"]) == 2
    assert "OUT_DIR" in capsys.readouterr().err


PACKAGE = pathlib.Path(publish.__file__).resolve().parents[2]
NAMES = component_tables.EXPERIMENTS.names()


def test_published_pages_have_the_present_captions_and_marks(tmp_path):
    """After a change of a caption or a mark, run `python -m ps_trainer.experiments.harness.publish`."""
    pages = {mark.page for mark in marks.read(PACKAGE)} | {"experiments/RESULTS.md"}
    for page in (*pages, str(marks.FILE)):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / page, tmp_path / page)
    publish.update(tmp_path, NAMES)
    for page in pages:
        assert (tmp_path / page).read_text() == (PACKAGE / page).read_text(), page


def test_every_published_mark_stands_on_its_page():
    for mark in marks.read(PACKAGE):
        assert f"{mark}\n" in (PACKAGE / mark.page).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_published_plot_has_a_caption_and_every_caption_a_plot(name):
    page = (PACKAGE / "experiments" / "RESULTS.md").read_text()
    keys = {plot.partition(".png")[0].partition("-")[0] for plot in page.split(f"](results/{name}-")[1:]}
    assert keys == component_tables.EXPERIMENTS.load(name).captions.keys()
