"""A worker's graph of a rule with replicas, in a session that shows the partitions of each phase."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow.compat.v1 as tf

from ps_trainer.config import TrainConfig
from ps_trainer.runtime.server import session_config
from ps_trainer.training import components as components_lib
from ps_trainer.training import graph as graph_lib
from ps_trainer.training.train_graph import TrainGraph
from tests.testing.cluster import InProcessCluster


class WorkerSession:
    """A joined worker 0 of a cluster on which no job runs.

    Args:
        train: The worker's graph.
        session: Session on the worker's server.
    """

    def __init__(self, train: TrainGraph, session: tf.Session):
        self.train = train
        self.session = session
        self._global_step = 0

    def phase_of_next_step(self) -> int:
        """The phase that the rule chooses for the worker's next step."""
        return self.train.step.choose(self._global_step)

    def jobs_of_phase(self, phase: int) -> set[str]:
        """Runs a step; returns the jobs of all ops that TensorFlow placed in the step's partitions."""
        metadata = tf.RunMetadata()
        run_options = tf.RunOptions(output_partition_graphs=True)
        self._global_step = self.session.run(self.train.fetches[phase], options=run_options, run_metadata=metadata)[0]
        devices = {node.device for graph in metadata.partition_graphs for node in graph.node}
        return {tf.DeviceSpec.from_string(device).job for device in devices}


@contextmanager
def one_worker_session(cluster: InProcessCluster, config: TrainConfig) -> Iterator[WorkerSession]:
    """Sets up a run as its chief does, and joins it as worker 0."""
    task = cluster.task("worker", 0)
    components = components_lib.load(config, cluster.num_workers)
    train = graph_lib.build(components, task, config, "lookedat")
    with tf.Session(f"grpc://{task.own_address}", graph=train.graph, config=session_config(task.device)) as session:
        session.run(train.scaffold.local_init_op)
        session.run(train.init_state_op)
        train.state.initialize(session, train.model_trace.initial_values())
        for op in train.join_ops:
            session.run(op, train.step.join_feeds)
        for op in train.begin_data_ops:
            session.run(op)
        yield WorkerSession(train, session)
        session.run(train.free_op)
