"""The one table of the update rules: every part that it names exists, and is of its kind."""

from __future__ import annotations

import pytest

from ps_trainer import component_tables, update_rules
from ps_trainer.simulation.replay.base import Arithmetic
from ps_trainer.simulation.rules.base import ScheduleRule
from ps_trainer.updates.base import UpdateRule


@pytest.mark.parametrize(
    ("part", "kind"), [("update", UpdateRule), ("schedule", ScheduleRule), ("arithmetic", Arithmetic)]
)
def test_every_part_is_a_class_of_its_kind(part, kind):
    assert all(issubclass(cls, kind) for cls in update_rules.load_all(part).values())


def test_rules_of_the_cluster_are_registered_in_the_order_of_the_table():
    assert component_tables.UPDATES.names() == list(update_rules.targets("update"))


def test_a_rule_with_a_schedule_has_its_arithmetic_and_a_vectorised_one_has_both():
    schedules = update_rules.targets("schedule").keys()
    assert schedules == update_rules.targets("arithmetic").keys()
    assert update_rules.targets("vectorised").keys() < schedules


def test_a_part_that_a_rule_lacks_has_no_target():
    assert "hybrid" not in update_rules.targets("schedule")
    assert "token_queue" not in update_rules.targets("update")


def test_rules_of_one_schedule_are_vectorised_alike():
    schedules, runs = update_rules.targets("schedule"), update_rules.targets("vectorised")
    assert all(
        runs.get(name) == runs.get(other)
        for name in schedules
        for other in schedules
        if schedules[name] == schedules[other]
    )
