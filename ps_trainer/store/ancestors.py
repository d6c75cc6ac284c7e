"""`ancestors`: the ops on which others depend."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow.compat.v1 as tf


def ancestors(fetches: Iterable[tf.Tensor | tf.Operation]) -> list[tf.Operation]:
    """Returns the ops that run before any of these ops and tensors, and these ops themselves, each once."""
    found = dict.fromkeys(getattr(fetch, "op", fetch) for fetch in fetches)
    waiting = list(found)
    while waiting:
        op = waiting.pop()
        new = [other for other in (*(tensor.op for tensor in op.inputs), *op.control_inputs) if other not in found]
        found.update(dict.fromkeys(new))
        waiting += dict.fromkeys(new)
    return list(found)
