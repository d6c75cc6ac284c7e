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

# By update rule, layout, model and number of ps tasks, for two workers.
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
}
