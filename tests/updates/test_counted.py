"""What a step of the rules that count every gradient on the ps tasks sends, and where its results come from."""

from __future__ import annotations

import pytest

from tests.testing.cluster import config_of
from tests.training.test_graph import crossings
from tests.updates.assembled import assemble

RULES = {
    "async": ("async", ()),
    "hogwild": ("hogwild", ()),
    "staleness_aware": ("staleness_aware", ()),
    "drop_stale": ("drop_stale", ()),
    "dc_asgd": ("dc_asgd", ()),
    "dc_asgd adaptive": ("dc_asgd", ("adaptive=true",)),
    "accumulate": ("accumulate", ("steps=3",)),
}


@pytest.mark.parametrize("optimizer", ["sgd", "lazy_adam"])
@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("case", RULES)
def test_a_push_sends_the_gradient_and_gets_counts_and_parameters_back(case, num_ps, optimizer):
    update, options = RULES[case]
    config = config_of(
        "Dense", "Rows", layout="packed", update=update, update_option=options, optimizer=optimizer,
        schedule="exponential",
    )  # fmt: skip
    train = assemble(config, num_ps=num_ps)
    to_ps, to_worker = crossings(train, train.fetches[0])
    pieces = [(ps, "data", (piece.variable.shape.num_elements(),)) for ps, piece in enumerate(train.store.pieces)]
    assert len(pieces) == num_ps
    assert sorted(to_ps) == pieces
    counts = [(0, "data", (2,)), *((ps, "data", (1,)) for ps in range(1, num_ps))]
    assert sorted(to_worker) == sorted([*counts, *pieces])


def test_a_step_that_accumulates_sends_nothing():
    train = assemble(config_of("Dense", "Rows", update="accumulate", update_option=("steps=3",)), num_ps=2)
    assert crossings(train, train.fetches[1]) == ([], [])
