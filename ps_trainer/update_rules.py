"""The update rules by the names of `--update`: the only table of the modules that hold the parts of each rule.

A rule has up to four parts. Each part is a class or a function, named `module:Class` within its folder:

    update      the TensorFlow ops of a cluster's tasks, in `updates/`
    schedule    the events in virtual time: which worker continues when, in `simulation/rules/`
    arithmetic  the same updates in NumPy, along such a schedule, in `simulation/replay/`
    vectorised  the same schedule by NumPy for many workers, in `simulation/vectorised/`; optional

The parts share the rule's options (`updates/options.py`). This file imports no part, so that a simulation needs no
TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

_FOLDERS = {
    "update": "ps_trainer.updates",
    "schedule": "ps_trainer.simulation.rules",
    "arithmetic": "ps_trainer.simulation.replay",
    "vectorised": "ps_trainer.simulation.vectorised",
}


class _Parts(NamedTuple):
    """`module:Class` of each part; None where the rule lacks it."""

    update: str | None
    schedule: str | None = None
    arithmetic: str | None = None
    vectorised: str | None = None


_RULES = {
    "async": _Parts("asynchronous:Async", "update_per_push:Async", "shared_parameters:Mean"),
    "downpour": _Parts("downpour:Downpour", "replicas:Downpour", "replicas:Downpour"),
    "hogwild": _Parts("hogwild:Hogwild", "update_per_push:Async", "shared_parameters:Mean"),
    "sync": _Parts("synchronous:Sync", "gradient_groups:Sync", "shared_parameters:Mean", "wait_for_k:run"),
    "sync_replicas": _Parts(
        "sync_replicas:SyncReplicas", "gradient_groups:SyncReplicas", "shared_parameters:Mean", "wait_for_k:run"
    ),
    # TensorFlow's own SyncReplicasOptimizer, with its queue of tokens and as its users set it up: simulated only.
    "token_queue": _Parts(None, "tokens:TokenQueue", "shared_parameters:Mean", "tokens:run"),
    "stock_sync": _Parts(None, "tokens:StockSync", "shared_parameters:Mean", "tokens:run"),
    "backup": _Parts("backup:Backup", "gradient_groups:Backup", "shared_parameters:Mean", "wait_for_k:run"),
    "softsync": _Parts("softsync:SoftSync", "gradient_groups:SoftSync", "shared_parameters:Mean", "no_wait:run"),
    "k_sync": _Parts("k_family:KSync", "gradient_groups:KSync", "shared_parameters:Mean", "wait_for_k:run"),
    "k_async": _Parts("k_family:KAsync", "gradient_groups:KAsync", "shared_parameters:Mean", "wait_for_k:run"),
    "k_batch_sync": _Parts("k_family:KBatchSync", "gradient_groups:KBatchSync", "shared_parameters:Mean"),
    "k_batch_async": _Parts(
        "k_family:KBatchAsync", "gradient_groups:KBatchAsync", "shared_parameters:Mean", "no_wait:run"
    ),
    "ssp": _Parts("ssp:Ssp", "update_per_push:Ssp", "shared_parameters:Mean"),
    # Ho et al.'s rule, whose workers read from a cache: simulated only.
    "ssp_cache": _Parts(None, "update_per_push:SspCache", "replicas:SspCache"),
    "drop_stale": _Parts("drop_stale:DropStale", "update_per_push:DropStale", "shared_parameters:Mean"),
    "staleness_aware": _Parts(
        "staleness_aware:StalenessAware", "update_per_push:Async", "shared_parameters:StalenessAware"
    ),
    "dc_asgd": _Parts("dc_asgd:DcAsgd", "update_per_push:DcAsgd", "shared_parameters:DcAsgd"),
    "easgd": _Parts("easgd:Easgd", "replicas:Easgd", "replicas:Easgd"),
    "model_averaging": _Parts(
        "model_averaging:ModelAveraging", "replicas:ModelAveraging", "replicas:ModelAveraging", "barrier:run"
    ),
    "local_sgd": _Parts("local_sgd:LocalSgd", "replicas:LocalSgd", "replicas:LocalSgd", "barrier:run"),
    "all_reduce": _Parts("all_reduce:AllReduce", "replicas:AllReduce", "shared_parameters:DenseMean", "barrier:run"),
    "hybrid": _Parts("hybrid:Hybrid"),
    "accumulate": _Parts("accumulate:Accumulate", "accumulate:Accumulate", "shared_parameters:Accumulate"),
}


def targets(part: str) -> dict[str, str]:
    """Returns the rules with a part ("update", "schedule", "arithmetic" or "vectorised"), and its `module:Class`."""
    named = {name: getattr(parts, part) for name, parts in _RULES.items()}
    return {name: f"{_FOLDERS[part]}.{target}" for name, target in named.items() if target is not None}


def load_all(part: str) -> dict[str, Any]:
    """Returns the rules that have a part, with its class or function; imports them."""
    found = {}
    for name, target in targets(part).items():
        module, _, attribute = target.partition(":")
        found[name] = getattr(importlib.import_module(module), attribute)
    return found
