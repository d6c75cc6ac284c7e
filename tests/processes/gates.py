"""Gates on a ps task, at which a test holds the updates of one worker."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tests.testing.live_values import run_on_ps
from tests.testing.processes import START_SECS, ClusterRun, wait_until

_CONTAINER = "gates"


class Gate:
    """A place in a worker's update on ps task 0, where each update takes a token.

    An update waits for a token even if its step is cancelled meanwhile, since `Unstage` knows no cancellation.

    Args:
        name: Name of the place.
    """

    def __init__(self, name: str):
        self._arrived = {"container": _CONTAINER, "shared_name": f"{name}/arrived"}
        self._tokens = {"container": _CONTAINER, "shared_name": f"{name}/tokens"}
        self._num_given = 0

    def build(self) -> tf.Tensor:
        """Builds the op that takes a token, in the worker's graph and the device scope of the ps task."""
        arrived = tf.raw_ops.Stage(values=[tf.constant(0)], **self._arrived)
        with tf.control_dependencies([arrived]):
            return tf.raw_ops.Unstage(dtypes=[tf.int32], **self._tokens)[0]

    def give(self, run: ClusterRun, num_tokens: int) -> None:
        """Lets that number of further updates pass."""
        run_on_ps(run, lambda: [tf.raw_ops.Stage(values=[tf.constant(0)], **self._tokens) for _ in range(num_tokens)])
        self._num_given += num_tokens

    def wait_until_held(self, run: ClusterRun) -> None:
        """Returns when an update waits for a token, after one for each token that was given."""

        def is_held() -> bool:
            return self._size(run, self._arrived) == self._num_given + 1

        wait_until(is_held, START_SECS, "no update waits at the gate")

    def wait_until_passed(self, run: ClusterRun) -> None:
        """Returns when each token has been taken."""
        wait_until(lambda: not self._size(run, self._tokens), START_SECS, "no update has passed the gate")

    def _size(self, run: ClusterRun, area: dict[str, str]) -> int:
        return int(run_on_ps(run, lambda: tf.raw_ops.StageSize(dtypes=[tf.int32], **area)))
