"""Schedules by the names of `--update`, and three that no cluster has: `token_queue`, `stock_sync`, `ssp_cache`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer import options as options_lib
from ps_trainer import update_rules
from ps_trainer.errors import UnknownNameError, did_you_mean
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules.base import ScheduleRule
from ps_trainer.updates.options import RuleOptions

RULES: dict[str, type[ScheduleRule]] = update_rules.load_all("schedule")


def create(name: str, option_strings: Sequence[str], cluster: ClusterModel) -> ScheduleRule:
    """Makes the schedule of an update rule, at its start.

    Args:
        name: Name of the rule, as for `--update`; `hybrid` has no schedule.
        option_strings: Options of the rule, each as `key=value`, as for `--update_option`.
        cluster: Cluster that the rule runs on.

    Raises:
        UnknownNameError: There is no rule of this name, or it has no schedule.
        OptionError: An option is unknown, has a wrong value, or does not fit the cluster.
    """
    if name not in RULES:
        known = ", ".join(RULES)
        if name in update_rules.targets("update"):
            raise UnknownNameError(f"--update={name}: cannot be simulated; choose from {known}")
        raise UnknownNameError(f"--update={name}: unknown update rule; {did_you_mean(name, RULES)}known: {known}")
    return RULES[name](parse_options(name, option_strings, cluster.num_workers), cluster)


def parse_options(name: str, option_strings: Sequence[str], num_workers: int) -> RuleOptions | None:
    """Parses the options of one of `RULES` for a cluster of `num_workers` workers; None if the rule has no options.

    Raises:
        OptionError: An option is unknown, has a wrong value, or does not fit the cluster.
    """
    owner = f"update rule {name!r}"
    options = options_lib.parse_if_any(RULES[name].Options, option_strings, "--update_option", owner)
    if options is not None:
        options.check_cluster(num_workers)
    return options
