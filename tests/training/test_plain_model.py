"""Values of a checkpoint in a plain graph: few calls of the session, and each value in its variable."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.training import plain_model

VALUES = {f"v{number}": np.full([8], number, np.float32) for number in range(40)}


class CountedSession(tf.Session):
    """A session that notes how many bytes each call feeds."""

    def run(self, fetches, feed_dict=None, **settings):
        self.num_bytes = [*getattr(self, "num_bytes", []), sum(value.nbytes for value in (feed_dict or {}).values())]
        return super().run(fetches, feed_dict, **settings)


@pytest.mark.parametrize(("max_bytes", "num_calls"), [(2**26, 1), (10 * 32, 4), (31, 40)])
def test_values_are_fed_together_up_to_a_limit(monkeypatch, max_bytes, num_calls):
    monkeypatch.setattr(plain_model, "_MAX_FED_BYTES", max_bytes)
    with tf.Graph().as_default() as graph, plain_model.plain_scope():
        variables = [tf.get_variable(name, [8]) for name in VALUES]
    with CountedSession(graph=graph) as session:
        plain_model.load_values(session, variables, VALUES)
        fed = [num_bytes for num_bytes in session.num_bytes if num_bytes]
        np.testing.assert_array_equal(session.run(variables), list(VALUES.values()))
    assert len(fed) == num_calls
    assert max(fed) <= max(max_bytes, 32)


def test_variables_that_share_their_initial_value_keep_their_own():
    with tf.Graph().as_default() as graph, plain_model.plain_scope():
        zeros = tf.zeros([8])
        variables = [tf.get_variable(name, initializer=zeros) for name in ("v1", "v2", "v3")]
    with tf.Session(graph=graph) as session:
        plain_model.load_values(session, variables, VALUES)
        np.testing.assert_array_equal(session.run(variables), [VALUES[name] for name in ("v1", "v2", "v3")])
