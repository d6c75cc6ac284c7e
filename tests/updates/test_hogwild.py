"""`hogwild`: async's arithmetic when nothing collides, and no lock on a row."""

from __future__ import annotations

import pytest

from ps_trainer import component_tables
from ps_trainer.errors import OptionError
from ps_trainer.updates.base import RunPlan
from ps_trainer.updates.hogwild import Hogwild
from tests.testing.cluster import config_of
from tests.testing.repetitions import repetitions
from tests.updates import scripted
from tests.updates.assembled import assemble

SCRIPT = [0, 1, 1, 0, 0, 1]
STALENESS = [[0, 2, 0], [1, 0, 2]]
NUM_WORKERS = 2


# The conformance suite has packed parameters.
@pytest.mark.parametrize("layout", repetitions(["packed", "per_variable"], first=1))
@pytest.mark.parametrize(
    ("model", "optimizer", "learning_rate"),
    repetitions(
        [("dense", "sgd", 0.5), ("dense", "momentum", 0.2), ("sparse", "sgd", 0.5), ("sparse", "adagrad", 0.2)], first=1
    ),
)
def test_gradients_that_do_not_collide_are_applied_as_they_arrive(cluster, model, optimizer, learning_rate, layout):
    numpy_optimizer = scripted.Optimizer(optimizer)

    def apply(arrived):
        return numpy_optimizer.apply(arrived.params, arrived.gradient, arrived.clock, learning_rate)

    played = scripted.play(
        cluster, SCRIPT, model, update="hogwild", optimizer=optimizer, learning_rate=learning_rate, layout=layout
    )
    wanted = scripted.replay(SCRIPT, model, apply)
    assert wanted.staleness == [[[s] for s in worker] for worker in STALENESS]
    scripted.assert_same(played, wanted, num_ps=cluster.num_ps)


SPARSE_UPDATES = {
    "sgd": {"ResourceScatterAdd": None},  # this kernel has no option for a lock: it takes the shared one
    "momentum": {"ResourceSparseApplyMomentum": False},
    "adagrad": {"ResourceSparseApplyAdagrad": False},
    "rmsprop": {"ResourceSparseApplyRMSProp": False},
    "ftrl": {"ResourceSparseApplyFtrl": False},
    "lazy_adam": {"ResourceScatterNdUpdate": False, "ResourceScatterNdSub": False},
}


@pytest.mark.parametrize("optimizer", SPARSE_UPDATES)
def test_no_update_of_rows_asks_for_a_lock(optimizer):
    locked = row_updates(assemble(config_of("Embedded", "Rows", update="async", optimizer=optimizer, batch_size=4)))
    assert set(locked.values()) == {True}
    free = row_updates(assemble(config_of("Embedded", "Rows", update="hogwild", optimizer=optimizer, batch_size=4)))
    assert free == SPARSE_UPDATES[optimizer]


def row_updates(train):
    """Type -> use_locking of the ops that update rows of tables; None for a type without that attribute."""
    found = {}
    for op in train.graph.get_operations():
        is_of_rows = op.type.startswith(("ResourceScatter", "ResourceSparseApply"))
        if is_of_rows and not op.inputs[0].op.name.startswith("data/"):  # the counts of read data are not a table
            found[op.type] = op.get_attr("use_locking") if "use_locking" in op.node_def.attr else None
    return found


def test_every_optimizer_is_either_lock_free_or_rejected():
    optimizers = component_tables.OPTIMIZERS
    refused = {name for name in optimizers.names() if optimizers.create(name).walks_whole_table}
    assert set(SPARSE_UPDATES) | refused == set(optimizers.names())
    assert refused == {"adam"}


def test_an_optimizer_that_changes_whole_tables_is_rejected():
    plan = RunPlan(2, optimizer=component_tables.OPTIMIZERS.create("adam"), optimizer_name="adam")
    with pytest.raises(OptionError, match="--update=hogwild .* --optimizer=adam .*; use --optimizer=lazy_adam"):
        Hogwild().check(plan)
    lazy = component_tables.OPTIMIZERS.create("lazy_adam")
    Hogwild().check(plan._replace(optimizer=lazy, optimizer_name="lazy_adam"))
