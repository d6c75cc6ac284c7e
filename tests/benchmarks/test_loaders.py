"""The throughput of loaders: the results are written, and no other file is left."""

from __future__ import annotations

import csv
import json

import pytest

from benchmarks import loader_files, loaders
from benchmarks.peers import loaders as peers


def test_each_named_loader_has_a_row_and_its_files_are_removed(tmp_path, monkeypatch, capsys):
    cases = {
        "census": loaders.LoaderCase(write=loader_files.people(200), peer="pyarrow"),
        "criteo, gz": loaders.LoaderCase(
            write=loader_files.generated("planted_clicks", "num_train=150", "num_test=5", is_packed=True),
            peer="pyarrow",
        ),
        "mnist": loaders.LoaderCase(write=None, peer="NumPy"),
    }
    monkeypatch.setattr(loaders, "CASES", cases)
    out, packages = tmp_path / "out", tmp_path / "packages"
    packages.mkdir()  # nothing is installed: pyarrow is here already
    flags = ["--loaders=cen,criteo", "--seconds=0.01", "--repetitions=2", "--batch_size=50"]
    assert loaders.main([*flags, f"--packages={packages}", f"--out_dir={out}"]) == 0
    rows = json.loads((out / "results.json").read_text())["rows"]
    assert [(row["loader"], row["examples"]) for row in rows] == [("census", 200), ("criteo, gz", 150)]
    for row in rows:
        for reader in ("", "peer_"):
            lowest, median, highest = (row[f"{reader}examples_per_sec{end}"] for end in ("_min", "", "_max"))
            assert 0 < lowest <= median <= highest
    with (out / "results.csv").open() as file:
        assert [row["loader"] for row in csv.DictReader(file)] == ["census", "criteo, gz"]
    assert sorted(path.name for path in out.iterdir()) == ["results.csv", "results.json", "results.md"]
    assert "| census | " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("case", "dataset"),
    [
        (loaders.LoaderCase(write=loader_files.images(30, 8), peer=""), "ImageFolder"),
        (
            loaders.LoaderCase(
                write=loader_files.records(20, 8),
                peer="",
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


def test_every_loader_has_a_peer():
    assert peers.PASSES.keys() == loaders.CASES.keys()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("mnist, gz", loader_files.generated("glyphs", "num_train=30", "num_test=1", is_packed=True)),
        ("cifar10", loader_files.generated("glyphs", "size=32", "channels=3", "num_train=30", "num_test=1")),
        ("csv", loader_files.people_table(30, "csv")),
        ("parquet", loader_files.people_table(30, "parquet")),
        ("movielens", loader_files.generated("planted_ratings", "num_train=30", "num_test=1")),
        ("text, characters", loader_files.generated("markov", "num_train=600", "num_test=200")),
        ("parallel_text", loader_files.generated("numbers", "num_train=30", "num_test=5")),
    ],
)
def test_a_peer_reads_the_files_of_its_loader_in_whole_batches(tmp_path, name, write):
    write(tmp_path / "set")
    source = loaders.create(loaders.CASES[name], tmp_path / "set")
    examples = sum(peers.PASSES[name](tmp_path / "set", 4))
    # A peer holds nothing out, and leaves a last partial batch out.
    assert source.num_train_examples // 4 * 4 <= examples <= source.num_train_examples * 1.2 + 4


def test_a_prefix_of_no_loaders_name_is_rejected(capsys):
    with pytest.raises(SystemExit):
        loaders.main(["--loaders=nothing"])
    assert "no name starts like this; known: mnist; mnist, gz" in capsys.readouterr().err
