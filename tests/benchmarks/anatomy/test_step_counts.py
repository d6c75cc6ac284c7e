"""Calls, messages, bytes, ops and fetches of a step on real servers, so that none is added unnoticed."""

from __future__ import annotations

import functools

import pytest

from benchmarks import settings
from benchmarks.anatomy.step_anatomy import StepAnatomy
from tests.benchmarks.anatomy.step_counts import CALL_COUNTS, PHASE_COUNTS, STEP_COUNTS, STEPS_PER_CALL
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.repetitions import representatives

from benchmarks.anatomy.traced_cluster import trace  # isort: skip - after the cluster's environment

NUM_WORKERS = 2
# All examples of a worker: its batches are alike, and so are the bytes of its rows.
BATCH_SIZE = 240 // NUM_WORKERS
assert InProcessCluster  # marks these tests as those of a cluster

# Every second step sends something (as in the settings of `accumulate`), so that ten steps contain five of each kind.
EVERY_SECOND = {
    "downpour": ("n_push=2", "n_fetch=2"),
    "easgd": ("period=2",),
    "local_sgd": ("period=2",),
    "model_averaging": ("period=2",),
}
VARIANTS = {
    "pieces": {"layout_option": ("max_piece_bytes=16384",)},
    "spread": {"layout_option": ("least_share_bytes=1",)},
    "feedback": {"gradient_transform": ("error_feedback", "top_k:ratio=0.5")},
    "16bit": {"pull_dtype": "bfloat16", "gradient_transform": ("cast:dtype=bfloat16",)},
}


@functools.cache
def traced(path: str, steps_per_call: int = 1) -> StepAnatomy:
    """The step of the second worker: the chief's has further calls, by time."""
    rule, layout, model, num_ps, *variants = path.split("/")
    config = config_of(
        model,
        "Rows",
        update=rule,
        update_option=EVERY_SECOND.get(rule, settings.RULES[rule].options),
        layout=layout,
        placement="data_parallel" if int(num_ps) else "colocated",
        batch_size=BATCH_SIZE,
        max_steps=10**9,
        report_secs=10**6,
        steps_per_call=steps_per_call,
        save_checkpoint_secs=10**6,
        **{name: value for variant in variants for name, value in VARIANTS[variant].items()},
    )
    return trace(config, int(num_ps), NUM_WORKERS, worker=1)


# Of each way to push and to collect one; the others are sums of the same parts.
CHOSEN = [
    "async/packed/Dense/1",
    "async/per_variable/Dense/1",
    "async/packed/Embedded/2",
    "sync/packed/Embedded/1",
    "ssp/packed/Dense/1",
    "all_reduce/packed/Dense/1",
    "hybrid/packed/Embedded/1",
    "async/packed/TwiceEmbedded/1",
    "async/packed/Dense/0/spread",
    "async/packed/Dense/1/feedback",
    "async/packed/Dense/1/16bit",
]


@pytest.mark.parametrize("path", representatives(STEP_COUNTS, CHOSEN))
def test_a_step_makes_these_calls_messages_bytes_and_ops(path):
    step = traced(path)
    assert step.counts() == STEP_COUNTS[path], [call.messages for call in step.calls]


# The others are made of the same local steps.
@pytest.mark.parametrize("path", representatives(PHASE_COUNTS, ["easgd/packed/Dense/1"]))
def test_a_local_step_and_an_exchange_make_these_calls_messages_bytes_and_ops(path):
    step = traced(path)
    assert step.phase_counts() == PHASE_COUNTS[path], [call.messages for call in step.calls]


@pytest.mark.parametrize("path", representatives(CALL_COUNTS, ["async/packed/Aligned/1", "async/packed/Embedded/2"]))
def test_a_call_of_several_steps_makes_these_messages_bytes_and_ops(path):
    step = traced(path, STEPS_PER_CALL)
    assert step.steps_per_call == STEPS_PER_CALL
    assert step.counts() == CALL_COUNTS[path], [call.messages for call in step.calls]


def test_a_rule_that_acts_on_the_host_is_counted_in_single_calls():
    """With the default of `--steps_per_call`, as a training makes its steps."""
    step = traced("all_reduce/packed/Dense/1", 0)
    assert step.steps_per_call == 1
    assert step.counts() == STEP_COUNTS["all_reduce/packed/Dense/1"]


def test_every_rule_has_its_counts():
    assert {path.split("/")[0] for path in (*STEP_COUNTS, *PHASE_COUNTS)} == set(settings.RULES)


def test_a_step_asks_each_ps_task_once_to_run_its_part():
    step = traced("async/packed/Embedded/2")
    (call,) = step.calls
    assert call.rpcs("worker-1") == {
        ("worker-1", "RunGraph"): 2,
        ("worker-1", "CleanupGraph"): 2,
        ("worker-1", "RecvTensor"): 2,
        ("ps-0", "RecvTensor"): 1,
        ("ps-1", "RecvTensor"): 1,
    }
