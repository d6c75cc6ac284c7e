"""Copies of a worker's own state after its last two pushes."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.graph_parts.after_pushes import AfterPushes
from tests.testing.cluster import config_of
from tests.training.test_graph import crossings

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment


@pytest.mark.parametrize("is_in_place", [False, True])
def test_the_values_after_the_last_two_pushes_are_kept(is_in_place):
    with tf.Graph().as_default(), tf.Session() as session:
        vector = tf.get_variable("vector", [1000], initializer=tf.zeros_initializer(), use_resource=True)
        places = tf.Variable(tf.zeros([0], tf.int64), shape=[None], use_resource=True)
        old = vector.read_value()
        changed = vector.assign_add(tf.ones([1000])) if is_in_place else vector.assign(old + 1)
        longer = places.assign(tf.concat([places.read_value(), [7]], axis=0))
        copies = AfterPushes([vector, places])
        phase = [tf.group(changed, longer), tf.reduce_sum(old)]
        push_op = copies.build(phase)
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(copies.begin_op)
        seen = []
        for ops in ([], [phase, push_op], [phase, push_op], phase, [phase, push_op]):
            session.run(ops)
            values = session.run([copies.before, copies.last, [vector, places]])
            seen.append([(value.mean(), len(held)) for value, held in values])
    assert seen == [
        [(0, 0), (0, 0), (0, 0)],
        [(0, 0), (1, 1), (1, 1)],
        [(1, 1), (2, 2), (2, 2)],
        [(1, 1), (2, 2), (3, 3)],
        [(2, 2), (4, 4), (4, 4)],
    ]


def assemble(update, transforms):
    jobs = {"ps": ("localhost:2000", "localhost:2001"), "worker": ("localhost:3000", "localhost:3001")}
    config = dataclasses.replace(config_of("Dense", "Rows", update=update), gradient_transform=transforms)
    task = ClusterConfig(jobs=jobs, job_name="worker", task_index=1)
    return graph_lib.build(components_lib.load(config, 2), task, config, "run")


@pytest.mark.parametrize(
    ("update", "transforms"), [("async", ("error_feedback", "top_k:ratio=0.1")), ("easgd", ()), ("local_sgd", ())]
)
def test_a_step_sends_no_message_for_the_copies(update, transforms):
    train = assemble(update, transforms)
    for phase, (*results, counts, targets) in zip(train.step.phases, train.fetches, strict=True):
        assert len(counts) == (phase.pushed is not None)
        others = targets[:-1] if counts else targets
        assert [sorted(map(str, way)) for way in crossings(train, [*results, counts, targets])] == [
            sorted(map(str, way)) for way in crossings(train, [*results, others])
        ]


@pytest.mark.parametrize("update", ["async", "sync", "accumulate", "all_reduce"])
def test_without_own_state_of_workers_there_are_no_copies(update):
    train = assemble(update, ())
    assert train.own_variables is None
    assert not any(counts for *_, counts, _ in train.fetches)
    assert not any("after_push" in op.name or "worker_state" in op.name for op in train.graph.get_operations())
