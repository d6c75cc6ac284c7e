"""What the ps tasks of a run of real processes hold at present."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.runtime.control import PsClient
from tests.testing.processes import ClusterRun

_CALL_SECS = 10.0


def run_id_of(run: ClusterRun) -> str:
    """The id of the run in progress."""
    ps_0 = PsClient(run.ps_hosts[0], 0)
    try:
        return ps_0.read().run.run_id
    finally:
        ps_0.close()


def live_value(
    run: ClusterRun, name: str, shape: Sequence[int], dtype: tf.DType = tf.float32, *, ps: int = 0
) -> np.ndarray:
    """The present value of a variable of the run on a ps task."""
    run_id = run_id_of(run)

    def read() -> tf.Tensor:
        handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, container=run_id, shared_name=name)
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)

    return run_on_ps(run, read, ps=ps)


def run_on_ps(run: ClusterRun, build: Callable[[], Any], *, ps: int = 0) -> Any:
    """The values of the ops that a function builds, run on a ps task."""
    with tf.Graph().as_default() as graph:
        fetches = build()
    # The filter matches no task. Without it, the session would wait until every task of the cluster is there.
    config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * _CALL_SECS), device_filters=["/job:none"])
    with tf.Session(f"grpc://{run.ps_hosts[ps]}", graph=graph, config=config) as session:
        return session.run(fetches)
