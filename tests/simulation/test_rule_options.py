"""The simulator's rules take the options of the cluster's rules: same names, types and defaults, same refusals."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from ps_trainer import options as options_lib
from ps_trainer import registry
from ps_trainer.errors import OptionError
from ps_trainer.simulation.rules import table

NAMES = [name for name in table.RULES if name in registry.UPDATES.names()]


def described(options_type: type | None) -> dict[str, tuple]:
    """Key -> (type, default) of each option."""
    if options_type is None:
        return {}
    hints = typing.get_type_hints(options_type)
    fields = dataclasses.fields(options_type)
    return {options_lib.key_of(field): (hints[field.name], field.default) for field in fields}


@pytest.mark.parametrize("name", NAMES)
def test_options_are_those_of_the_cluster(name):
    assert described(table.RULES[name].Options) == described(getattr(registry.UPDATES.load(name), "Options", None))


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("sync", "replicas_to_aggregate=-1"),
        ("sync", "min_workers=-1"),
        ("backup", "backup_workers=-1"),
        ("softsync", "splits=0"),
        ("k_sync", "k=0"),
        ("k_sync", "grow_by=0"),
        ("k_sync", "max_k=3"),
        ("ssp", "staleness=-1"),
        ("drop_stale", "staleness=-1"),
        ("downpour", "n_push=0"),
        ("downpour", "warm_start_steps=-1"),
        ("easgd", "period=0"),
        ("model_averaging", "period=0"),
        ("local_sgd", "switch_step=-1"),
        ("all_reduce", "fusion_bytes=0"),
        ("accumulate", "steps=0"),
        ("accumulate", "rule=backup"),
    ],
)
def test_both_refuse_the_same(name, option):
    for cls in (table.RULES[name], registry.UPDATES.load(name)):
        with pytest.raises(OptionError):
            options_lib.parse(cls.Options, [option], "--update_option")
