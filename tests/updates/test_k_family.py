"""The four rules of Dutta et al. against their equations in scripted order, and the options that they reject."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.errors import OptionError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.k_family import KAsync, KBatchAsync, KBatchSync, KSync, k_at
from ps_trainer.updates.options import KBatchOptions
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.gradient_groups import check_script
from tests.testing.repetitions import repetitions, representatives

DEFINITIONS = {
    "k_sync": {"is_fresh_only": True, "waits": True},
    "k_async": {"is_fresh_only": False, "waits": True},
    "k_batch_sync": {"is_fresh_only": True, "waits": False},
    "k_batch_async": {"is_fresh_only": False, "waits": False},
}
# (script, staleness of each worker's gradients), k = 2. Under the waiting rules the script names a worker again only
# after its update; under the others worker 0 gives two gradients to the first update.
SCRIPTS = {
    "k_sync": ([0, 1, 0, 2, 2, 1, 0, 2], [[0, 0, 0], [0, -1], [-1, 0, 0]]),
    "k_async": ([0, 1, 0, 2, 1, 2, 2, 0], [[0, 0, 1], [0, 1], [1, 0, 0]]),
    "k_batch_sync": ([0, 0, 1, 1, 2, 0, 2, 1, 2, 0, 1, 0], [[0, 0, 0, 0, 0], [-1, 0, -1, -1], [-1, -1, 0]]),
    "k_batch_async": ([0, 0, 1, 1, 2, 0, 2, 1], [[0, 0, 1], [1, 0, 1], [2, 1]]),
}
NUM_WORKERS = 3


@pytest.fixture(scope="module")
def one_ps():
    with InProcessCluster(1, NUM_WORKERS) as cluster:
        yield cluster


@pytest.mark.parametrize("rule", [KSync, KAsync, KBatchSync, KBatchAsync])
def test_only_a_rule_whose_steps_wait_says_so(rule):
    assert rule.waits_for_others == DEFINITIONS[rule.name]["waits"]


def policy_of(monkeypatch, update, options):
    """The policy of a rule in a run of three workers, with the numbers that it requires at some clocks."""
    rule, policies = component_tables.UPDATES.create(update, options), []
    of_rule = sys.modules[type(rule).__module__]
    monkeypatch.setattr(of_rule, "build_step", lambda store, gradients, context, policy, name: policies.append(policy))
    rule.build(None, [], types.SimpleNamespace(num_workers=NUM_WORKERS))
    (policy,) = policies
    with tf.Graph().as_default():
        required = [int(tf.get_static_value(policy.required(tf.constant(clock, tf.int64)))) for clock in (0, 1, 9)]
    return policy._replace(required=required)


# The policy is all in which these rules differ: what one of them does on a cluster, the other does too.
@pytest.mark.parametrize(
    ("update", "options", "other", "others_options"),
    [
        ("k_sync", ["k=2"], "backup", ["backup_workers=1"]),
        ("sync", ["replicas_to_aggregate=2"], "backup", ["backup_workers=1"]),
        ("sync", [], "backup", ["backup_workers=0"]),
        ("k_batch_async", ["k=3"], "softsync", ["splits=1"]),
        ("k_batch_async", ["k=2"], "softsync", ["splits=2"]),  # 3 / 2 is rounded up
        ("k_batch_async", ["k=1"], "softsync", ["splits=3"]),
    ],
)
def test_a_rule_is_another_one_under_another_name(monkeypatch, update, options, other, others_options):
    assert policy_of(monkeypatch, update, options) == policy_of(monkeypatch, other, others_options)


# `k_sync` is `backup`, whose script is in `test_backup.py`. A growing k of `k_batch_async` has a script below.
@pytest.mark.parametrize("update", representatives(DEFINITIONS, ["k_async", "k_batch_sync"]))
@pytest.mark.parametrize(
    ("model", "layout"), repetitions([("dense", "per_variable"), ("dense", "packed"), ("sparse", "packed")])
)
def test_updates_are_averages_of_k_gradients(cluster, update, model, layout):
    script, staleness = SCRIPTS[update]
    wanted = check_script(
        cluster, model, script, required=lambda clock: 2, update=update, update_option=("k=2",), layout=layout,
        **DEFINITIONS[update],
    )  # fmt: skip
    assert wanted.staleness == staleness


def test_k_grows_with_the_updates_up_to_its_limit(one_ps):
    options = ("k=1", "grow_every=2", "grow_by=1", "max_k=3")
    script = [0, 1, 0, 0, 1, 2, 0, 1, 0, 2]  # updates of 1, 1, 2, 2 and 3 gradients, and one more gradient
    check_script(
        one_ps, "dense", script, required=lambda clock: min(1 + clock // 2, 3), update="k_batch_async",
        update_option=options, **DEFINITIONS["k_batch_async"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"k": 2}, [2] * 8),
        ({"k": 1, "grow_every": 2}, [1, 1, 2, 2, 3, 3, 4, 4]),
        ({"k": 1, "grow_every": 3, "grow_by": 4}, [1, 1, 1, 4, 4, 4, 4, 4]),  # 4 workers
        ({"k": 6, "grow_every": 1}, [6] * 8),
        ({"k": 1, "grow_every": 1, "grow_by": 2, "max_k": 6}, [1, 3, 5, 6, 6, 6, 6, 6]),
    ],
)
def test_schedule_of_k(options, wanted):
    with tf.Graph().as_default(), tf.Session() as session:
        clock = tf.placeholder(tf.int64, [])
        k = k_at(KBatchOptions(**options), clock, num_workers=4)
        assert [session.run(k, {clock: step}) for step in range(8)] == wanted


@pytest.mark.parametrize(("rule", "batch_form"), [(KSync, "k_batch_sync"), (KAsync, "k_batch_async")])
@pytest.mark.parametrize("options", [{"k": 4}, {"k": 2, "grow_every": 5, "max_k": 4}])
def test_more_gradients_than_workers_are_rejected_with_the_batch_form(rule, batch_form, options):
    with pytest.raises(OptionError, match=f"=4 exceeds num_workers=3.*--update={batch_form}"):
        rule(rule.Options(**options)).check(RunPlan(num_workers=3))


@pytest.mark.parametrize("rule", [KBatchSync, KBatchAsync])
def test_the_batch_forms_take_more_gradients_than_workers(rule):
    rule(rule.Options(k=4)).check(RunPlan(num_workers=3))


@pytest.mark.parametrize(
    "options",
    [
        {"k": 3, "grow_every": 1, "max_k": 2},
        {"max_k": 3},
    ],
)
def test_wrong_options_are_rejected(options):
    with pytest.raises(OptionError):
        KBatchOptions(**options)


# The conformance suite counts the same gradients by their credits, for each of the four rules.
@pytest.mark.parametrize("update", repetitions(list(DEFINITIONS), every=4, first=2))
def test_free_workers_end_at_max_steps(one_ps, update):
    outcomes = one_ps.run(config_of("Dense", "Rows", update=update, update_option=("k=2",), batch_size=4, max_steps=40))
    assert outcomes[0].worker.final_values["global_step"] == 40
    used = sum(worker.gradients_used for worker in outcomes[0].worker.summary.workers.values())
    assert used == 40 * 2
    if update in ("k_sync", "k_batch_sync"):
        # Each on its own: the array of a worker that joined after the last step has no second dimension.
        staleness = {value for outcome in outcomes for value in np.ravel(outcome.progress.staleness_values)}
        assert {0} <= staleness <= {0, -1}


# In the conformance suite workers of `backup` run out of data, which has the `GroupPolicy` of `k_sync`.
@pytest.mark.parametrize("update", repetitions(["k_sync", "k_async"], first=1))
def test_workers_that_run_out_of_data_block_no_other(one_ps, update):
    config = config_of(
        "Dense", "Rows", ["lengths=10,5,20"], update=update, update_option=("k=3",), batch_size=4, max_steps=None,
        num_epochs=100,
    )  # fmt: skip
    outcomes = one_ps.run(config)
    assert [len(outcome.losses) for outcome in outcomes] == [10, 5, 20]
    assert outcomes[0].worker.final_values["global_step"] == 20
