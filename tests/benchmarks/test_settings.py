"""Every registered rule and transform has a setting, and the settings are runs that can start."""

from __future__ import annotations

import pytest

from benchmarks.settings import RULES, TRANSFORMS, TrainingSetting
from ps_trainer import component_tables
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.local import LocalFlags
from ps_trainer.config import TrainConfig
from ps_trainer.gradients import transform_list
from ps_trainer.registry import split_inline
from ps_trainer.updates.base import RunPlan

ALL = [pytest.param(setting, id=name) for table in (RULES, TRANSFORMS) for name, setting in table.items()]


def plan_of(setting: TrainingSetting, num_workers: int) -> RunPlan:
    transforms = transform_list.load(setting.transforms)
    return RunPlan(
        num_workers=num_workers,
        optimizer=component_tables.OPTIMIZERS.create(setting.optimizer),
        optimizer_name=setting.optimizer,
        transforms=[transform.name for transform in transforms],
        is_lossy=any(transform.is_lossy for transform in transforms),
    )


def test_every_rule_has_a_setting_under_its_name():
    assert list(RULES) == component_tables.UPDATES.names()
    assert all(setting.update == name for name, setting in RULES.items())


def test_every_transform_has_a_setting_that_uses_it():
    for name in component_tables.GRADIENT_TRANSFORMS.names():
        used = [split_inline(transform)[0] for transform in TRANSFORMS[name].transforms]
        assert name in used


@pytest.mark.parametrize("setting", ALL)
def test_setting_is_a_valid_command_line_with_a_reason(setting):
    local, config = flags_lib.parse(["local", *setting.flags], "usage", LocalFlags, TrainConfig).groups
    config.check()
    assert (local.num_workers, config.update, config.max_steps) == (
        setting.num_workers,
        setting.update,
        setting.max_steps,
    )
    assert config.update_option == setting.options
    assert config.gradient_transform == setting.transforms
    assert setting.why


@pytest.mark.parametrize("setting", ALL)
def test_rule_and_transforms_of_a_setting_go_together(setting):
    rule = component_tables.UPDATES.create(setting.update, setting.options)
    rule.check(plan_of(setting, setting.num_workers))


@pytest.mark.parametrize("name", RULES)
def test_rule_of_the_step_rates_goes_with_two_workers(name):
    rule = component_tables.UPDATES.create(name, RULES[name].options)
    rule.check(plan_of(TrainingSetting(max_steps=1, learning_rate=0.1, why="", optimizer="sgd"), num_workers=2))


def test_only_lossy_transforms_promise_fewer_bytes():
    for setting in TRANSFORMS.values():
        is_lossy = any(transform.is_lossy for transform in transform_list.load(setting.transforms))
        assert (setting.least_factor > 1) == is_lossy
