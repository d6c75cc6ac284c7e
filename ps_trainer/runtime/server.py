"""The task's `tf.train.Server`, and the configuration of sessions on it."""

from __future__ import annotations

import os
from collections.abc import Sequence

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster import checks
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import WARNING
from ps_trainer.config import TrainConfig
from ps_trainer.errors import ClusterConfigError
from ps_trainer.runtime import request_ids


def create_server(cluster: ClusterConfig, config: TrainConfig) -> tf.train.Server:
    """Starts this task's server.

    The server sets the sizes of the thread pools, because a session's own setting has no effect in a cluster. If the
    configuration does not give them, the tasks on one machine share its cores equally.

    Raises:
        ClusterConfigError: the server could not be started, most often because the port is taken.
    """
    finding = checks.listening([(cluster.task_name, cluster.own_port)], config.isolation)
    if finding.level == WARNING:
        logging.warning("%s", finding.message)
    # Only the cores that this process may use: Slurm or a container may allow it a part of the machine.
    share = max(1, len(os.sched_getaffinity(0)) // tasks_on_this_host(cluster))
    server_config = tf.ConfigProto(
        intra_op_parallelism_threads=config.intra_op_threads or share,
        inter_op_parallelism_threads=config.inter_op_threads or max(2, share),
    )
    if cluster.job_name != "ps":
        # Collective ops of several workers find each other by numbers that this task hands out.
        job, index = cluster.worker_tasks[0]
        server_config.experimental.collective_group_leader = f"/job:{job}/replica:0/task:{index}"
    request_ids.make_unique()
    try:
        return tf.train.Server(
            tf.train.ClusterSpec(cluster.as_dict()),
            job_name=cluster.job_name,
            task_index=cluster.task_index,
            config=server_config,
        )
    except tf.errors.OpError as error:
        # UnknownError if the port is taken; InvalidArgumentError for an address that TensorFlow does not accept.
        raise ClusterConfigError(f"{cluster.task_name}: no server on {cluster.own_address}: {error.message}") from error


def tasks_on_this_host(cluster: ClusterConfig) -> int:
    """Counts the tasks whose address has this task's host name. In containers, each task has a host name of its own."""
    host = cluster.own_address.rpartition(":")[0]
    return sum(a.rpartition(":")[0] == host for addresses in cluster.jobs.values() for a in addresses)


def session_config(
    device: str, peers: Sequence[str] = ("/job:ps",), call_timeout_secs: float | None = None
) -> tf.ConfigProto:
    """Configures a session on this task's server.

    Args:
        device: Device of this task.
        peers: Device filters of the other tasks that the session uses. There must be no others: the creation of a
            session waits for every task within the filters.
        call_timeout_secs: Deadline in seconds of each call of the session, `close` included. It makes each call pass
            through the loopback interface. With None, a call to a suspended ps task lasts as long as the suspension.
    """
    config = tf.ConfigProto(device_filters=sorted({*peers, device}), allow_soft_placement=False)
    # The graph is built in its final form, so TensorFlow's graph optimiser would only add start-up time.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    if call_timeout_secs is not None:
        config.operation_timeout_in_ms = int(call_timeout_secs * 1000)
        # Without this, a call of the server in this process ignores the deadline while it creates or closes the
        # session, or sends a graph to the tasks.
        config.rpc_options.use_rpc_for_inprocess_master = True
    return config
