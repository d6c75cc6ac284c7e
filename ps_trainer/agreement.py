"""Which settings of a run all of its workers must share, and why: one entry for every field of `TrainConfig`.

A setting must agree where a difference makes the result wrong or meaningless. The others belong to one task (its
folders, threads, patience), or only the chief looks at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MUST_AGREE = {
    "model": "the workers train one set of variables",
    "model_option": "the workers train one set of variables",
    "dataset": "each worker has its part of one data set",
    "dataset_option": "each worker has its part of one data set, read in one way",
    "batch_size": "an average of gradients counts each worker's batch alike, and learning rates are per batch",
    "num_epochs": "each example is to be read equally often",
    "max_steps": "the workers end at one step",
    "sharding": "examples are dealt out in one way",
    "shard_examples": "examples are cut into shards in one way",
    "update": "the workers push, wait and average by one rule",
    "update_option": "the workers push, wait and average by one rule",
    "gradient_transform": "the ps tasks decode what the workers encode",
    "pull_dtype": "the workers compute with equally rounded parameters",
    "optimizer": "the ps tasks apply all gradients by one optimizer",
    "optimizer_option": "the ps tasks apply all gradients by one optimizer",
    "optimizer_for": "the ps tasks apply all gradients by one optimizer",
    "learning_rate": "the ps tasks apply all gradients at one rate",
    "schedule": "the ps tasks apply all gradients at one rate",
    "schedule_option": "the ps tasks apply all gradients at one rate",
    "placement": "it says which workers train and which compute for another one",
    "layout": "it says where each parameter lies",
    "layout_option": "it says where each parameter lies",
    "seed": "the data are dealt out in one order, and a run can be repeated",
}
"""Field -> what goes wrong where workers have different values, as the reason in the refusal."""

MAY_DIFFER = {
    "data_dir": "the same files may lie elsewhere on each machine",
    "target_metric": "the chief tests, and tells the others",
    "init_from": "the chief sets the initial values",
    "logdir": "each worker writes to its own disk",
    "save_checkpoint_secs": "the chief saves checkpoints",
    "save_checkpoint_steps": "the chief saves checkpoints",
    "keep_checkpoints": "it is about this worker's own disk",
    "max_failed_saves": "it is about the chief's disk",
    "report_secs": "it is about this worker's own log",
    "step_log": "it is about this worker's own log",
    "straggler": "how long a worker computes changes no gradient, and machines differ",
    "hook": "a hook may watch one worker alone",
    "start_timeout_secs": "a task may have its own patience; the result is the same",
    "join_wait_secs": "a task may have its own patience; the result is the same",
    "stall_timeout_secs": "a task may have its own patience; the result is the same",
    "heartbeat_timeout_secs": "a task may have its own patience; the result is the same",
    "recover_timeout_secs": "a task may have its own patience; the result is the same",
    "isolation": "it is about this machine's ports",
    "intra_op_threads": "it is about this machine's cores",
    "inter_op_threads": "it is about this machine's cores",
}
"""Field -> why each worker may have its own value."""


def differences(chief: Mapping[str, Any], own: Mapping[str, Any], task_name: str) -> list[str]:
    """The settings of `own` that the chief has otherwise: flag, both values, why they must agree, and the fix.

    Args:
        chief: the chief's `TrainConfig.agreement`.
        own: this task's, or a part of it.
        task_name: whose `own` is, for the words.
    """
    return [
        f"--{name}: chief {chief.get(name)!r}, {task_name} {own[name]!r}"
        f" ({MUST_AGREE.get(name, 'all tasks belong to one cluster')}; {_fix(name, chief.get(name))})"
        for name in own
        if chief.get(name) != own[name]
    ]


def _fix(name: str, chief: Any) -> str:
    if isinstance(chief, list | tuple):
        given = " ".join(f"--{name}={value}" for value in chief)
        return f"give it {given}" if given else f"give it no --{name}"
    return f"give it --{name}={'none' if chief is None else chief}"
