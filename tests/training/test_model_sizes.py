"""Sizes of models come from the data, unless they are given."""

from __future__ import annotations

import dataclasses
import json

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.cli import predict
from ps_trainer.config import TrainConfig
from ps_trainer.data.generators.known_truth import PlantedRatings
from ps_trainer.data.pipeline import dataset_record
from ps_trainer.errors import OptionError
from ps_trainer.inference import export
from ps_trainer.training import components, model_defaults, one_process
from tests.testing.cluster import config_of  # noqa: F401 - sets the environment of TensorFlow

MARKOV = TrainConfig(model="lstm_lm", dataset="markov", dataset_option=("num_train=500",), batch_size=2)
RATINGS = "5\t9\t3\t0\n12\t4\t1\t0\n3\t30\t2\t0\n"
SCALES = (1.5, 0.5)  # mean and standard deviation of its training ratings, 1 and 2


def test_a_size_comes_from_the_data_and_a_larger_one_is_kept():
    found = components.load(MARKOV, 1)
    assert found.model.options.vocab_size == found.dataset.vocab_size == 11
    assert found.model_option == ("vocab_size=11",)
    larger = dataclasses.replace(MARKOV, model_option=("vocab_size=12", "dim=4"))
    assert components.load(larger, 1).model_option == larger.model_option


def test_users_and_items_are_counted_and_too_few_are_rejected(tmp_path):
    (tmp_path / "u.data").write_text(RATINGS)
    config = TrainConfig(model="matrix_factorization", dataset="movielens", data_dir=str(tmp_path), batch_size=1)
    options = components.load(config, 1).model.options
    assert (options.num_users, options.num_items) == (13, 31)
    assert (options.mean_rating, options.rating_scale) == SCALES
    with pytest.raises(
        OptionError, match="31 items, model 'matrix_factorization' only 30; set .*num_items=31, or leave"
    ):
        components.load(dataclasses.replace(config, model_option=("num_items=30",)), 1)


def test_an_option_that_only_a_default_size_forbids_is_allowed_before_the_data_are_read():
    config = TrainConfig(model="word2vec", model_option=("num_sampled=300",), dataset="text_windows")
    components.check_options(config, 1)
    with pytest.raises(OptionError, match="num_sampled=300 exceeds vocab_size=200"):
        components.check_options(dataclasses.replace(config, model_option=("num_sampled=300", "vocab_size=200")), 1)


def test_a_trained_model_is_used_after_its_data_are_gone(tmp_path, capsys):
    table = "x,city,rented\n" + "1,Oslo,yes\n4,Lima,no\n2,Bonn,yes\n" * 20
    (tmp_path / "train.csv").write_text(table)
    config = TrainConfig(
        model="logistic_regression",
        dataset="csv",
        dataset_option=("label=rented", "form=sparse"),
        data_dir=str(tmp_path),
        logdir=str(tmp_path / "run"),
        batch_size=8,
        max_steps=40,
    )
    config.check()
    one_process.train(config)
    (tmp_path / "train.csv").unlink()
    recorded = json.loads((tmp_path / "run/config.json").read_text())["train"]
    assert recorded["model_option"] == ["num_features=5"]  # a number, three cities, any other city
    (tmp_path / "new.csv").write_text("city,x\nOslo,1\nLima,4\n")
    out = tmp_path / "out.jsonl"
    flags = [f"--logdir={config.logdir}", f"--input={tmp_path / 'new.csv'}", f"--out={out}"]
    assert predict.main_predict(["program", *flags]) == 0, capsys.readouterr()
    assert [json.loads(line)["class"] for line in out.read_text().splitlines()] == ["yes", "no"]
    config = dataclasses.replace(config, model_option=tuple(recorded["model_option"]))
    export.write(config, tmp_path / "run/checkpoints", tmp_path / "saved")
    tf.compat.v2.saved_model.load(str(tmp_path / "saved"))
    kept = json.loads((tmp_path / "saved" / export.ASSETS / "dataset.json").read_text())
    assert (kept["class_names"], kept["sizes"]["num_features"]) == (["no", "yes"], 5)
    assert predict.main_predict(["program", flags[0], flags[2]]) == 2
    gone = "train.csv: no such file; it was there when the run began; if the files have moved, give --data_dir="
    assert gone in capsys.readouterr().err
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved/train.csv").write_text(table)
    assert predict.main_predict(["program", flags[0], flags[2], f"--data_dir={tmp_path / 'moved'}"]) == 0


def test_a_run_of_a_version_that_recorded_no_size_keeps_the_models_default(tmp_path):
    (tmp_path / "u.data").write_text(RATINGS)
    run = tmp_path / "run"
    config = TrainConfig(
        model="matrix_factorization",
        dataset="movielens",
        data_dir=str(tmp_path),
        logdir=str(run),
        batch_size=1,
        max_steps=2,
    )
    default = components.load(dataclasses.replace(config, logdir=None), 1).model.Options()
    sizes = (
        f"num_users={default.num_users}", f"num_items={default.num_items}", "mean_rating=3.5", "rating_scale=1.0",
    )  # fmt: skip
    assert default.num_users > 13
    one_process.train(dataclasses.replace(config, model_option=sizes))
    record = json.loads((run / "config.json").read_text())
    record["train"]["model_option"] = []
    (run / "config.json").write_text(json.dumps(record))
    (run / "dataset.json").unlink()

    for times in range(2):  # the second time after the resumed run has recorded them
        export.write(config, run / "checkpoints", tmp_path / f"saved-{times}")
        config = dataclasses.replace(config, max_steps=config.max_steps + 2)
        one_process.train(config)
        assert json.loads((run / "config.json").read_text())["train"]["model_option"] == list(sizes)


def test_a_run_with_checkpoints_keeps_its_sizes_when_the_data_shrink(tmp_path):
    (tmp_path / "u.data").write_text(RATINGS)
    config = TrainConfig(
        model="matrix_factorization",
        dataset="movielens",
        data_dir=str(tmp_path),
        logdir=str(tmp_path / "run"),
        batch_size=1,
        max_steps=2,
    )
    one_process.train(config)
    (tmp_path / "u.data").write_text("\n".join(RATINGS.splitlines()[:1]) + "\n5\t8\t3\t0\n")
    scales = tuple(f"{name}={value}" for name, value in zip(dataset_record.SCALES, SCALES, strict=True))
    assert components.load(config, 1).model_option == ("num_users=13", "num_items=31", *scales)
    elsewhere = components.load(dataclasses.replace(config, logdir=str(tmp_path / "other")), 1)
    assert elsewhere.model_option[:2] == ("num_users=6", "num_items=10")
    assert elsewhere.model_option[2:] != scales


def test_ratings_of_any_scale_are_learned_with_the_defaults(tmp_path):
    planted = PlantedRatings(PlantedRatings.Options(num_users=30, num_items=20, num_train=4000, num_test=10)).arrays
    users, items, ratings = (planted["train"][name] for name in ("user", "item", "rating"))
    lines = (
        f"{user}\t{item}\t{1000 + 100 * rating:.2f}" for user, item, rating in zip(users, items, ratings, strict=True)
    )
    (tmp_path / "u.data").write_text("\n".join(lines) + "\n")
    config = TrainConfig(
        model="matrix_factorization", dataset="movielens", data_dir=str(tmp_path), max_steps=400,
        logdir=str(tmp_path / "run"),
    )  # fmt: skip
    config = model_defaults.fill_in_defaults(config, (), num_workers=1).config
    assert one_process.train(config).summary.metrics["relative_squared_error"] < 0.3
