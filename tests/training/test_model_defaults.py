"""The defaults of a model: when they apply, and when the user's flags, a checkpoint or an update rule come first."""

from __future__ import annotations

import json

import pytest

from ps_trainer import component_tables
from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.training import model_defaults, run_optimizers

DECLARED = {
    "optimizer": "adagrad",
    "optimizer_option": ("initial_accumulator_value=1e-8",),
    "learning_rate": 0.2,
    "batch_size": 64,
}


def completed(given=(), num_workers=2, **values):
    config = TrainConfig(**{"model": "word2vec", "dataset": "planted_synonyms", **values})
    return model_defaults.fill_in_defaults(config, {*values, *given}, num_workers)


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
    assert model_defaults.fill_in_defaults(config, (), 2).config.batch_size == 64
    with pytest.raises(OptionError, match="--batch_size=32 is not a multiple of it"):
        model_defaults.fill_in_defaults(config, {"optimizer"}, 2)


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


WITH_PAPER = [
    name for name in component_tables.MODELS.names() if hasattr(component_tables.MODELS.load(name), "presets")
]


@pytest.mark.parametrize("model", WITH_PAPER)
def test_every_preset_is_accepted_and_named_with_its_source(model):
    config, note = completed(model=model, dataset="digits", preset="paper")
    preset = component_tables.MODELS.load(model).presets["paper"]
    assert config.model_option == preset.model_option
    assert config.optimizer == preset.optimizer
    component_tables.MODELS.create(model, config.model_option)
    run_optimizers.create(config)
    assert note.startswith(f"preset paper of {model}, {preset.source}")
    assert f"--optimizer={preset.optimizer}" in note


@pytest.mark.parametrize("model", component_tables.MODELS.names())
def test_every_model_has_a_preset_or_says_why_not(model):
    cls = component_tables.MODELS.load(model)
    (line,) = model_defaults.preset_lines(cls)
    assert hasattr(cls, "presets") != hasattr(cls, "no_preset")
    assert line.startswith("`--preset=paper`: " if hasattr(cls, "presets") else "No `--preset=paper`: ")


def test_a_preset_clips_gradients_unless_the_user_transforms_them():
    assert completed(model="lstm_lm", preset="paper").config.gradient_transform == ("clip_norm:norm=0.142857",)
    mine = completed(model="lstm_lm", preset="paper", gradient_transform=("cast",)).config
    assert mine.gradient_transform == ("cast",)


def test_a_preset_sets_schedule_batch_and_length():
    config = completed(model="resnet", preset="paper").config
    assert (config.learning_rate, config.batch_size, config.max_steps) == (0.1, 128, 64000)
    assert config.schedule_option == ("boundaries=32000,48000", "factors=1,0.1,0.01")


def test_a_flag_comes_before_the_preset_with_what_belongs_to_it():
    config = completed(
        model="transformer", preset="paper", optimizer="momentum", max_steps=7, model_option=("dim=8", "num_heads=2")
    ).config
    assert (config.optimizer, config.optimizer_option, config.max_steps) == ("momentum", (), 7)
    assert (config.schedule, config.schedule_option) == ("inverse_sqrt", ("warmup_steps=4000",))
    options = component_tables.MODELS.create("transformer", config.model_option).options
    assert (options.dim, options.num_heads, options.hidden, options.label_smoothing) == (8, 2, 2048, 0.1)


def test_the_learning_rate_of_the_transformer_peaks_as_in_equation_3():
    config = completed(model="transformer", preset="paper").config
    assert config.learning_rate == pytest.approx(512**-0.5 * 4000**-0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "preset", "message"),
    [
        ("mlp", "paper", "--preset=paper: mlp has no presets; omit the flag; models with presets: .*, resnet, "),
        ("mlp", "papr", "--preset=papr: mlp has no presets; omit the flag; models with presets: .*, resnet, "),
        ("resnet", "papr", r"--preset=papr: resnet has no such preset; it has paper$"),
        ("resnet", "papers", "--preset=papers: resnet has no such preset; it has paper"),
    ],
)
def test_an_unknown_preset_is_named_with_the_fix(model, preset, message):
    with pytest.raises(UnknownNameError, match=message):
        completed(model=model, preset=preset)


def test_a_preset_needs_a_model_by_name():
    config = TrainConfig(model="resnet", preset="paper")
    with pytest.raises(OptionError, match="give the model by its name"):
        model_defaults.fill_in_defaults(config, {"preset"}, 1, model=object())


@pytest.fixture
def preset_run(run):
    """A function that writes a run of a model with the preset "paper", its recorded settings, and changes of these."""

    def write(model, **changes):
        folder = run(preset="paper", **model_defaults.settings_of(component_tables.MODELS.load(model).presets["paper"]))
        path = folder / "config.json"
        path.write_text(json.dumps({"train": json.loads(path.read_text())["train"] | {"model": model} | changes}))
        return str(folder)

    return write


def test_a_run_with_a_preset_goes_on_with_it_and_with_its_recorded_rate(preset_run):
    folder = preset_run("bert", learning_rate=0.01, batch_size=7)
    config = completed(model="bert", logdir=folder).config
    preset = component_tables.MODELS.load("bert").presets["paper"]
    assert (config.preset, config.model_option) == ("paper", preset.model_option)
    assert (config.optimizer, config.learning_rate, config.batch_size) == ("adam", 0.01, 7)
    assert completed(model="mlp", logdir=folder).config.preset is None  # another model than the recorded one


@pytest.mark.parametrize("by_flag", [{}, {"preset": "paper"}])
def test_recorded_options_apply_only_to_the_recorded_optimizer_and_schedule(preset_run, by_flag):
    folder = preset_run("transformer", optimizer_option=["beta2=0.9"], optimizer_for=["*=adam"])

    def continued(**flags):
        return completed(model="transformer", logdir=folder, **by_flag, **flags).config

    same = continued(optimizer="adam", schedule="inverse_sqrt")
    assert (same.optimizer_option, same.optimizer_for) == (("beta2=0.9",), ("*=adam",))
    assert same.schedule_option == ("warmup_steps=4000",)
    other = continued(optimizer="momentum")
    assert (other.optimizer, other.optimizer_option, other.optimizer_for) == ("momentum", (), ())
    assert other.schedule_option == ("warmup_steps=4000",)
    other = continued(schedule="cosine", max_steps=7)
    assert (other.schedule, other.schedule_option, other.optimizer_option) == ("cosine", (), ("beta2=0.9",))


@pytest.mark.parametrize("preset", [5, ["paper"], {"paper": 1}, "unknown"])
def test_a_recorded_preset_that_is_damaged_or_unknown_counts_as_none(preset_run, preset):
    assert completed(model="bert", logdir=preset_run("bert", preset=preset)).config.preset is None
