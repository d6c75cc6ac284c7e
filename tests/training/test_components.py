"""Embedding tables in the model decide which update rules it goes with."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.errors import OptionError
from tests.testing.cluster import config_of
from tests.testing.components import Embedded

from ps_trainer.training import components, graph  # isort: skip - after the cluster's environment


class CountedModel(Embedded):
    """Counts how often the program builds it."""

    num_builds = 0

    def build(self, batch, training):
        CountedModel.num_builds += 1
        return super().build(batch, training)


def test_the_model_is_traced_once_whatever_asks_for_the_trace():
    config = config_of("Embedded", "Rows", update="hybrid", batch_size=2, optimizer_for=("table=adagrad",))
    config = dataclasses.replace(config, model=f"{__name__}:CountedModel")
    CountedModel.num_builds = 0
    loaded = components.load(config, num_workers=2)
    assert CountedModel.num_builds == 1  # once for the optimizers and the tables together
    first = loaded.trace_model()
    cluster = ClusterConfig(
        jobs={"ps": ("localhost:1",), "worker": ("localhost:2", "localhost:3")}, job_name="worker", task_index=0
    )
    for run_id in ("one", "two"):  # as for a chief that restarts the run in its process
        assert graph.build(loaded, cluster, config, run_id).model_trace is first
    assert CountedModel.num_builds == 3


def test_the_model_is_not_traced_before_the_server_is_there_unless_a_check_needs_it():
    CountedModel.num_builds = 0
    config = config_of("Embedded", "Rows", update="async", batch_size=2)
    components.load(dataclasses.replace(config, model=f"{__name__}:CountedModel"), num_workers=2)
    assert CountedModel.num_builds == 0  # a trace starts TensorFlow's thread pools, with another number of threads


@pytest.mark.parametrize(
    ("model", "update"), [("Dense", "async"), ("Embedded", "async"), ("Embedded", "hybrid"), ("Dense", "all_reduce")]
)
def test_models_with_and_without_tables_accept_the_rules_that_suit_them(model, update):
    components.load(config_of(model, "Rows", update=update, batch_size=2), num_workers=2)


@pytest.mark.parametrize(
    ("model", "update", "message"),
    [
        ("Embedded", "all_reduce", "--update=all_reduce cannot train embedding tables, and model .* has table; use"),
        ("Dense", "hybrid", "--update=hybrid is for models with embedding tables, and model .* has none; use"),
    ],
)
def test_another_rule_is_rejected(model, update, message):
    with pytest.raises(OptionError, match=message):
        components.load(config_of(model, "Rows", update=update, batch_size=2), num_workers=2)
