"""`SessionRecorder`: the calls of TensorFlow sessions in chosen threads, with TensorFlow's own record of each call.

The step loop calls sessions in the thread of its worker. So the recorder notes the calls of that thread, whichever
functions make them: the steps of a rule, its exchange, and what else a step needs. It changes no op. A recorded call
asks for `RunOptions(FULL_TRACE)` with partition graphs, which return the record of every task that took part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

# `tf.Session` and the sessions of `MonitoredTrainingSession` inherit the methods from this class, which has no public
# name. tests/benchmarks/anatomy notices when it moves.
from tensorflow.python.client.session import BaseSession


class RecordedCall(NamedTuple):
    """One call of a session.

    Attributes:
        worker: Index of the worker whose thread made the call.
        step: Steps that this worker had completed before.
        fetches: The fetched tensors; calls of one kind have the same object.
        metadata: TensorFlow's record.
        num_steps: Number of steps that the call made; the last one is counted after the call.
    """

    worker: int
    step: int
    fetches: Any
    metadata: tf.RunMetadata
    num_steps: int = 1


class SessionRecorder:
    """Records calls while it is entered; only one recorder may be.

    Args:
        first_step: The first step that is recorded; earlier steps warm up.
        num_steps: Number of steps of each worker in which a call that begins is recorded.

    Attributes:
        calls: The recorded calls, in the order in which they ended.
    """

    def __init__(self, first_step: int, num_steps: int):
        self.calls: list[RecordedCall] = []
        self._steps = range(first_step, first_step + num_steps)
        self._workers: dict[int, tuple[int, Callable[[], int]]] = {}  # by thread
        self._options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
        self._originals: tuple[Any, Any, Any] | None = None

    def watch_this_thread(self, worker: int, count_steps: Callable[[], int]) -> None:
        """Records the calls that the calling thread makes.

        Args:
            worker: Index of the worker that runs in this thread.
            count_steps: Function that returns the number of completed steps of this worker.
        """
        self._workers[threading.get_ident()] = (worker, count_steps)

    def __enter__(self) -> SessionRecorder:
        make_callable, run, from_options = self._originals = (
            BaseSession.make_callable,
            BaseSession.run,
            BaseSession._make_callable_from_options,
        )
        recorder = self

        def recording_make_callable(
            session: Any,
            fetches: Any,
            feed_list: Any = None,
            accept_options: Any = False,  # noqa: FBT002 - TensorFlow's signature
        ) -> Any:
            plain = make_callable(session, fetches, feed_list, accept_options)
            if feed_list is not None or accept_options:  # these go through `run`, or have their own options
                return plain
            with_options = make_callable(session, fetches, accept_options=True)

            def call() -> Any:
                return recorder._record(fetches, with_options) if recorder._is_wanted() else plain()

            return call

        def recording_run(
            session: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
        ) -> Any:
            if options is not None or not recorder._is_wanted():
                return run(session, fetches, feed_dict, options, run_metadata)
            return recorder._record(fetches, lambda **given: run(session, fetches, feed_dict, **given))

        def recording_from_options(session: Any, options: Any) -> Any:
            plain = from_options(session, options)
            if options.feed:
                return plain
            fetches = [session.graph.as_graph_element(name) for name in (*options.fetch, *options.target)]
            # The same part of the graph; the call itself returns no record.
            with_options = make_callable(session, fetches, accept_options=True)

            def call() -> Any:
                if not recorder._is_wanted():
                    return plain()
                return recorder._record(fetches, with_options)[: len(options.fetch)]

            return call

        BaseSession.make_callable, BaseSession.run = recording_make_callable, recording_run
        BaseSession._make_callable_from_options = recording_from_options
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._originals is not None
        BaseSession.make_callable, BaseSession.run, BaseSession._make_callable_from_options = self._originals

    def _is_wanted(self) -> bool:
        watched = self._workers.get(threading.get_ident())
        return watched is not None and watched[1]() in self._steps

    def _record(self, fetches: Any, run: Callable[..., Any]) -> Any:
        worker, count_steps = self._workers[threading.get_ident()]
        step, metadata = count_steps(), tf.RunMetadata()
        values = run(options=self._options, run_metadata=metadata)
        self.calls.append(RecordedCall(worker, step, fetches, metadata, count_steps() - step + 1))
        return values
