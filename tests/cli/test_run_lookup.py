"""Model, data and checkpoints for the commands that use a trained model, and the input that they reject."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ps_trainer.cli import export, generate, predict, run_lookup, serve
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig
from ps_trainer.errors import CheckpointError, OptionError, UnknownNameError

RUN = TrainConfig(
    model="mlp", model_option=("hidden=7",), dataset="mnist", data_dir="/d", update="sync", update_option=("a=1",)
)


@pytest.fixture
def logdir(tmp_path):
    """The logdir of a run that has saved."""
    add_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"train": RUN.to_json()}))
    return tmp_path


def add_checkpoint(logdir):
    (logdir / "checkpoints").mkdir(parents=True)
    (logdir / "checkpoints" / "model.ckpt-3.index").touch()


def found(logdir, **given):
    return run_lookup.find(CheckpointFlags(), TrainConfig(logdir=str(logdir), **given), given)


def test_model_and_data_come_from_the_run(logdir):
    config, checkpoint_dir = found(logdir)
    recorded = {name: getattr(RUN, name) for name in ("model", "model_option", "dataset", "data_dir")}
    assert config == TrainConfig(logdir=str(logdir), **recorded)
    assert checkpoint_dir == logdir / "checkpoints"


def test_flags_override_the_record_and_another_model_has_its_own_options(logdir):
    config, _ = found(logdir, model="cnn", data_dir="/e")
    wanted = {"model": "cnn", "model_option": (), "dataset": "mnist", "data_dir": "/e"}
    assert dataclasses.asdict(config).items() >= wanted.items()
    assert found(logdir, model="mlp")[0].model_option == ("hidden=7",)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "{",
        '{"train": 3}',
        '{"train": {"dataset": "mnist", "dataset_option": 5}}',
        '{"train": {"dataset": "mnist", "dataset_option": "a=1"}}',
        '{"train": {"dataset": "mnist", "data_dir": 5}}',
        '{"train": {"dataset": ["mnist"]}}',
    ],
)
def test_without_a_record_the_flags_decide(logdir, content):
    (logdir / "config.json").unlink()
    if content is not None:
        (logdir / "config.json").write_text(content)
    config = found(logdir, model="lenet")[0]
    assert config == TrainConfig(logdir=str(logdir), model="lenet")


def test_the_preset_of_the_run_changes_nothing_and_any_other_is_refused(logdir):
    with pytest.raises(OptionError, match="--preset=paper: .* config.json records no preset of this model; omit the"):
        found(logdir, preset="paper")
    record = dataclasses.replace(RUN, model="gpt", model_option=("num_layers=2",), preset="paper")
    (logdir / "config.json").write_text(json.dumps({"train": record.to_json()}))
    assert found(logdir, preset="paper")[0].model_option == ("num_layers=2",)
    with pytest.raises(OptionError, match="--preset=other: .* records the preset paper"):
        found(logdir, preset="other")
    with pytest.raises(OptionError, match="--preset=paper: .* no preset of this model"):
        found(logdir, preset="paper", model="mlp")


def test_an_impossible_record_is_rejected(logdir):
    (logdir / "config.json").write_text(json.dumps({"train": {"model": "mpl"}}))
    with pytest.raises(UnknownNameError, match="did you mean mlp"):
        found(logdir)


@pytest.mark.parametrize(("head", "kind"), [("model", "model"), ("dataset", "dataset")])
def test_a_recorded_class_that_is_not_registered_is_used_only_if_the_flag_gives_it_too(logdir, head, kind):
    recorded = {"model": "mlp", "dataset": "digits", f"{head}_option": ["a=1"], head: "stranger.code:Class"}
    (logdir / "config.json").write_text(json.dumps({"train": recorded}))
    with pytest.raises(UnknownNameError) as error:
        found(logdir)
    assert str(error.value) == (
        f"{logdir}/config.json names the {kind} stranger.code:Class, which is not part of this package;"
        f" using it runs its code here. If you trust that code, give --{head}=stranger.code:Class"
    )
    config, _ = found(logdir, **{head: "stranger.code:Class"})
    assert (getattr(config, head), getattr(config, f"{head}_option")) == ("stranger.code:Class", ("a=1",))
    assert getattr(found(logdir, **{head: "digits" if head == "dataset" else "cnn"})[0], head) in ("digits", "cnn")


def test_a_path_that_is_not_a_folder_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="checkpoints is not a folder; give --logdir"):
        found(tmp_path)


NO_FOLDER, EMPTY = "{path} is not a folder; give", "{path} holds no checkpoint; give"
FIRST, PREFIX = "--logdir={folder}/runs/first", "runs/first/checkpoints/model.ckpt-3"


@pytest.mark.parametrize(
    ("flag", "given", "looked_at", "fault", "near"),
    [
        ("checkpoint_dir", "runs/first", "runs/first", EMPTY, FIRST),
        ("logdir", "runs/first/checkpoints", "runs/first/checkpoints/checkpoints", NO_FOLDER, FIRST),
        ("checkpoint_dir", PREFIX, PREFIX, NO_FOLDER, FIRST),
        ("logdir", "alone", "alone/checkpoints", NO_FOLDER, "--checkpoint_dir={folder}/alone"),
        ("logdir", "runs", "runs/checkpoints", NO_FOLDER, "--logdir={folder}/runs/second"),
        ("logdir", "runs/first1", "runs/first1/checkpoints", NO_FOLDER, FIRST),
        ("logdir", "runs/unsaved", "runs/unsaved/checkpoints", EMPTY, ""),
        ("logdir", "no/such", "no/such/checkpoints", NO_FOLDER, ""),
        ("checkpoint_dir", "file", "file", NO_FOLDER, ""),
    ],
)
def test_a_wrong_folder_is_an_error_that_names_one_nearby(tmp_path, flag, given, looked_at, fault, near):
    add_checkpoint(tmp_path / "runs" / "first")
    add_checkpoint(tmp_path / "runs" / "second")
    (tmp_path / "runs" / "unsaved" / "checkpoints").mkdir(parents=True)
    add_checkpoint(tmp_path)
    (tmp_path / "checkpoints").rename(tmp_path / "alone")
    (tmp_path / "file").touch()
    flags = {"logdir": None, "checkpoint_dir": None, flag: str(tmp_path / given)}
    with pytest.raises(CheckpointError) as raised:
        run_lookup.find_checkpoints(**flags)
    told = f"{fault.format(path=tmp_path / looked_at)} --logdir or --checkpoint_dir of a run that has saved"
    assert str(raised.value) == told + (f", such as {near.format(folder=tmp_path)}" if near else "")


@pytest.mark.parametrize(
    "command", [predict.main_predict, export.main_export, generate.main_generate, serve.main_serve]
)
def test_a_wrong_folder_ends_a_command_before_anything_starts(tmp_path, capsys, monkeypatch, command):
    monkeypatch.setattr(run_lookup, "start", None)
    add_checkpoint(tmp_path / "first")
    out = ["--out={folder}/new/model.csv"] if command in (predict.main_predict, export.main_export) else []
    flags = [f"--checkpoint_dir={tmp_path}/first", *(flag.format(folder=tmp_path) for flag in out)]
    assert command(["program", *flags]) == 2
    assert f"such as --logdir={tmp_path}/first" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first"]


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (export.main_export, [], "missing --out; name a new folder"),
        (export.main_export, ["--out={folder}"], "already exists, and export does not overwrite it"),
        (export.main_export, ["--out={folder}/config.json"], "already exists, and export does not overwrite it"),
        (export.main_export, ["--out={folder}/new"], "give --logdir of the run, or --checkpoint_dir"),
        (predict.main_predict, ["--out=a.json"], "did you mean .jsonl? known: .csv, .jsonl, .npy"),
        (
            predict.main_predict,
            ["--out={folder}/new.npy", "--input={folder}/no"],
            "no is not a file; give a file in the format of the dataset, or - for stdin",
        ),
        (predict.main_predict, ["--out=new.csv", "--logdir={folder}/no"], "no/checkpoints is not a folder"),
    ],
)
def test_wrong_input_ends_with_2_and_a_message(logdir, capsys, command, args, expected):
    assert command(["program", *(arg.format(folder=logdir) for arg in args)]) == 2
    assert expected in capsys.readouterr().err
