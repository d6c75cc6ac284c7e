"""Which rules are vectorised, and on which clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ps_trainer import update_rules
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import ScheduleRule
from ps_trainer.simulation.rules.table import RULES
from ps_trainer.simulation.schedule import Block
from ps_trainer.simulation.vectorised.workers import in_large_blocks

_RUNS: dict[type[ScheduleRule], Callable[[ClusterModel, Any, int], Iterator[Block]]] = {
    RULES[name]: run for name, run in update_rules.load_all("vectorised").items()
}


def can_run(cluster: ClusterModel, rule: ScheduleRule) -> bool:
    """Whether `run` is there for the rule, and no transfer on that cluster slows another one down."""
    is_shared = rule.uses_ps and (cluster.has_shared_link or cluster.push_work_secs > 0)
    return type(rule) in _RUNS and not is_shared


def run(cluster: ClusterModel, rule: ScheduleRule, num_updates: int) -> Iterator[Block]:
    """The schedule of a rule, made for that cluster and at its start, until so many updates are made."""
    return in_large_blocks(_RUNS[type(rule)](cluster, rule, num_updates))
