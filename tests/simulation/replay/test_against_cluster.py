"""A schedule gives the same parameters in virtual time and on a real cluster with scripted arrivals."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.simulation.replay import on_cluster
from tests.testing.cluster import InProcessCluster
from tests.testing.repetitions import representatives

NUM_WORKERS = 3
NUM_UPDATES = 8
# (update, options, model, optimizer, learning rate)
CASES = [
    ("async", (), "dense", "momentum", 0.2),
    ("async", (), "sparse", "sgd", 0.5),
    ("hogwild", (), "sparse", "momentum", 0.2),
    ("drop_stale", ("staleness=1",), "dense", "momentum", 0.2),
    ("drop_stale", ("staleness=1",), "sparse", "sgd", 0.5),
    ("staleness_aware", (), "dense", "adam", 0.05),
    ("staleness_aware", (), "sparse", "momentum", 0.2),
    ("dc_asgd", ("lambda=20",), "dense", "sgd", 0.5),
    ("dc_asgd", ("adaptive=true",), "dense", "momentum", 0.2),
    ("ssp", ("staleness=0",), "dense", "momentum", 0.2),
    ("ssp", ("staleness=1",), "sparse", "sgd", 0.5),
    ("sync", ("replicas_to_aggregate=2",), "dense", "momentum", 0.2),
    ("sync", ("replicas_to_aggregate=2",), "sparse", "sgd", 0.5),
    ("softsync", ("splits=2",), "dense", "momentum", 0.2),
    ("softsync", ("splits=2",), "sparse", "sgd", 0.5),
    ("backup", ("backup_workers=1",), "dense", "momentum", 0.2),
    ("backup", ("backup_workers=1",), "sparse", "adagrad", 0.2),
    ("k_sync", ("k=2",), "sparse", "momentum", 0.2),
    ("k_async", ("k=2",), "dense", "adam", 0.05),
    ("k_batch_sync", ("k=2",), "dense", "sgd", 0.5),
    ("k_batch_sync", ("k=2",), "sparse", "momentum", 0.2),
    ("k_batch_async", ("k=2", "grow_every=3"), "sparse", "sgd", 0.5),
    ("accumulate", ("steps=2",), "sparse", "momentum", 0.2),
    ("accumulate", ("steps=3", "average=true"), "dense", "adam", 0.05),
    ("downpour", ("n_push=2", "n_fetch=3"), "dense", "adagrad", 0.2),
    ("downpour", ("n_push=3", "n_fetch=2"), "dense", "sgd", 0.2),
    ("downpour", (), "dense", "momentum", 0.2),
    ("easgd", ("period=2",), "dense", "sgd", 0.2),
    ("easgd", ("period=3", "alpha=0.3", "momentum=0.9"), "dense", "sgd", 0.2),
]
# Gradients that arrive one by one after waits, in groups, and an exchange of replicas.
# `test_against_oracles.py` compares the other rules with NumPy forms, which `tests/updates` compare with a cluster.
COVERING = [
    ("ssp", ("staleness=0",), "dense", "momentum", 0.2),
    ("k_sync", ("k=2",), "sparse", "momentum", 0.2),
    ("easgd", ("period=2",), "dense", "sgd", 0.2),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    """One ps task: `tests/updates` shows that several agree."""
    with InProcessCluster(1, NUM_WORKERS) as cluster:
        yield cluster


@pytest.mark.parametrize("case", representatives(CASES, COVERING), ids=lambda case: "-".join(map(str, case)))
def test_arrivals_in_the_order_of_the_schedule(cluster, case):
    update, options, model, optimizer, learning_rate = case
    schedule = on_cluster.schedule_of(update, options, NUM_WORKERS, NUM_UPDATES)
    assert len(set(schedule.steps.worker.tolist())) == NUM_WORKERS
    fields = {"optimizer": optimizer, "learning_rate": learning_rate}
    training = on_cluster.training_of(on_cluster.MODELS[model](), **fields)
    ours = on_cluster.replayed(training, schedule, update, options)
    theirs = on_cluster.played(cluster, schedule, model, update, options, **fields)
    assert [values["global_step"] for values in ours] == [values["global_step"] for values in theirs]
    assert ours[-1]["global_step"] == NUM_UPDATES
    for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        for name, value in our.items():
            np.testing.assert_allclose(value, their[name], rtol=0, atol=1e-6, err_msg=f"{name} after step {index}")
