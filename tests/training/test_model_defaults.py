"""The defaults of a model: when they apply, and when the user's flags, a checkpoint or an update rule come first."""

from __future__ import annotations

import json

import pytest

from ps_trainer import component_tables
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError
from ps_trainer.training import model_defaults

DECLARED = {
    "optimizer": "adagrad",
    "optimizer_option": ("initial_accumulator_value=1e-8",),
    "learning_rate": 0.2,
    "batch_size": 64,
}


def completed(given=(), num_workers=2, **values):
    config = TrainConfig(**{"model": "word2vec", "dataset": "planted_synonyms", **values})
    return model_defaults.completed(config, {*values, *given}, num_workers)


def settings(config):
    return {name: getattr(config, name) for name in DECLARED}


GENERAL = settings(TrainConfig())


def test_the_defaults_of_the_model_apply_without_flags_and_are_named():
    config, note = completed()
    assert settings(config) == DECLARED
    assert note == (
        "defaults of word2vec: --optimizer=adagrad --optimizer_option=initial_accumulator_value=1e-8"
        " --learning_rate=0.2 --batch_size=64"
    )


@pytest.mark.parametrize("model", component_tables.MODELS.names())
def test_every_model_has_defaults_that_the_trainer_accepts(model):
    config, note = completed(model=model)
    assert (config == TrainConfig(model=model, dataset="planted_synonyms")) == (not note)


def test_devices_divide_the_batch_size_of_the_model_and_not_the_general_one():
    assert GENERAL["batch_size"] == 32
    config = TrainConfig(model="word2vec", dataset="planted_synonyms", devices_per_worker=64)
    config.check(has_batch_size=False)
    assert model_defaults.completed(config, (), 2).config.batch_size == 64
    with pytest.raises(OptionError, match="--batch_size=32 is not a multiple of it"):
        model_defaults.completed(config, {"optimizer"}, 2)


def test_a_batch_size_replaces_only_that_of_the_model():
    assert settings(completed(batch_size=8).config) == DECLARED | {"batch_size": 8}


@pytest.mark.parametrize(
    "flag",
    [
        {"optimizer": "momentum"},
        {"learning_rate": 0.05},
        {"schedule": "cosine"},
        {"schedule_option": ("warmup_steps=5",)},
        {"optimizer_for": ("input=adam",)},
    ],
)
def test_a_flag_about_the_optimizer_keeps_every_general_default(flag):
    config, note = completed(**flag)
    assert config == TrainConfig(model="word2vec", dataset="planted_synonyms", **flag)
    assert ("are not used" in note) == ("optimizer" not in flag)


def test_a_general_default_that_the_user_gives_counts_as_given():
    assert settings(completed(learning_rate=0.1).config) == GENERAL


@pytest.mark.parametrize(
    "rejecting",
    [
        {"model": "vgg", "update": "easgd"},
        {"model": "vgg", "update": "downpour", "update_option": ("n_push=5",)},
        {"model": "vgg", "gradient_transform": ("dgc",)},
    ],
)
def test_a_rule_or_transform_that_rejects_the_optimizer_gets_the_general_one(rejecting):
    config, _ = completed(**rejecting)
    assert (config.optimizer, config.learning_rate) == (GENERAL["optimizer"], GENERAL["learning_rate"])


@pytest.fixture
def run(tmp_path):
    """A function that writes a run with a checkpoint, and its recorded settings."""

    def write(**recorded):
        folder = tmp_path / "checkpoints"
        folder.mkdir()
        for suffix in ("index", "data-00000-of-00001"):
            (folder / f"model.ckpt-5.{suffix}").touch()
        train = TrainConfig(model="word2vec", **recorded).to_json()
        (tmp_path / "config.json").write_text(json.dumps({"train": train}))
        return tmp_path

    return write


def test_a_run_that_goes_on_keeps_its_recorded_settings(run):
    older = {"optimizer": "adam", "optimizer_option": ("beta2=0.9",), "learning_rate": 0.01, "batch_size": 7}
    config, note = completed(logdir=str(run(**older)))
    assert {name: getattr(config, name) for name in older} == older
    assert note.startswith("as in the last run in this folder: --optimizer=adam")


def test_a_run_from_before_there_were_defaults_of_models_goes_on_unchanged(run):
    assert settings(completed(logdir=str(run())).config) == GENERAL


def test_flags_come_before_recorded_settings(run):
    config, _ = completed(logdir=str(run(optimizer="adam", learning_rate=0.01)), learning_rate=0.2)
    assert settings(config) == GENERAL | {"learning_rate": 0.2}


@pytest.mark.parametrize(
    "damage",
    [
        {"optimizer": "os:remove"},
        {"optimizer_for": ["*=os:remove"]},
        {"learning_rate": "much"},
        {"optimizer_option": [1]},
        {"model": "cnn"},
    ],
)
def test_recorded_settings_that_cannot_be_trusted_change_nothing(run, damage):
    logdir = run(optimizer="adam")
    path = logdir / "config.json"
    path.write_text(json.dumps({"train": json.loads(path.read_text())["train"] | damage}))
    assert settings(completed(logdir=str(logdir)).config) == GENERAL
