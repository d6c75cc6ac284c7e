"""`--grappler`: TensorFlow's graph optimizer rewrites the graph of the steps."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.testing.cluster import InProcessCluster, config_of


@pytest.mark.parametrize("num_ps", [0, 1])
def test_the_graph_of_the_steps_is_rewritten_and_the_losses_stay(monkeypatch, num_ps):
    create, configs = tf.Session.__init__, []

    def watched(session, target="", graph=None, config=None):
        configs.append((graph, config))
        create(session, target, graph, config)

    def run(*, grappler):
        configs.clear()
        (outcome,) = cluster.run(
            config_of("Dense", "Rows", grappler=grappler, batch_size=4, max_steps=6, optimizer="momentum")
        )
        of_steps = max((graph for graph, _ in configs if graph), key=lambda graph: len(graph.get_operations()))
        options = [config.graph_options.rewrite_options for graph, config in configs if graph is of_steps]
        return outcome.losses, {option.disable_meta_optimizer for option in options}

    monkeypatch.setattr(tf.Session, "__init__", watched)
    with InProcessCluster(num_ps, 1) as cluster:
        losses, is_off = run(grappler=False)
        assert is_off == {True}
        rewritten, is_off = run(grappler=True)
    assert False in is_off
    np.testing.assert_allclose(rewritten, losses, rtol=1e-5)
