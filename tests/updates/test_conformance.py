"""Every registered update rule keeps the same promises: it trains, ends, counts, resumes and leaves nothing behind.

The checks of a rule share a few runs (`tests/testing/conformance.py`). The test ids read as a table:
check[rule-layout].
"""

from __future__ import annotations

import functools
import shutil

import numpy as np
import pytest

from ps_trainer import component_tables
from ps_trainer.errors import OptionError
from tests.testing import components
from tests.testing.conformance import (
    ALONE,
    LEARNING_RATE,
    LENGTHS,
    SEED,
    THREE,
    THREE_ON_ONE,
    UNEVEN,
    WHOLE,
    Runs,
    all_examples,
    even,
    job,
    limited,
    lone,
    lone_batches,
    loss_of,
    model_of_credits,
    model_of_uneven,
    optimizer_of,
    uneven,
)
from tests.testing.repetitions import IS_FULL, repetitions, representatives
from tests.testing.rule_promises import PROMISES
from tests.testing.script import initial_values

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

from ps_trainer.training import components as components_lib

LAYOUTS = ("packed", "per_variable")
COMPRESSION = ("clip_norm:norm=1.0", "error_feedback", "top_k:ratio=0.25")
HALF = 7  # not after the last batch of an epoch

# `sync` and `k_sync` have the `GroupPolicy` of `backup`, and `k_batch_async` has `softsync`'s, as `test_k_family.py`
# shows. It compares `k_batch_sync` and `k_async` with NumPy, and lets their workers reach the end of a run.
DISTINCT = representatives(PROMISES, [rule for rule in PROMISES if rule != "sync" and not rule.startswith("k_")])
# Rules that collect gradients share one push (`gradient_collector.py`), which `backup` shows. Rules that apply each
# gradient get it from the transforms as `async` does. `test_local_sgd.py` and `test_model_averaging.py` have their own
# compressed and clipped runs.
COMPRESSED = representatives(PROMISES, ["async", "backup", "easgd", "hybrid"])
# Separate tests check the updates of averaging rules after the end of a worker's data: `test_averages.py`,
# `test_all_reduce.py`, `test_hybrid.py`. `async` is in `test_rules.py`; the others apply each gradient as it does.
CREDITED_UNEVEN = representatives(PROMISES, ["downpour", "ssp", "accumulate"])
# Rules that apply each gradient share their end at `max_steps` with `async`, and rules that collect gradients share it
# with `backup` and `softsync`. The rounds of `local_sgd` are those of `model_averaging`.
LIMITED = representatives(
    PROMISES,
    ["async", "downpour", "sync_replicas", "backup", "softsync", "ssp", "easgd"]
    + ["model_averaging", "all_reduce", "hybrid", "accumulate"],
)
# In the other rules each ps task forms its own groups, so at `max_steps` a ps task may be an update behind;
# `test_averages.py` checks their updates on each ps task.
SAME_GROUPS = [rule for rule in LIMITED if rule not in ("softsync", "k_async", "k_batch_async")]
# The other rules save what `async` or `backup` saves, or have such a run in their own files: `downpour`, `dc_asgd`,
# `all_reduce` and `hybrid`. `model_averaging` saves the replica of `local_sgd`.
RESUMED = representatives(PROMISES, ["async", "backup", "ssp", "easgd", "local_sgd", "accumulate"])

rules = pytest.mark.parametrize("rule", PROMISES)
# Each rule has one of the layouts, in turn; in a full run it has both.
LAYOUT_OF_RULES = [
    pytest.param(rule, layout, id=f"{rule}-{layout}")
    for number, rule in enumerate(DISTINCT)
    for layout in repetitions(LAYOUTS, first=number % 2)
]
rules_and_layouts = pytest.mark.parametrize(("rule", "layout"), LAYOUT_OF_RULES)
resumed_rules_and_layouts = pytest.mark.parametrize(
    ("rule", "layout"), [case for case in LAYOUT_OF_RULES if case.values[0] in RESUMED]
)


@pytest.fixture(scope="module")
def runs():
    runs = Runs()
    yield runs
    runs.close()


@pytest.fixture(scope="module")
def halves(runs, tmp_path_factory):
    """(rule, layout) -> a run that ends at half of the steps, and the run that resumes from its checkpoint."""

    @functools.cache
    def run(rule, layout):
        logdir = str(tmp_path_factory.mktemp(f"{rule}-{layout}"))
        return [runs.run(ALONE, lone(rule, layout, max_steps=steps, logdir=logdir)) for steps in (HALF, WHOLE)]

    return run


def test_every_registered_rule_has_an_entry_in_the_table():
    assert sorted(PROMISES) == sorted(component_tables.UPDATES.names())


@rules_and_layouts
def test_trains(runs, rule, layout):
    assert_learned(runs.result(UNEVEN[layout], uneven(rule, layout)), model_of_uneven(rule), share=0.95)
    if IS_FULL and layout == "packed":
        assert_learned(runs.result(THREE, even(rule, layout)), PROMISES[rule].model)


@pytest.mark.parametrize("rule", LIMITED)
def test_ends_at_max_steps(runs, rule):
    result = runs.result(THREE_ON_ONE, limited(rule))
    assert result.codes == [0, 0, 0]
    assert PROMISES[rule].max_steps <= result.global_step <= PROMISES[rule].max_steps + PROMISES[rule].overshoot
    assert result.left_threads == []


@rules_and_layouts
def test_ends_when_each_worker_has_used_up_its_data(runs, rule, layout):
    result = runs.result(UNEVEN[layout], uneven(rule, layout))
    assert result.codes == [0, 0, 0]
    assert tuple(result.steps) == LENGTHS[layout]
    assert result.left_threads == []


@rules_and_layouts
def test_trains_embedding_tables_or_names_a_rule_that_does(runs, rule, layout):
    config = job(rule, layout, THREE, "Embedded")
    if PROMISES[rule].holds_tables:
        result = runs.result(UNEVEN[layout], uneven(rule, layout))
        last = np.argmax(LENGTHS[layout])
        assert_learned(result, "Embedded", share=0.95)
        moved = np.any(result.values["table"] != values_before("Embedded")["table"], axis=1)
        assert np.all(moved[all_examples()["ids"][last :: THREE[1]]])
    else:
        assert_refused(config, r"embedding tables.*use --update=")
    if PROMISES[rule].model == "Embedded":
        assert_refused(job(rule, layout, THREE, "Dense"), r"use --update=")


@rules_and_layouts
def test_counts_global_step_as_documented(runs, rule, layout):
    for result in both_ends(runs, rule, layout):
        least, most = PROMISES[rule].counts(result.steps, result.dropped)
        assert least <= result.global_step <= most, f"steps {result.steps}, dropped {result.dropped}"


@rules_and_layouts
def test_no_gradient_is_left_out_unless_documented(runs, rule, layout):
    for result in both_ends(runs, rule, layout):
        assert PROMISES[rule].drops or result.dropped == [0, 0, 0]


@pytest.mark.parametrize("rule", SAME_GROUPS)
def test_parameters_move_by_the_documented_gradients_only(runs, rule):
    """With the model `Credits` the parameters tell which gradients moved them, and with which weight."""
    promises = PROMISES[rule]
    result = runs.result(THREE_ON_ONE, limited(rule))
    for credits in credits_of(result):
        assert_whole_gradients(credits, rule, result)
        if promises.share is not None:
            used = np.subtract(result.steps, result.dropped)
            if promises.steps_per_update == 1:
                assert result.used in (used.tolist(), [None] * 3)
            np.testing.assert_allclose(credits, promises.share * used, rtol=0, atol=1e-3)


@pytest.mark.parametrize("rule", CREDITED_UNEVEN)
@pytest.mark.parametrize("layout", repetitions(LAYOUTS, first=1))
def test_parameters_move_by_the_gradients_of_all_workers_until_their_data_end(runs, rule, layout):
    result = runs.result(THREE_ON_ONE, uneven(rule, layout, model_of_credits(rule)))
    for credits in credits_of(result):
        assert_whole_gradients(credits, rule, result)
        if not PROMISES[rule].drops:
            assert all(credits > 0), credits


@rules_and_layouts
def test_one_worker_is_plain_sgd(runs, rule, layout):
    promises = PROMISES[rule]
    if promises.plain is None:
        pytest.skip("by its definition one worker differs from plain SGD")
    result = runs.result(ALONE, lone(rule, layout, update_option=promises.plain))
    losses, values = plain(promises.model, optimizer_of(rule, layout), WHOLE * promises.steps_per_update)
    np.testing.assert_allclose(result.losses[0], losses, rtol=0, atol=1e-6)
    trained = set(result.values) - {"global_step"}  # the ps tasks hold slots only in some rules
    assert {name for name in values if "Momentum" not in name} <= trained <= set(values)
    for name in trained:
        np.testing.assert_allclose(result.values[name], values[name], rtol=0, atol=1e-6, err_msg=name)


@resumed_rules_and_layouts
def test_a_restarted_run_equals_an_uninterrupted_one(runs, halves, rule, layout):
    assert_continued(runs.result(ALONE, lone(rule, layout)), halves(rule, layout))


@pytest.mark.parametrize("rule", repetitions(["async", "sync"]))  # the residual lies on the worker in any rule
def test_a_restarted_run_keeps_the_residual_of_error_feedback(runs, rule, tmp_path):
    kept, lost = tmp_path / "kept", tmp_path / "lost"

    def config(max_steps, **fields):
        return lone(rule, "packed", gradient_transform=COMPRESSION, max_steps=max_steps, **fields)

    whole = runs.result(ALONE, config(WHOLE))
    first = runs.run(ALONE, config(HALF, logdir=str(kept)))
    shutil.copytree(kept, lost)
    (lost / "checkpoints" / f"worker-0-{HALF}.npz").unlink()
    assert_continued(whole, [first, runs.run(ALONE, config(WHOLE, logdir=str(kept)))])
    without = runs.run(ALONE, config(WHOLE, logdir=str(lost)))
    assert without.losses[0][1] != whole.losses[0][HALF + 1]


@resumed_rules_and_layouts
def test_a_second_run_on_the_same_ps_tasks_equals_the_first(runs, halves, rule, layout):
    """The runs are equal bit for bit, as far as the rule is deterministic."""
    (first,) = runs.result(ALONE, lone(rule, layout)).losses
    (second,) = halves(rule, layout)[0].losses
    assert second == first[: len(second)]


@rules_and_layouts
def test_every_resource_has_a_device_and_the_runs_container(runs, rule, layout):
    several = UNEVEN[layout]
    for num_ps, result in (
        (1, runs.result(ALONE, lone(rule, layout))),
        (several[0], runs.result(several, uneven(rule, layout))),
    ):
        assert len(result.graphs) == len(result.codes)
        for graph in result.graphs:
            tasks = {task_of(graph.worker_device)} | {("ps", ps) for ps in range(num_ps)}
            strays = [p for p in graph.places if task_of(p.device) not in tasks or p.container != graph.run_id]
            assert strays == []
            assert {task_of(place.device) for place in graph.places} == tasks


@pytest.mark.parametrize("rule", COMPRESSED)
def test_trains_with_compressed_or_at_least_clipped_gradients(runs, rule):
    transforms = COMPRESSION if PROMISES[rule].takes_lossy else COMPRESSION[:1]
    config = even(rule, "packed", gradient_transform=transforms)
    assert_learned(runs.result(THREE_ON_ONE, config), PROMISES[rule].model)


@rules
def test_takes_compressed_gradients_or_says_why_not(rule):
    config = job(rule, "packed", THREE, gradient_transform=COMPRESSION)
    if PROMISES[rule].takes_lossy:
        components_lib.load(config, 3)
    else:
        assert_refused(config, r"--gradient_transform.*")


@rules
def test_takes_momentum_or_names_a_rule_that_does(rule):
    config = job(rule, "packed", THREE, optimizer="momentum")
    if PROMISES[rule].takes_momentum:
        components_lib.load(config, 3)
    else:
        assert_refused(config, r"--optimizer=momentum")


def both_ends(runs, rule, layout):
    """The runs that end at their `max_steps`, if the rule has such a run, and when each worker has used up its data."""
    ends_at_max_steps = [runs.result(THREE_ON_ONE, limited(rule))] if rule in LIMITED else []
    return [*ends_at_max_steps, runs.result(UNEVEN[layout], uneven(rule, layout))]


def credits_of(result):
    """For each variable of the model `Credits`: the number of whole gradients by which each worker has moved it."""
    assert set(result.values) - {"rows"} == {"left", "right", "global_step"}
    moved = [-value.ravel() / LEARNING_RATE for name, value in result.values.items() if name != "global_step"]
    assert all(np.all(value[THREE[1] :] == 0) for value in moved)
    return [value[: THREE[1]] for value in moved]


def assert_whole_gradients(credits, rule, result):
    gradients_per_update = PROMISES[rule].gradients_per_update
    if gradients_per_update is not None:
        assert sum(credits) == pytest.approx(gradients_per_update * result.global_step, abs=1e-3), credits


def task_of(device):
    spec = tf.DeviceSpec.from_string(device)
    return spec.job, spec.task


@functools.cache
def plain(model, optimizer, num_steps):
    create = {
        "sgd": lambda: tf.train.GradientDescentOptimizer(LEARNING_RATE),
        "momentum": lambda: tf.train.MomentumOptimizer(LEARNING_RATE, 0.9),
    }[optimizer]
    return components.plain_loop(getattr(components, model)(), lone_batches(num_steps), create, seed=SEED)


@functools.cache
def values_before(model):
    return initial_values(getattr(components, model)(), SEED)


def loss_after(model, values):
    return loss_of(job("async", "packed", THREE, model), values)


@functools.cache
def loss_before(model):
    return loss_after(model, values_before(model))


def assert_learned(result, model, share=0.9):
    """Asserts that the loss over all examples has fallen to `share` of its first value or lower.

    In an uneven run the last worker makes updates alone, on its third of the examples, so the limit is higher.
    """
    before, after = loss_before(model), loss_after(model, result.values)
    assert after < share * before


def assert_refused(config, message):
    with pytest.raises(OptionError, match=message) as refusal:
        components_lib.load(config, 3)
    assert any(word in str(refusal.value) for word in ("use ", "choose ", "leave "))


def assert_continued(whole, halves):
    assert [half.global_step for half in halves] == [HALF, WHOLE]
    continued = [*halves[0].losses[0], *halves[1].losses[0]]
    np.testing.assert_allclose(continued, whole.losses[0], rtol=0, atol=1e-6)
    assert set(halves[1].values) == set(whole.values)
    for name, value in whole.values.items():
        np.testing.assert_allclose(halves[1].values[name], value, rtol=0, atol=1e-6, err_msg=name)
