"""Decides which rules are vectorised on which clusters, and runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ps_trainer import update_rules
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import ScheduleRule
from ps_trainer.simulation.rules.schedule_table import RULES
from ps_trainer.simulation.schedule import ScheduleBlock
from ps_trainer.simulation.vectorised.workers import in_large_blocks

_RUNS: dict[type[ScheduleRule], Callable[[ClusterModel, Any, int], Iterator[ScheduleBlock]]] = {
    RULES[name]: run for name, run in update_rules.load_all("vectorised").items()
}


def can_run(cluster: ClusterModel, rule: ScheduleRule) -> bool:
    """Returns whether the rule is vectorised, all workers begin at once, and no transfer slows another one down."""
    is_shared = rule.uses_ps and (cluster.has_shared_link or cluster.push_work_secs > 0)
    return type(rule) in _RUNS and cluster.start_secs == 0 and not is_shared


def run(cluster: ClusterModel, rule: ScheduleRule, num_updates: int) -> Iterator[ScheduleBlock]:
    """Yields the schedule of a rule for that cluster, from its start until `num_updates` updates are made."""
    return in_large_blocks(_RUNS[type(rule)](cluster, rule, num_updates))
