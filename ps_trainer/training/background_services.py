"""Runs the threads beside a worker's steps: the rule's service, injected delays, and the reader of shards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ps_trainer.runtime.job_runner import StopRequest
from ps_trainer.training.graph_parts.shard_reader import LeaseLink
from ps_trainer.training.sessions import Sessions
from ps_trainer.training.train_graph import TrainGraph


@contextlib.contextmanager
def run_beside_steps(train: TrainGraph, stop: StopRequest, sessions: Sessions, link: LeaseLink) -> Iterator[None]:
    """Starts the threads before the body, and ends them after it.

    A step may wait for each of them. So a stop request releases these waits before it closes the worker's session.

    Args:
        train: Graph of the run.
        stop: Stop request of this task.
        sessions: Sessions of this worker.
        link: Connection to ps task 0, for the reader of shards.
    """
    service, straggler, reader = train.step.service, train.straggler, train.shard_reader
    try:
        if service is not None:
            service.start(sessions.open_bounded(train))  # the service closes this session
            stop.on_release(service.release)
        if straggler is not None:
            straggler.start(lambda build: sessions.open_worker_only(train, build))
            stop.on_release(straggler.let_go)
        if reader is not None:
            reader.connect(link)
            stop.on_release(reader.close)
        yield
    finally:
        if service is not None:
            service.stop()
        if straggler is not None:
            straggler.close()
        if reader is not None:
            reader.close()
