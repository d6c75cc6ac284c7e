"""Several optimizers in one model: each variable follows its own optimizer, in every layout and after a restore."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps_trainer.errors import OptionError
from ps_trainer.store.trace import placeholders, trace
from ps_trainer.training import components
from tests.optimizers import oracle
from tests.testing.cluster import InProcessCluster, config_of
from tests.testing.components import Embedded, global_batches
from tests.testing.repetitions import repetitions

import tensorflow.compat.v1 as tf  # isort: skip - after the cluster's environment

BATCH_SIZE, NUM_STEPS = 6, 4
OPTIMIZERS = ("table=adagrad:learning_rate=0.5", "*/bias=momentum:momentum=0.8")
FIELDS = {
    "batch_size": BATCH_SIZE, "max_steps": NUM_STEPS, "learning_rate": 0.2, "optimizer_for": OPTIMIZERS, "seed": 4,
}  # fmt: skip


def gradients_of(values, batch):
    """Gradients of the mean cross-entropy of `Embedded`."""
    size = len(batch["label"])
    features = np.concatenate([values["table"][batch["ids"]].mean(axis=1), batch["x"]], axis=1)
    logits = features @ values["logits/kernel"] + values["logits/bias"]
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    chances[np.arange(size), batch["label"]] -= 1
    table = np.zeros_like(values["table"])
    of_rows = (chances @ values["logits/kernel"].T)[:, :4] / size
    np.add.at(table, batch["ids"].ravel(), np.repeat(of_rows / 3, 3, axis=0))
    return {"table": table, "logits/kernel": features.T @ chances / size, "logits/bias": chances.mean(axis=0)}


def expected(initial, batches):
    """Variables and slots after training, in NumPy."""
    states = {name: {"w": initial[name]} for name in ("table", "logits/kernel", "logits/bias")}
    states["table"]["accumulator"] = np.full_like(initial["table"], 0.1)
    states["logits/bias"]["momentum"] = np.zeros_like(initial["logits/bias"])
    for number, batch in enumerate(batches, start=1):
        gradients = gradients_of({name: state["w"] for name, state in states.items()}, batch)
        states["table"] = oracle.adagrad(states["table"], gradients["table"], number, 0.5)
        states["logits/kernel"] = oracle.sgd(states["logits/kernel"], gradients["logits/kernel"], number, 0.2)
        states["logits/bias"] = oracle.momentum(states["logits/bias"], gradients["logits/bias"], number, 0.2, mu=0.8)
    return {name: state["w"] for name, state in states.items()} | {
        "table/Adagrad": states["table"]["accumulator"],
        "logits/bias/Momentum": states["logits/bias"]["momentum"],
    }


def assert_trained(outcome, batches):
    spec = {name: tf.TensorSpec(array.shape, array.dtype) for name, array in batches[0].items()}
    traced = trace(lambda: Embedded().build(placeholders(spec), training=True), FIELDS["seed"])
    wanted = expected({name: value.astype(np.float64) for name, value in traced.initial_values().items()}, batches)
    assert set(outcome.worker.final_values) == {*wanted, "global_step"}
    for name, value in wanted.items():
        np.testing.assert_allclose(outcome.worker.final_values[name], value, rtol=0, atol=1e-5, err_msg=name)


# The checkpoint below comes from packed parameters.
@pytest.mark.parametrize(
    ("layout", "num_ps", "num_workers", "update"),
    repetitions([("per_variable", 2, 1, "async"), ("packed", 2, 1, "async"), ("packed", 1, 2, "sync")]),
)
def test_each_variable_follows_its_own_optimizer(layout, num_ps, num_workers, update):
    with InProcessCluster(num_ps, num_workers) as cluster:
        config = config_of("Embedded", "Rows", layout=layout, update=update, **FIELDS)
        outcome = cluster.run(config)[0]
    assert_trained(outcome, global_batches(BATCH_SIZE, NUM_STEPS, num_workers))


def test_a_checkpoint_restores_all_slots_into_another_layout(tmp_path):
    batches = global_batches(BATCH_SIZE, 2 * NUM_STEPS)
    config = config_of("Embedded", "Rows", logdir=str(tmp_path), **FIELDS)
    with InProcessCluster(1, 1) as cluster:
        (first,) = cluster.run(config)
        again = dataclasses.replace(config, layout="per_variable", max_steps=2 * NUM_STEPS)
        (second,) = cluster.run(again)
    assert_trained(first, batches[:NUM_STEPS])
    assert_trained(second, batches)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"update": "downpour"}, "--optimizer_for table=adagrad: --update=downpour moves its replica by SGD"),
        ({"update": "easgd"}, "--optimizer_for table=adagrad: --update=easgd applies no gradients on the ps"),
        ({"gradient_transform": ("dgc",)}, "--optimizer=momentum adds its own"),
        ({"optimizer_for": ("tabel=sgd",)}, "no trainable variable is left that matches 'tabel'; the model has table"),
        ({"update": "hogwild", "optimizer_for": ("table=adam",)}, "--optimizer=adam changes whole tables"),
    ],
)
def test_contradicting_assignments_are_rejected(fields, words):
    config = config_of("Embedded", "Rows", **FIELDS | fields)
    with pytest.raises(OptionError) as raised:
        components.load(config, 2)
    assert words in str(raised.value)
