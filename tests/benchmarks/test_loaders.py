"""The throughput of loaders: the results are written, and no other file is left."""

from __future__ import annotations

import csv
import json

import pytest

from benchmarks import loader_files, loaders


def test_each_named_loader_has_a_row_and_its_files_are_removed(tmp_path, monkeypatch, capsys):
    cases = {
        "census": loaders.LoaderCase(write=loader_files.people(200)),
        "criteo, gz": loaders.LoaderCase(
            write=loader_files.generated("planted_clicks", "num_train=150", "num_test=5", is_packed=True)
        ),
        "mnist": loaders.LoaderCase(write=None),
    }
    monkeypatch.setattr(loaders, "CASES", cases)
    out = tmp_path / "out"
    assert loaders.main(["--loaders=cen,criteo", "--seconds=0.01", "--repetitions=2", f"--out_dir={out}"]) == 0
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert [(row["loader"], row["examples"]) for row in rows] == [("census", 200), ("criteo, gz", 150)]
    for row in rows:
        assert 0 < row["examples_per_sec_min"] <= row["examples_per_sec"] <= row["examples_per_sec_max"]
    with (out / "results.csv").open() as file:
        assert [row["loader"] for row in csv.DictReader(file)] == ["census", "criteo, gz"]
    assert sorted(path.name for path in out.iterdir()) == ["results.csv", "results.json", "results.md"]
    assert "| census | " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("case", "dataset"),
    [
        (loaders.LoaderCase(write=loader_files.images(30, 8)), "ImageFolder"),
        (
            loaders.LoaderCase(
                write=loader_files.records(20, 8),
                dataset="tfrecord",
                options=("features=image=image/encoded:image[8x8x3],label=image/class/label:int64",),
            ),
            "TfRecord",
        ),
    ],
)
def test_files_that_no_generator_writes_are_read(tmp_path, case, dataset):
    case.write(tmp_path / "set")
    source = loaders.create(case, tmp_path / "set")
    assert type(source).__name__ == dataset
    assert source.num_train_examples >= 18


def test_a_prefix_of_no_loaders_name_is_rejected(capsys):
    with pytest.raises(SystemExit):
        loaders.main(["--loaders=nothing"])
    assert "no name starts like this; known: mnist; mnist, gz" in capsys.readouterr().err
