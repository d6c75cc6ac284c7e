from __future__ import annotations

import gzip
import json
import shutil

import pytest

pytest.importorskip("PIL")
from PIL import Image

from ps_trainer import component_tables
from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness import marks, publish
from ps_trainer.experiments.harness.provenance import REPOSITORY


@pytest.fixture
def out_dir(tmp_path):
    """One finished experiment, as written by the `experiment` command."""
    folder = tmp_path / "out" / "falling_apples"
    folder.mkdir(parents=True)
    (folder.parent / "index.md").write_text(
        "# Experiments\n\n| [falling_apples](falling_apples/report.md) | ok |\n\n## Claims\n\n| falling_apples | ok |\n"
    )
    (folder / "report.md").write_text(
        "# Apples fall\n\n## Claims\n\n![Height](height.png)\n\n[Symbols](../index.md#symbols)\n\nBeside this page:"
        " [results.csv](results.csv).\n"
    )
    (folder / "conclusion.json").write_text(json.dumps({"quick": False}))
    Image.effect_noise((64, 48), 50).convert("RGB").save(folder / "height.png")
    (folder / "height.svg").write_text("<svg/>")
    return folder.parent


def test_each_report_is_a_page(out_dir, tmp_path):
    folder = tmp_path / "repository"
    written = publish.publish(out_dir, folder, ["missing", "falling_apples"])
    page = (folder / "falling_apples.md").read_text()
    assert page.startswith("# Apples fall\n\n## Claims\n")
    assert "![Height](plots/falling_apples-height.png)" in page
    assert "[Symbols](index.md#symbols)" in page
    assert "Beside this page" not in page
    assert "in `plots/` as PNG and SVG" in page
    plots = ["height.png", "height.svg"]
    assert [path.name for path in written] == ["falling_apples.md", *(f"falling_apples-{plot}" for plot in plots)]
    for path, plot in zip(written[1:], plots, strict=True):
        assert path.read_bytes() == (out_dir / "falling_apples" / plot).read_bytes()


def test_the_figures_of_the_reported_runs_are_kept(out_dir, tmp_path):
    report = out_dir / "falling_apples"
    for key in ("L0-seed=0", "L0-of-earlier-settings"):
        run = report / "runs" / key
        run.mkdir(parents=True)
        (run / "result.json").write_text(json.dumps({"figures": {"height": 1.23456789, "is_ripe": True}}))
    (report / "results.csv").write_text("run,level\nL0-seed=0,L0 virtual time\n")
    written = publish.publish(out_dir, tmp_path / "repository", ["falling_apples"])[-1]
    assert written.name == "falling_apples.jsonl.gz"
    assert json.loads(gzip.decompress(written.read_bytes())) == {
        "key": "L0-seed=0",
        "figures": {"height": 1.23457, "is_ripe": True},
    }


def test_plots_of_an_earlier_run_are_removed_and_other_experiments_stay(out_dir, tmp_path):
    plots = tmp_path / "repository" / "plots"
    plots.mkdir(parents=True)
    other = [plots / "other-height.png", plots.parent / "other.md"]
    for old in (plots / "falling_apples-speed.png", plots / "falling_apples-speed.svg", *other):
        old.write_bytes(b"")
    publish.publish(out_dir, plots.parent, ["other", "falling_apples"])
    assert {path.name for path in plots.iterdir()} == {
        "falling_apples-height.png",
        "falling_apples-height.svg",
        "other-height.png",
    }
    assert all(path.exists() for path in other)


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


NAMES = component_tables.EXPERIMENTS.names()


def test_the_command_makes_a_published_page_from_its_archive_which_rounds_figures(out_dir, tmp_path, monkeypatch):
    (tmp_path / publish.RESULTS).mkdir(parents=True)
    monkeypatch.setattr(publish, "REPOSITORY", tmp_path)
    monkeypatch.setattr(publish.component_tables.EXPERIMENTS, "names", lambda: ["falling_apples"])
    monkeypatch.setattr(publish, "update", lambda repository, names: [])
    made = []
    monkeypatch.setattr(publish, "analyse_again", lambda folder, names: made.append((folder, names)) or [])
    assert publish.main(["publish", str(out_dir)]) == 0
    assert made == [(tmp_path / publish.RESULTS, ["falling_apples"])]


def test_published_pages_have_the_present_texts_captions_and_marks(tmp_path):
    """After a change of a text, a caption or a mark, run `python -m ps_trainer.experiments.harness.publish`."""
    pages = {mark.page for mark in marks.read(REPOSITORY)}
    pages |= {(publish.RESULTS / f"{name}.md").as_posix() for name in ("all-claims", "index", *NAMES)}
    for page in (*pages, str(marks.FILE), str(publish.RESULTS / publish.LIMITS_NAME)):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / page, tmp_path / page)
    publish.update(tmp_path, NAMES)
    for page in pages:
        assert (tmp_path / page).read_text() == (REPOSITORY / page).read_text(), page


def test_a_mark_of_an_experiment_that_was_not_published_again_is_left_out(out_dir, tmp_path):
    folder = tmp_path / publish.RESULTS
    publish.publish(out_dir, folder, ["falling_apples"])
    shutil.copy(REPOSITORY / marks.FILE, tmp_path / marks.FILE)
    shutil.copytree(REPOSITORY / "docs" / "explanation", tmp_path / "docs" / "explanation")
    pages = publish.update(tmp_path, NAMES)
    assert [page.name for page in pages] == ["update-rules.md"]


def test_every_published_mark_stands_on_its_page():
    for mark in marks.read(REPOSITORY):
        assert f"{mark}\n" in (REPOSITORY / mark.page).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_published_plot_has_a_caption_and_every_caption_a_plot(name):
    page = (REPOSITORY / publish.RESULTS / f"{name}.md").read_text(encoding="utf-8")
    keys = {plot.partition(".png")[0].partition("-")[0] for plot in page.split(f"](plots/{name}-")[1:]}
    assert keys == component_tables.EXPERIMENTS.load(name).captions.keys()
