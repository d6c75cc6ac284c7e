"""`Session`: the session that a script holds. It raises the reason when the job cannot continue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf


class Session(tf.Session):
    """A session of a job; named as TensorFlow's, since scripts look for the name within a `MonitoredSession`.

    Args:
        target: Target of the task's server.
        graph: The graph.
        config: Configuration.
        in_step: Function that returns a context for each call.
        on_close: Function to call when the script closes the session.
    """

    def __init__(
        self,
        target: str,
        graph: tf.Graph,
        config: tf.ConfigProto,
        *,
        in_step: Callable[[], contextlib.AbstractContextManager[None]],
        on_close: Callable[[], Any],
    ):
        super().__init__(target, graph=graph, config=config)
        self._in_step, self._on_close = in_step, on_close

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs as `tf.Session.run` does; `StepGuard.step` lists the errors."""
        with self._in_step():
            return super().run(fetches, feed_dict, options, run_metadata)

    def make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Callable[..., Any]:
        """Makes a callable as in `tf.Session`."""
        call = super().make_callable(fetches, feed_list, accept_options)

        def watched(*args: Any, **kwargs: Any) -> Any:
            with self._in_step():
                return call(*args, **kwargs)

        return watched

    def close(self) -> None:
        """Closes the session, and may end this worker's part in the job."""
        self._on_close()
        self.abort()

    def abort(self) -> None:
        """Closes the session, and tells no one."""
        super().close()
