"""The number of calls, messages, bytes and ops that a step of each rule and path makes; no other file expects them.

A change that makes a step cheaper lowers the numbers here. A change that raises one must say why in its commit.
"""

from __future__ import annotations

from benchmarks.anatomy.step_anatomy import StepCounts

# `Dense` has 59 parameters in 4 variables, `Embedded` 44 in 2 and a table 23x4, of which a batch takes all rows.
_DENSE, _EMBEDDED = 4 * 59, 4 * 44
_IDS, _ROWS = 8 * 23, 4 * 4 * 23
_STEP_AND_STALENESS = 8 + 8

# One vector each way; global_step and the staleness come with these few parameters.
_PACKED = {
    "calls": 1,
    "to_worker": 1,
    "from_worker": 1,
    "to_worker_bytes": _DENSE + _STEP_AND_STALENESS,
    "from_worker_bytes": _DENSE,
    "worker_ops": 52,
}
# The same bytes, with a message for each gradient.
_PER_VARIABLE = {**_PACKED, "from_worker": 4, "worker_ops": 45}
# Further: ids to the ps task, rows to the worker, and gradients of the rows to the ps task, which has their ids.
_TABLE = {
    "calls": 1,
    "to_worker": 2,
    "from_worker": 3,
    "to_worker_bytes": _EMBEDDED + _ROWS + _STEP_AND_STALENESS,
    "from_worker_bytes": _EMBEDDED + _IDS + _ROWS,
    "worker_ops": 87,
}
# Each worker receives half a vector twice. With the gradient travels the count of workers that gave one, twice.
_ALL_REDUCE = {
    "calls": 2,
    "to_worker": 2,
    "from_worker": 0,
    "to_worker_bytes": _DENSE + 8,
    "from_worker_bytes": 0,
    "other_ops": 0,
}

# By update rule, layout, model, number of ps tasks (0 = colocated) and form of the messages, for two workers.
STEP_COUNTS: dict[str, StepCounts] = {
    "async/packed/Dense/1": StepCounts(**_PACKED, other_ops=31),
    "async/per_variable/Dense/1": StepCounts(**_PER_VARIABLE, other_ops=49),
    "async/packed/Embedded/1": StepCounts(**_TABLE, other_ops=40),
    "async/packed/Embedded/2": StepCounts(1, 4, 6, 568, 728, 132, 71),
    "hogwild/packed/Dense/1": StepCounts(**_PACKED, other_ops=34),
    "sync/packed/Dense/1": StepCounts(**_PACKED, other_ops=235),
    "sync/per_variable/Dense/1": StepCounts(**_PER_VARIABLE, other_ops=304),
    "sync/packed/Embedded/1": StepCounts(**_TABLE, other_ops=285),
    "sync_replicas/packed/Dense/1": StepCounts(**_PACKED, other_ops=82),
    "backup/packed/Dense/1": StepCounts(**_PACKED, other_ops=234),
    "ssp/packed/Dense/1": StepCounts(**_PACKED, other_ops=169),
    "drop_stale/packed/Dense/1": StepCounts(**_PACKED, other_ops=71),
    "dc_asgd/packed/Dense/1": StepCounts(**_PACKED, other_ops=56),
    "all_reduce/packed/Dense/1": StepCounts(**_ALL_REDUCE, worker_ops=111),
    "all_reduce/per_variable/Dense/1": StepCounts(**_ALL_REDUCE, worker_ops=137),
    "hybrid/packed/Embedded/1": StepCounts(3, 4, 3, 556, 736, 154, 40),
    "softsync/packed/Dense/1": StepCounts(**_PACKED, other_ops=166),
    "k_sync/packed/Dense/1": StepCounts(**_PACKED, other_ops=235),
    "k_async/packed/Dense/1": StepCounts(**_PACKED, other_ops=233),
    "k_batch_sync/packed/Dense/1": StepCounts(**_PACKED, other_ops=168),
    "k_batch_async/packed/Dense/1": StepCounts(**_PACKED, other_ops=166),
    "staleness_aware/packed/Dense/1": StepCounts(**_PACKED, other_ops=52),
    # The groups of each ps task, and a message in which ps 0 tells the other one which gradients are in.
    "sync/packed/Dense/2": StepCounts(1, 2, 2, _DENSE + 3 * 8, _DENSE, 66, 437),
    # Ids of both tables in one message, with their numbers; rows, and gradients of rows, of each table in another.
    "async/packed/TwiceEmbedded/1": StepCounts(1, 3, 4, 776, 1144, 142, 56),
    "async/packed/TwiceEmbedded/2": StepCounts(1, 6, 8, 784, 1160, 222, 103),
    # Three pieces on the ps task; the parameters travel with the result.
    "async/packed/Broad/1": StepCounts(1, 1, 1, 4 * 3304 + _STEP_AND_STALENESS, 4 * 3304, 52, 31),
    "async/packed/Broad/1/pieces": StepCounts(1, 1, 3, 4 * 3304 + _STEP_AND_STALENESS, 4 * 3304, 58, 43),
    "sync/packed/Broad/1/pieces": StepCounts(1, 1, 3, 4 * 3304 + _STEP_AND_STALENESS, 4 * 3304, 58, 281),
    # Without ps tasks, and few parameters: they lie on worker 0.
    "async/packed/Dense/0": StepCounts(**_PACKED, other_ops=31),
    # 30 of the parameters lie on worker 1 itself, and its ops include those of its share.
    "async/packed/Dense/0/spread": StepCounts(1, 1, 1, 4 * 29 + _STEP_AND_STALENESS, 4 * 29, 75, 31),
    "async/per_variable/Dense/0/spread": StepCounts(1, 1, 2, 4 * 50 + _STEP_AND_STALENESS, 4 * 50, 62, 37),
    "async/packed/Embedded/0/spread": StepCounts(1, 2, 3, 296, 376, 155, 40),
    "sync/packed/Dense/0/spread": StepCounts(1, 2, 1, 4 * 29 + _STEP_AND_STALENESS + 5 * 8, 4 * 29, 262, 236),
    "sync/packed/Dense/0": StepCounts(**_PACKED, other_ops=235),
    # The count of pushes, to which the residuals belong, comes with the result.
    "async/packed/Dense/1/feedback": StepCounts(1, 1, 1, _DENSE + _STEP_AND_STALENESS + 2 * 8, 4 * 2 * 30, 87, 67),
    # bfloat16 each way.
    "async/packed/Dense/1/16bit": StepCounts(1, 1, 1, _DENSE // 2 + _STEP_AND_STALENESS, _DENSE // 2, 60, 38),
    "async/packed/Embedded/1/16bit": StepCounts(1, 2, 3, 288, 552, 113, 72),
}

_LOCAL = {"calls": 1, "to_worker": 0, "from_worker": 0, "to_worker_bytes": 0, "from_worker_bytes": 0, "other_ops": 0}

# Of rules whose local steps send nothing: such a step, and one with an exchange.
PHASE_COUNTS: dict[str, list[StepCounts]] = {
    "accumulate/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=54), StepCounts(1, 1, 2, 252, 252, 69, 35)],
    "downpour/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=63), StepCounts(1, 4, 2, 268, 252, 117, 42)],
    "easgd/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=58), StepCounts(1, 3, 3, 268, 252, 97, 43)],
    "local_sgd/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=63), StepCounts(1, 4, 2, 276, 252, 133, 254)],
    "model_averaging/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=63), StepCounts(1, 4, 2, 276, 252, 118, 254)],
}
