"""`Sessions`: opens a worker's TensorFlow sessions."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.groups import Group
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.server import session_config
from ps_trainer.training.components import Components
from ps_trainer.training.graph import TrainGraph


class Sessions:
    """Opens sessions on the graphs of one worker.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
        components: Components of the run, with the user's hooks.
        group: Group of this worker, with the devices that compute stages for it.
        target: Target of this task's server.

    Attributes:
        target: Target of this task's server.
        own_config: Configuration of a session that has this task's devices only.
    """

    def __init__(self, cluster: ClusterConfig, config: TrainConfig, components: Components, group: Group, target: str):
        self.target = target
        self.own_config = session_config(cluster.device, peers=())
        self._cluster = cluster
        self._config = config
        self._hooks = components.hooks
        self._peers = ("/job:ps", *group.devices)
        self._session_config = session_config(cluster.device, self._peers)

    def plain(self, train: TrainGraph) -> tf.Session:
        """A session whose calls have no deadline."""
        return tf.Session(self.target, graph=train.graph, config=self._session_config)

    def bounded(self, train: TrainGraph) -> tf.Session:
        """A session each call of which has a deadline, for a thread beside the steps."""
        config = session_config(self._cluster.device, self._peers, self._config.heartbeat_timeout_secs)
        # Uses the loopback address, since only other machines may be able to reach the task's own address.
        return tf.Session(f"grpc://localhost:{self._cluster.own_port}", graph=train.graph, config=config)

    def monitored(self, train: TrainGraph) -> tf.train.MonitoredSession:
        """The session of the steps, with the user's hooks. It does not initialise, restore or save anything."""
        return tf.train.MonitoredTrainingSession(
            master=self.target,
            is_chief=self._cluster.is_chief,
            checkpoint_dir=None,
            scaffold=train.scaffold,
            hooks=[hook() for hook in self._hooks],
            # Each hook of TensorFlow's own would add a fetch to every step.
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
            config=self._session_config,
            # TensorFlow gives up at once when less than its `recovery_wait_secs`, 30 s, of this time are left.
            max_wait_secs=int(self._config.start_timeout_secs) + 31,
            # Longest wait for threads of the session's coordinator at the end; TensorFlow's default is 120 s.
            stop_grace_period_secs=5,
        )
