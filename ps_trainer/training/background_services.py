"""What runs beside a worker's steps for as long as it trains: the rule's service, delays, the reader of shards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow.compat.v1 as tf

from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.supervise import StopRequest
from ps_trainer.training.graph import TrainGraph


@contextlib.contextmanager
def running(
    train: TrainGraph,
    stop: StopRequest,
    *,
    new_session: Callable[[], tf.Session],
    target: str,
    own_config: tf.ConfigProto,
    ps_0: PsControl,
    run_id: str,
    worker_index: int,
    on_wait: Callable[[], Any],
    num_steps: Callable[[], int],
    pause_secs: float,
) -> Iterator[None]:
    """Starts it, lets blocked steps go when the run is to stop, and ends it.

    Args:
        train: the run's graph.
        stop: of this task.
        new_session: opens a session on the graph, each call of which has a deadline; the service closes it.
        target: of this task's server.
        own_config: of a session of this task alone.
        ps_0: who hands out shards.
        run_id: Name of the run.
        worker_index: Index of this worker.
        on_wait: called now and then while this worker waits for shards that others hold.
        num_steps: gives the steps that this worker has made.
        pause_secs: see `ShardReader.connect`.
    """
    service, straggler, reader = train.step.service, train.straggler, train.shard_reader
    try:
        if service is not None:
            service.start(new_session())
            stop.on_release(service.release)
        if straggler is not None:
            straggler.start(target, own_config)
            stop.on_release(straggler.let_go)
        if reader is not None:
            reader.connect(
                ps_0,
                run_id=run_id,
                worker_index=worker_index,
                on_wait=on_wait,
                num_steps=num_steps,
                pause_secs=pause_secs,
            )
            stop.on_release(reader.close)
        yield
    finally:
        if service is not None:
            service.stop()
        if straggler is not None:
            straggler.close()
        if reader is not None:
            reader.close()
