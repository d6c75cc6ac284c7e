"""The limits of each field of `TrainConfig`, and the fields that all workers must share."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.errors import OptionError, UnknownNameError

PROJECT = pathlib.Path(__file__).resolve().parents[1]

NAMES = ("model", "dataset", "update", "optimizer", "schedule", "layout")
PRIVATE = {
    "data_dir": "/data",
    "devices_per_worker": 2,
    "target_metric": "accuracy>=0.9",
    "init_from": "runs/w",
    "logdir": "runs/x",
    "isolation": "tunnel",
    "save_checkpoint_secs": 1.0,
    "save_checkpoint_steps": 1,
    "keep_checkpoints": 1,
    "max_failed_saves": 1,
    "report_secs": 1.0,
    "step_log": True,
    "steps_per_call": 1,
    "eval_examples": 10,
    "straggler": ("exp:worker=1",),
    "hook": ("a:B",),
    "start_timeout_secs": 1.0,
    "join_wait_secs": 1.0,
    "heartbeat_timeout_secs": 3.0,
    "watch_secs": 1.0,
    "recover_timeout_secs": 4.0,
    "stall_timeout_secs": 1.0,
    "intra_op_threads": 1,
    "inter_op_threads": 1,
    "grappler": True,
}
SHARED = {
    "model": "mlp",
    "model_option": ("a=1",),
    "preset": "paper",
    "dataset": "mnist",
    "dataset_option": ("a=1",),
    "batch_size": 64,
    "num_epochs": 2,
    "sharding": "dynamic",
    "shard_examples": 64,
    "max_steps": 7,
    "update": "sync",
    "update_option": ("a=1",),
    "gradient_transform": ("clip_norm:norm=1",),
    "pull_dtype": "bfloat16",
    "placement": "model_parallel",
    "optimizer": "adam",
    "optimizer_option": ("a=1",),
    "optimizer_for": ("wide*=ftrl",),
    "learning_rate": 0.2,
    "schedule": "cosine",
    "schedule_option": ("a=1",),
    "layout": "per_variable",
    "layout_option": ("a=1",),
    "seed": 5,
}


def test_the_defaults_are_valid():
    TrainConfig().check()


def test_dynamic_sharding_needs_a_shard_size():
    TrainConfig(sharding="dynamic", shard_examples=64).check()
    with pytest.raises(OptionError, match="--shard_examples=64 needs --sharding=dynamic; add that flag"):
        TrainConfig(shard_examples=64).check()
    with pytest.raises(OptionError, match="--sharding=random: sharding must be one of static, dynamic"):
        TrainConfig(sharding="random").check()


def test_steps_or_epochs_end_a_run():
    TrainConfig(max_steps=None, num_epochs=1).check()
    TrainConfig(max_steps=1, num_epochs=None).check()
    with pytest.raises(OptionError, match="the run would never end"):
        TrainConfig(max_steps=None, num_epochs=None).check()


@pytest.mark.parametrize("field", NAMES)
def test_an_unknown_component_is_rejected(field):
    with pytest.raises(UnknownNameError, match=f"--{field}=unheard_of: unknown"):
        TrainConfig(**{field: "unheard_of"}).check()
    TrainConfig(**{field: "my_package.my_file:Mine"}).check()


def test_a_hook_is_a_class_of_the_users():
    TrainConfig(hook=("my_package.my_file:Mine",)).check()
    with pytest.raises(UnknownNameError, match="--hook=mine: unknown hook"):
        TrainConfig(hook=("my_package.my_file:Mine", "mine")).check()


def test_a_straggler_is_a_distribution_of_delays_with_options():
    TrainConfig(straggler=("exp", "pareto:alpha=2.1,mean_ms=100,worker=1", "my_package.my_file:Mine:a=1")).check()
    with pytest.raises(UnknownNameError, match="--straggler=parteo: unknown delay distribution; did you mean pareto"):
        TrainConfig(straggler=("exp", "parteo:alpha=2.1")).check()


def test_every_field_is_either_private_or_shared_and_gives_a_reason():
    fields = {field.name: field.metadata for field in dataclasses.fields(TrainConfig)}
    assert {name for name, declared in fields.items() if declared.get("shared")} == SHARED.keys()
    assert {name for name, declared in fields.items() if declared.get("own")} == PRIVATE.keys()
    assert PRIVATE.keys() ^ SHARED.keys() == fields.keys()


def test_values_out_of_range_are_rejected_without_a_command_line():
    with pytest.raises(OptionError, match="--batch_size=0: batch_size must be at least 1; the default is 32"):
        TrainConfig(batch_size=0).check()


@pytest.mark.parametrize(("field", "value"), SHARED.items())
def test_workers_with_another_value_disagree(field, value):
    assert TrainConfig(**{field: value}).agreement() != TrainConfig().agreement()


@pytest.mark.parametrize(("field", "value"), PRIVATE.items())
def test_each_worker_may_have_its_own_value_of_a_private_field(field, value):
    assert TrainConfig(**{field: value}).agreement() == TrainConfig().agreement()


def test_an_agreement_survives_json():
    agreement = TrainConfig(**SHARED).agreement()
    assert json.loads(json.dumps(agreement)) == agreement


def test_all_fields_survive_json():
    values = json.loads(json.dumps(TrainConfig(**SHARED).to_json()))
    assert {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()} == dataclasses.asdict(
        TrainConfig(**SHARED)
    )


def test_checkpoints_lie_in_the_logdir():
    assert TrainConfig(logdir="runs/x").checkpoint_dir == pathlib.Path("runs/x/checkpoints")
    assert TrainConfig().checkpoint_dir is None


def test_every_field_has_a_help_text():
    assert all(field.metadata["help"] for field in dataclasses.fields(TrainConfig))


def test_checking_needs_no_tensorflow():
    code = "import sys; from ps_trainer.config import TrainConfig as C; C().check(); print('tensorflow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
