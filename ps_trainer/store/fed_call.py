"""Calls of a session that feed values, without the Python work of `Session.run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2


def make(session: tf.Session, fetches: Sequence[Any], feeds: Sequence[tf.Tensor]) -> Callable[..., list[Any]]:
    """Returns a function that takes values of `feeds`, in their order, and returns the values of `fetches`.

    Args:
        session: Session of the graph of `fetches` and `feeds`.
        fetches: Tensors, variables, and ops. The function runs the ops, and returns nothing for them.
        feeds: Tensors to feed.
    """
    with session.graph.as_default():
        elements = [session.graph.as_graph_element(fetch) for fetch in fetches]
        # TensorFlow rejects a tensor that is both fed and fetched.
        elements = [tf.identity(one) if any(one is feed for feed in feeds) else one for one in elements]
    options = config_pb2.CallableOptions(
        feed=[feed.name for feed in feeds],
        fetch=[element.name for element in elements if isinstance(element, tf.Tensor)],
        target=[element.name for element in elements if isinstance(element, tf.Operation)],
    )
    # Private: the public `make_callable` calls `Session.run` if there are feeds. In each call that looks up feeds and
    # fetches, and parses NumPy's version for each feed, which takes longer than a step of a small model.
    call = session._make_callable_from_options(options)
    types = [feed.dtype.as_numpy_dtype for feed in feeds]
    return lambda *values: call(*map(np.asarray, values, types))
