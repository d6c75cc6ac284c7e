"""The schedules by the names of `--update`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ps_trainer import options as options_lib
from ps_trainer.errors import OptionError, UnknownNameError
from ps_trainer.simulation.cluster import ClusterModel
from ps_trainer.simulation.rules import accumulate, groups, replicas, single, tokens
from ps_trainer.simulation.rules.base import ScheduleRule

RULES: dict[str, type[ScheduleRule]] = {
    "async": single.Async,
    "downpour": replicas.Downpour,
    "hogwild": single.Async,
    "sync": tokens.Sync,
    "stock_sync": tokens.StockSync,
    "backup": groups.Backup,
    "softsync": groups.SoftSync,
    "k_sync": groups.KSync,
    "k_async": groups.KAsync,
    "k_batch_sync": groups.KBatchSync,
    "k_batch_async": groups.KBatchAsync,
    "ssp": single.Ssp,
    "drop_stale": single.DropStale,
    "staleness_aware": single.Async,
    "dc_asgd": single.DcAsgd,
    "easgd": replicas.Easgd,
    "model_averaging": replicas.ModelAveraging,
    "local_sgd": replicas.LocalSgd,
    "all_reduce": replicas.AllReduce,
    "accumulate": accumulate.Accumulate,
}


def create(name: str, option_strings: Sequence[str], cluster: ClusterModel) -> ScheduleRule:
    """The schedule of an update rule, at its start.

    Args:
        name: of `--update`; `hybrid` is not modelled.
        option_strings: `key=value` each, of `--update_option`.
        cluster: where it runs.

    Raises:
        UnknownNameError: no such rule in virtual time.
        OptionError: an option is unknown, has a wrong value, or does not fit the cluster.
    """
    if name not in RULES:
        nearest = difflib.get_close_matches(name, RULES, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise UnknownNameError(f"--update={name}: not simulated; {hint}simulated: {', '.join(RULES)}")
    cls = RULES[name]
    if cls.Options is None:
        if option_strings:
            raise OptionError(f"--update_option {option_strings[0]}: update rule {name!r} takes no options")
        return cls(None, cluster)
    return cls(options_lib.parse(cls.Options, option_strings, "--update_option"), cluster)
