"""`simulate`, a replay and a cluster accept the same options of a rule, and reject others with the same messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from ps_trainer import component_tables
from ps_trainer import options as options_lib
from ps_trainer.errors import OptionError
from ps_trainer.simulation import simulate
from ps_trainer.simulation.replay import arithmetic_table
from ps_trainer.simulation.rules import schedule_table
from ps_trainer.updates.base import RunPlan
from tests.simulation.runs import cluster_of

NAMES = [name for name in schedule_table.RULES if name in component_tables.UPDATES.names()]
NUM_WORKERS = 3

_K = {
    "k": ["k=0"],
    "grow_every": ["grow_every=-1"],
    "grow_by": ["grow_by=0"],
    "max_k": ["max_k=-1", "max_k=3", "max_k=1 k=2 grow_every=1"],
}
_K_WORKERS = _K | {"k": ["k=0", "k=4"], "max_k": [*_K["max_k"], "max_k=4 grow_every=1"]}
_STALENESS = {"staleness": ["staleness=-1"]}
_SYNC = ["replicas_to_aggregate=-1", "replicas_to_aggregate=4"]

# Rule -> option -> values out of its range in a cluster of three workers, alone or with other options.
OUT_OF_RANGE: dict[str, dict[str, list[str]]] = {
    "sync": {"replicas_to_aggregate": _SYNC, "min_workers": ["min_workers=-1", "min_workers=4"]},
    "sync_replicas": {"replicas_to_aggregate": _SYNC},
    "backup": {"backup_workers": ["backup_workers=-1", "backup_workers=3"]},
    "softsync": {"splits": ["splits=0", "splits=4"]},
    "k_sync": _K_WORKERS,
    "k_async": _K_WORKERS,
    "k_batch_sync": _K,
    "k_batch_async": _K,
    "ssp": _STALENESS,
    "drop_stale": _STALENESS,
    "dc_asgd": {"lambda": ["lambda=-5", "lambda=inf", "lambda=nan"], "adaptive": []},
    "downpour": {
        "n_push": ["n_push=0"],
        "n_fetch": ["n_fetch=0"],
        "warm_start_steps": ["warm_start_steps=-1"],
    },
    "easgd": {
        "period": ["period=0"],
        "alpha": ["alpha=7", "alpha=-0.1", "alpha=nan", "alpha=0.5 beta=0.5", "alpha=7 beta=3"],
        "beta": ["beta=-0.1", "beta=3.1", "beta=inf", "beta=nan"],
        "momentum": ["momentum=1", "momentum=9", "momentum=-0.1", "momentum=nan"],
    },
    "model_averaging": {"period": ["period=0"]},
    "local_sgd": {"period": ["period=0"], "switch_step": ["switch_step=-1"]},
    "all_reduce": {"fusion_bytes": ["fusion_bytes=0"]},
    "accumulate": {
        "steps": ["steps=0"],
        "rule": ["rule=backup"],
        "average": [],
        "replicas_to_aggregate": [f"rule=sync {option}" for option in _SYNC] + ["replicas_to_aggregate=2"],
    },
}


def refusals(name: str, options: Sequence[str]) -> list[str]:
    """The messages of a simulation, a replay and a cluster about the options, each with NUM_WORKERS workers."""
    cluster = cluster_of("det", NUM_WORKERS)
    schedule = simulate.simulate(cluster, "async", num_updates=1)
    said = []
    for start in (
        lambda: simulate.stream(cluster, name, options, num_updates=1),
        lambda: arithmetic_table.create(name, options, None, schedule),  # rejected before the session is used
        lambda: component_tables.UPDATES.create(name, options).check(RunPlan(NUM_WORKERS)),
    ):
        with pytest.raises(OptionError) as refusal:
            start()
        said.append(str(refusal.value))
    return said


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_has_the_options_of_the_cluster(name):
    of_cluster = getattr(component_tables.UPDATES.load(name), "Options", None)
    assert schedule_table.RULES[name].Options is of_cluster
    fields = dataclasses.fields(of_cluster) if of_cluster else ()
    assert {options_lib.key_of(field) for field in fields} == OUT_OF_RANGE.get(name, {}).keys()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (name, case)
        for name, by_option in OUT_OF_RANGE.items()
        for case in dict.fromkeys(case for cases in by_option.values() for case in cases)
    ],
)
def test_all_reject_the_same_values_with_the_same_messages(name, options):
    simulated, replayed, of_cluster = refusals(name, options.split())
    assert simulated == replayed == of_cluster
