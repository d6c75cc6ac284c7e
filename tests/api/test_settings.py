"""Keyword arguments of the API become the settings that flags of these names give; wrong ones are refused."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from ps_trainer.api import settings
from ps_trainer.errors import ArgumentError, ArgumentTypeError


def config_of(**given):
    return settings.build_config(given, "train()")


def test_arguments_have_the_names_and_types_of_the_flags():
    config = config_of(
        update="sync",
        max_steps=np.int64(200),
        learning_rate=1,
        step_log=np.bool_(True),
        num_epochs=None,
        logdir=pathlib.Path("runs/a"),
        optimizer="momentum",
        optimizer_option={"momentum": 0.5, "nesterov": True},
        gradient_transform="clip_norm:norm=5",
        straggler=["det:mean_ms=1", "exp:mean_ms=2,worker=1"],
    )
    assert (config.update, config.max_steps, config.learning_rate) == ("sync", 200, 1.0)
    assert type(config.max_steps) is int and type(config.learning_rate) is float
    assert config.step_log is True and config.num_epochs is None and config.logdir == "runs/a"
    assert config.optimizer_option == ("momentum=0.5", "nesterov=true")
    assert config.gradient_transform == ("clip_norm:norm=5",)
    assert config.straggler == ("det:mean_ms=1", "exp:mean_ms=2,worker=1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lerning_rate": 0.1}, r"train\(\) has no argument 'lerning_rate'; did you mean learning_rate\?"),
        ({"dataset": "digits"}, r"train\(\) has no argument 'dataset'; give data=… instead"),
        ({"max_steps": "200"}, r"max_steps='200' is of type str; give a whole number"),
        ({"max_steps": True}, r"max_steps=True is of type bool; give a whole number"),
        ({"learning_rate": "fast"}, r"learning_rate='fast' is of type str; give a number"),
        ({"learning_rate": None}, r"learning_rate=None is of type NoneType; give a number"),
        ({"step_log": 1}, r"step_log=1 is of type int; give True or False"),
        ({"optimizer_option": 3}, r"optimizer_option=3 is of type int; give a dict of options"),
        ({"update": 5}, r"update=5 is of type int; give a text"),
    ],
)
def test_an_unknown_name_or_a_wrong_type_is_a_type_error(given, message):
    with pytest.raises(TypeError, match=message) as caught:
        config_of(**given)
    assert isinstance(caught.value, ArgumentTypeError) and caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": -1.0}, r"^learning_rate=-1.0: learning_rate must be above 0"),
        ({"update": "snyc"}, r"^update=snyc: unknown update rule; did you mean sync\?"),
        ({"sharding": "dynamo"}, r"did you mean dynamic\?"),
        ({"max_steps": None, "num_epochs": None}, r"^max_steps=none and num_epochs=none: the run would never end"),
    ],
)
def test_a_wrong_value_is_a_value_error_without_the_dashes_of_flags(given, message):
    with pytest.raises(ValueError, match=message) as caught:
        config_of(**given)
    assert isinstance(caught.value, ArgumentError) and caught.value.exit_code == 2
    assert "--" not in str(caught.value)


def test_a_class_stands_for_its_module_and_name():
    from ps_trainer.optimizers.stock import Momentum

    assert config_of(optimizer=Momentum).optimizer == "ps_trainer.optimizers.stock:Momentum"


def test_a_class_that_no_task_could_import_is_refused():
    class Mine:
        pass

    with pytest.raises(ArgumentTypeError, match="this class is not in a module that a task could import"):
        config_of(optimizer=Mine)
