"""The number of calls, messages, bytes, ops and fetches of a step of each rule and path; no other file expects them.

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
    "worker_ops": 47,
    "fetched": 2,
}
# The same bytes, with a message for each gradient.
_PER_VARIABLE = {**_PACKED, "from_worker": 4, "worker_ops": 38}
# Further: rows of the next step, with the result, and their ids, with the gradients of rows and dense parameters.
_TABLE = {
    "calls": 1,
    "to_worker": 1,
    "from_worker": 1,
    "to_worker_bytes": _EMBEDDED + _ROWS + _STEP_AND_STALENESS,
    "from_worker_bytes": _EMBEDDED + _IDS + _ROWS,
    "worker_ops": 105,
    "fetched": 2,
}
# Each worker receives half a vector twice. With the gradient travels the count of workers that gave one, twice.
_ALL_REDUCE = {
    "calls": 2,
    "to_worker": 2,
    "from_worker": 0,
    "to_worker_bytes": _DENSE + 8,
    "from_worker_bytes": 0,
    "other_ops": 0,
    "fetched": 4,
}

# By update rule, layout, model, number of ps tasks (0 = colocated) and form of the messages, for two workers.
STEP_COUNTS: dict[str, StepCounts] = {
    "async/packed/Dense/1": StepCounts(**_PACKED, other_ops=30, branch_ops=0),
    "async/per_variable/Dense/1": StepCounts(**_PER_VARIABLE, other_ops=47, branch_ops=0),
    "async/packed/Embedded/1": StepCounts(**_TABLE, other_ops=59, branch_ops=0),
    "async/packed/Embedded/2": StepCounts(1, 2, 2, 568, 728, 170, 109, 2, 0),
    "hogwild/packed/Dense/1": StepCounts(**_PACKED, other_ops=33, branch_ops=0),
    "sync/packed/Dense/1": StepCounts(**_PACKED, other_ops=234, branch_ops=25),
    "sync/per_variable/Dense/1": StepCounts(**_PER_VARIABLE, other_ops=302, branch_ops=37),
    "sync/packed/Embedded/1": StepCounts(**_TABLE, other_ops=305, branch_ops=32),
    "sync_replicas/packed/Dense/1": StepCounts(1, 1, 1, 252, 236, 50, 81, 3, 15),
    "backup/packed/Dense/1": StepCounts(**_PACKED, other_ops=233, branch_ops=25),
    "ssp/packed/Dense/1": StepCounts(**_PACKED, other_ops=168, branch_ops=18),
    "drop_stale/packed/Dense/1": StepCounts(**_PACKED, other_ops=70, branch_ops=6),
    "dc_asgd/packed/Dense/1": StepCounts(**_PACKED, other_ops=55, branch_ops=0),
    "all_reduce/packed/Dense/1": StepCounts(**_ALL_REDUCE, worker_ops=111, branch_ops=10),
    "all_reduce/per_variable/Dense/1": StepCounts(**_ALL_REDUCE, worker_ops=137, branch_ops=16),
    "hybrid/packed/Embedded/1": StepCounts(3, 4, 3, 556, 736, 154, 40, 5, 16),
    "softsync/packed/Dense/1": StepCounts(**_PACKED, other_ops=165, branch_ops=10),
    "k_sync/packed/Dense/1": StepCounts(**_PACKED, other_ops=234, branch_ops=25),
    "k_async/packed/Dense/1": StepCounts(**_PACKED, other_ops=232, branch_ops=25),
    "k_batch_sync/packed/Dense/1": StepCounts(**_PACKED, other_ops=167, branch_ops=10),
    "k_batch_async/packed/Dense/1": StepCounts(**_PACKED, other_ops=165, branch_ops=10),
    "staleness_aware/packed/Dense/1": StepCounts(**_PACKED, other_ops=51, branch_ops=0),
    # The groups of each ps task, and a message in which ps 0 tells the other one which gradients are in.
    "sync/packed/Dense/2": StepCounts(1, 2, 2, _DENSE + 3 * 8, _DENSE, 62, 433, 2, 50),
    # Ids of both tables in one message with all gradients, and the rows of both with the result.
    "async/packed/TwiceEmbedded/1": StepCounts(1, 1, 1, 776, 1144, 178, 80, 2, 0),
    "async/packed/TwiceEmbedded/2": StepCounts(1, 2, 2, 784, 1160, 293, 151, 2, 0),
    # The worker takes both parts out of the message without a copy, in two ops more.
    "async/packed/Aligned/1": StepCounts(1, 1, 1, 4 * 224 + _STEP_AND_STALENESS, 4 * 224, 49, 30, 2, 0),
    # Three pieces on the ps task; the parameters travel with the result.
    "async/packed/Broad/1": StepCounts(1, 1, 1, 4 * 3304 + _STEP_AND_STALENESS, 4 * 3304, 47, 30, 2, 0),
    "async/packed/Broad/1/pieces": StepCounts(1, 1, 3, 4 * 3304 + _STEP_AND_STALENESS, 4 * 3304, 51, 40, 2, 0),
    "sync/packed/Broad/1/pieces": StepCounts(1, 1, 3, 4 * 3304 + _STEP_AND_STALENESS, 4 * 3304, 51, 278, 2, 33),
    # Without ps tasks, and few parameters: they lie on worker 0.
    "async/packed/Dense/0": StepCounts(**_PACKED, other_ops=30, branch_ops=0),
    # 30 of the parameters lie on worker 1 itself, and its ops include those of its share.
    "async/packed/Dense/0/spread": StepCounts(1, 1, 1, 4 * 29 + _STEP_AND_STALENESS, 4 * 29, 72, 30, 2, 0),
    "async/per_variable/Dense/0/spread": StepCounts(1, 1, 2, 4 * 50 + _STEP_AND_STALENESS, 4 * 50, 59, 37, 2, 0),
    "async/packed/Embedded/0/spread": StepCounts(1, 1, 1, 296, 376, 184, 59, 2, 0),
    "sync/packed/Dense/0/spread": StepCounts(1, 2, 1, 4 * 29 + _STEP_AND_STALENESS + 5 * 8, 4 * 29, 259, 235, 2, 50),
    "sync/packed/Dense/0": StepCounts(**_PACKED, other_ops=234, branch_ops=25),
    # The count of pushes, to which the residuals belong, comes with the result.
    "async/packed/Dense/1/feedback": StepCounts(
        1, 1, 1, _DENSE + _STEP_AND_STALENESS + 2 * 8, 4 * 2 * 30, 83, 66, 3, 0
    ),
    # bfloat16 each way.
    "async/packed/Dense/1/16bit": StepCounts(1, 1, 1, _DENSE // 2 + _STEP_AND_STALENESS, _DENSE // 2, 55, 37, 2, 0),
    "async/packed/Embedded/1/16bit": StepCounts(1, 1, 3, 288, 552, 128, 78, 2, 0),
}

_LOCAL = {
    "calls": 1,
    "to_worker": 0,
    "from_worker": 0,
    "to_worker_bytes": 0,
    "from_worker_bytes": 0,
    "other_ops": 0,
    "fetched": 3,
    "branch_ops": 0,
}

# Of rules whose local steps send nothing: such a step, and one with an exchange.
PHASE_COUNTS: dict[str, list[StepCounts]] = {
    "accumulate/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=54), StepCounts(1, 1, 2, 252, 252, 66, 34, 2, 0)],
    "downpour/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=63), StepCounts(1, 4, 2, 268, 252, 117, 42, 4, 0)],
    "easgd/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=58), StepCounts(1, 3, 3, 268, 252, 97, 43, 4, 0)],
    "local_sgd/packed/Dense/1": [StepCounts(**_LOCAL, worker_ops=63), StepCounts(1, 4, 2, 276, 252, 133, 254, 4, 25)],
    "model_averaging/packed/Dense/1": [
        StepCounts(**_LOCAL, worker_ops=63),
        StepCounts(1, 4, 2, 276, 252, 118, 254, 4, 25),
    ],
}

STEPS_PER_CALL = 5
_ROUNDS = STEPS_PER_CALL + 1  # the last one ends the loop
_FOLLOWS = _ROUNDS  # bytes, by which the loop tells a task whether another round follows

_CALL = {
    "calls": 1,
    "to_worker": _ROUNDS,
    "from_worker": 2 * _ROUNDS,
    "to_worker_bytes": STEPS_PER_CALL * (_DENSE + _STEP_AND_STALENESS),
    "from_worker_bytes": STEPS_PER_CALL * _DENSE + _FOLLOWS,
    "fetched": 0,
}

# Of whole calls. In each round the loop itself sends a message further to each other task that holds parameters.
CALL_COUNTS: dict[str, StepCounts] = {
    "async/packed/Dense/1": StepCounts(**_CALL, worker_ops=328, other_ops=200, branch_ops=88),
    "async/packed/Aligned/1": StepCounts(
        **{
            **_CALL,
            "to_worker_bytes": STEPS_PER_CALL * (4 * 224 + _STEP_AND_STALENESS),
            "from_worker_bytes": STEPS_PER_CALL * 4 * 224 + _FOLLOWS,
        },
        worker_ops=338,
        other_ops=200,
        branch_ops=88,
    ),
    "async/per_variable/Dense/1": StepCounts(
        **{**_CALL, "from_worker": 5 * _ROUNDS}, worker_ops=283, other_ops=285, branch_ops=88
    ),
    # The rows of the first step and their ids travel outside of the loop.
    "async/packed/Embedded/1": StepCounts(
        calls=1,
        to_worker=_ROUNDS + 1,
        from_worker=2 * _ROUNDS + 1,
        to_worker_bytes=STEPS_PER_CALL * (_EMBEDDED + _ROWS + _STEP_AND_STALENESS) + _ROWS,
        from_worker_bytes=STEPS_PER_CALL * (_EMBEDDED + _IDS + _ROWS) + _FOLLOWS + _IDS,
        worker_ops=754,
        other_ops=348,
        fetched=0,
        branch_ops=235,
    ),
    "async/packed/Embedded/2": StepCounts(
        1,
        2 * (_ROUNDS + 1),
        2 * (2 * _ROUNDS + 1),
        3208,
        3836,
        worker_ops=1143,
        other_ops=651,
        fetched=0,
        branch_ops=364,
    ),
    "sync/packed/Dense/1": StepCounts(**_CALL, worker_ops=328, other_ops=1230, branch_ops=213),
    # 30 of the parameters lie on worker 1 itself.
    "async/packed/Dense/0/spread": StepCounts(
        1, _ROUNDS, 2 * _ROUNDS, 660, 586, worker_ops=474, other_ops=200, fetched=0, branch_ops=104
    ),
}
