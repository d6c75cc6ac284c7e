from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("PIL")
from PIL import Image

from ps_trainer.errors import UsageError
from ps_trainer.experiments.frame import publish


@pytest.fixture
def out_dir(tmp_path):
    """One finished experiment, as the `experiment` command leaves it."""
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
    plot = Image.open(io.BytesIO(written[1].read_bytes()))
    assert (plot.size, plot.mode) == ((64, 48), "P")


def test_plots_of_an_earlier_page_are_removed(out_dir, tmp_path):
    plots = tmp_path / "repository" / "results"
    plots.mkdir(parents=True)
    (plots / "old.png").write_bytes(b"")
    publish.publish(out_dir, tmp_path / "repository", ["falling_apples"])
    assert [path.name for path in plots.iterdir()] == ["falling_apples-height.png"]


def test_what_cannot_be_published_leaves_the_repository_as_it_is(out_dir, tmp_path, monkeypatch):
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
    assert publish.main(["publish"]) == 2
    assert "OUT_DIR" in capsys.readouterr().err
