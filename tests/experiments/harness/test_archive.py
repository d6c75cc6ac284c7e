"""Runs of a published page: the same results without the runs' files, and plots from them."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil

import pytest

from ps_trainer import component_tables
from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness import archive, marks, plots, publish
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.plots import PlotFiles
from ps_trainer.experiments.harness.provenance import REPOSITORY
from ps_trainer.experiments.harness.run_store import RunStore
from ps_trainer.experiments.harness.runs import Results
from tests.experiments.fakes import Dice, DieSettings


@pytest.fixture
def stored(tmp_path):
    """The folder of finished runs of the dice, and their results."""
    store = RunStore(tmp_path / "dice", dict.fromkeys(Level, "code"), Dice().read_figures, commit="abc")
    runs = Dice().runs(range(Dice.num_seeds), quick=False)
    made = [store.finish(run, Dice().execute(run, store.begin(run)), 1.5, None) for run in runs]
    return store.folder / "runs", Results(made)


def pack_all(folder):
    return archive.pack(folder, [run.name for run in folder.iterdir()])


def archived(folder, tmp_path):
    path = tmp_path / "dice.jsonl.gz"
    path.write_bytes(pack_all(folder))
    return path


def test_archived_runs_have_the_settings_and_figures_of_the_runs(stored, tmp_path):
    folder, made = stored
    read = archive.read(archived(folder, tmp_path), Dice())
    assert [one.run for one in read] == [one.run for one in made]
    assert [one.figures.mean for one in read] == pytest.approx([one.figures.mean for one in made], rel=1e-5)
    assert [(one.figures.all, one.commit, one.wall_secs) for one in read] == [
        (one.figures.all, "abc", 1.5) for one in made
    ]
    assert [one.text for one in Dice().analyse(read).checked] == [one.text for one in Dice().analyse(made).checked]


def test_the_same_runs_are_the_same_bytes(stored):
    assert pack_all(stored[0]) == pack_all(stored[0])


def test_a_run_whose_settings_have_changed_ends_with_its_name(stored, tmp_path, monkeypatch):
    path, runs = archived(stored[0], tmp_path), Dice().runs(range(Dice.num_seeds), quick=False)
    changed = dataclasses.replace(runs[0], settings=DieSettings(sides=8))
    monkeypatch.setattr(Dice, "runs", lambda self, seeds, *, quick: [changed, *runs[1:]])
    with pytest.raises(UsageError, match=f"1 runs that dice does not plan .* {runs[0].key} first"):
        archive.read(path, Dice())


def test_settings_keep_all_digits_and_figures_do_not(tmp_path):
    (tmp_path / "run").mkdir()
    record = {"run": {"settings": {"lr": 0.07071067811865477}}, "figures": {"losses": [0.123456789]}}
    (tmp_path / "run" / "result.json").write_text(json.dumps(record))
    line = json.loads(gzip.decompress(archive.pack(tmp_path, ["run"])))
    assert line == {"key": "run", "run": record["run"], "figures": {"losses": [0.123457]}}


PUBLISHED = sorted((REPOSITORY / publish.RESULTS / publish.FIGURES_FOLDER).glob("*.jsonl.gz"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_published_figures_can_be_drawn(path):
    experiment = component_tables.EXPERIMENTS.create(path.name.partition(".")[0])
    drawn = {drawing.plot.key for drawing in experiment.plots(archive.read(path, experiment))}
    assert {plot.caption_key for part in experiment.parts for plot in part.plots} <= {
        key.partition("-")[0] for key in drawn
    }


PAGE = """# Old title

![Old](plots/dice-means.png)

*Old* (L0). Old caption

## Claims

old

## Tables

old

## How to reproduce

kept
"""


def test_a_page_gets_the_claims_tables_and_plots_of_its_figures_again(stored, tmp_path, monkeypatch):
    pages = tmp_path / "pages"
    for name in (publish.PLOTS_FOLDER, publish.FIGURES_FOLDER):
        (pages / name).mkdir(parents=True)
    monkeypatch.setattr(component_tables.EXPERIMENTS, "create", lambda name: Dice())
    (pages / publish.FIGURES_FOLDER / "dice.jsonl.gz").write_bytes(pack_all(stored[0]))
    (pages / publish.PLOTS_FOLDER / "dice-old.png").write_bytes(b"old")
    (pages / "dice.md").write_text(PAGE)
    plot = pages / publish.PLOTS_FOLDER / "dice-means.png"
    written = publish.analyse_again(pages, ["dice", "never_published"])
    assert written == [pages / "dice.md", plot, plot.with_suffix(".svg")]
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert list(plot.parent.glob("*old*")) == []
    page = (pages / "dice.md").read_text()
    assert "![Means & runs](plots/dice-means.png)\n\n*Means & runs* (" in page
    mean = next(one for one in Dice().analyse(stored[1]).checked if one.claim.key == "mean")
    assert f"| literature | {mean.text} |" in page
    assert "* Dice are `random.Random`.\n\n**Means** (" in page
    assert page.endswith("## How to reproduce\n\nkept\n")
    assert "old\n" not in page


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_a_published_page_has_the_claims_and_tables_of_its_figures(path, tmp_path, monkeypatch):
    """After a change of claims or tables, run `python -m ps_trainer.experiments.harness.publish --again`."""

    def undrawn(drawing, caption, folder, name):
        return PlotFiles(drawing, caption, folder / f"{name}.png", folder / f"{name}.svg")

    monkeypatch.setattr(plots, "save", undrawn)
    name, shown = path.name.partition(".")[0], REPOSITORY / publish.RESULTS
    pages = tmp_path / publish.RESULTS
    (pages / publish.FIGURES_FOLDER).mkdir(parents=True)
    shutil.copy(path, pages / publish.FIGURES_FOLDER)
    for page in ("index.md", "all-claims.md", *(f"{one}.md" for one in component_tables.EXPERIMENTS.names())):
        shutil.copy(shown / page, pages)
    own = [mark for mark in marks.read(REPOSITORY) if mark.page == f"{publish.RESULTS.as_posix()}/{name}.md"]
    monkeypatch.setattr(marks, "read", lambda repository: own)
    publish.analyse_again(pages, [name])
    publish.update(tmp_path, component_tables.EXPERIMENTS.names())
    assert (pages / f"{name}.md").read_text() == (shown / f"{name}.md").read_text()
