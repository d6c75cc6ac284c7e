"""`drop_stale` against its equation: the rule drops the same gradients on all ps tasks."""

from __future__ import annotations

import pytest

from tests.testing.cluster import config_of
from tests.testing.repetitions import representatives
from tests.updates import scripted

SCRIPT = [0, 1, 1, 0, 0, 1, 0, 0, 1, 1]
# Computed by hand for workers 0 and 1. A dropped gradient changes neither the clock nor a later staleness.
STALENESS = {
    0: [[0, -1, 0, 0, 0], [-1, 0, -1, -1, 0]],
    1: [[0, -1, 0, 1, 0], [1, 0, 1, -1, 0]],
    5: [[0, 2, 0, 1, 0], [1, 0, 2, 2, 0]],
}
LEARNING_RATE = 0.5
NUM_WORKERS = 2


SETTINGS = [
    *(("dense", "sgd", 0.5, layout, bound) for layout in ("packed", "per_variable") for bound in STALENESS),
    *(("dense", "adam", 0.05, "packed", bound) for bound in (0, 1)),
    *(("sparse", "adagrad", 0.2, layout, 1) for layout in ("packed", "per_variable")),
]


# Both of the bounds that reject gradients, with an optimizer that counts its steps and with a table. The conformance
# suite has the other layout. A bound that rejects none is `async`.
@pytest.mark.parametrize(
    ("model", "optimizer", "learning_rate", "layout", "bound"),
    representatives(SETTINGS, [("dense", "adam", 0.05, "packed", 0), ("sparse", "adagrad", 0.2, "packed", 1)]),
)
def test_gradients_older_than_the_bound_change_nothing(cluster, model, optimizer, learning_rate, layout, bound):
    numpy_optimizer = scripted.Optimizer(optimizer)

    def apply(arrived):
        if arrived.staleness > bound:
            return None
        return numpy_optimizer.apply(arrived.params, arrived.gradient, arrived.clock, learning_rate)

    played = scripted.play(
        cluster, SCRIPT, model, update="drop_stale", update_option=(f"staleness={bound}",), optimizer=optimizer,
        learning_rate=learning_rate, layout=layout,
    )  # fmt: skip
    wanted = scripted.replay(SCRIPT, model, apply)
    assert wanted.staleness == [[[s] for s in worker] for worker in STALENESS[bound]]
    scripted.assert_same(played, wanted, num_ps=cluster.num_ps)


def test_free_workers_reach_max_steps_and_count_dropped_gradients(cluster):
    config = config_of("Dense", "Rows", update="drop_stale", update_option=("staleness=0",), batch_size=4, max_steps=80)
    outcomes = cluster.run(config)
    vectors = [vector for outcome in outcomes for vector in outcome.progress.staleness_values]
    # Ps 0 decides, so the bound holds exactly there; the other ps tasks drop the same gradients.
    assert {int(vector[0]) for vector in vectors} <= {0, -1}
    for vector in vectors:
        assert set(vector < 0) == {vector[0] < 0}
    dropped = sum(vector[0] < 0 for vector in vectors)
    final_step = outcomes[0].worker.final_values["global_step"]
    assert len(vectors) - dropped == final_step
    assert 80 <= final_step <= 81  # the other worker's step in flight
    counts = outcomes[0].worker.summary.workers.values()
    assert sum(worker.gradients_dropped for worker in counts) == dropped
