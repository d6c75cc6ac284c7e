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

    Thread pools are set here: a session's own setting of them has no effect in a cluster. Where the
    configuration leaves them open, the machine's cores are shared among the cluster's tasks on it.

    Raises:
        ClusterConfigError: the server could not be started, most often because the port is taken.
    """
    finding = checks.listening([(cluster.task_name, cluster.own_port)], config.isolation)
    if finding.level == WARNING:
        logging.warning("%s", finding.message)
    share = max(1, len(os.sched_getaffinity(0)) // tasks_on_this_host(cluster))
    server_config = tf.ConfigProto(
        intra_op_parallelism_threads=config.intra_op_threads or share,
        inter_op_parallelism_threads=config.inter_op_threads or max(2, share),
    )
    if cluster.job_name != "ps":
        # Who hands out the numbers by which collective ops of several workers find each other.
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
        raise ClusterConfigError(f"{cluster.task_name}: no server on {cluster.own_address}: {error.message}") from error


def tasks_on_this_host(cluster: ClusterConfig) -> int:
    """Tasks of the cluster whose address has this task's host; in containers, each has its own."""
    host = cluster.own_address.rpartition(":")[0]
    return sum(a.rpartition(":")[0] == host for addresses in cluster.jobs.values() for a in addresses)


def session_config(
    device: str, peers: Sequence[str] = ("/job:ps",), call_timeout_secs: float | None = None
) -> tf.ConfigProto:
    """Configuration of a session on this task's server.

    Args:
        device: the task's own device.
        peers: device filters of the other tasks that the session uses. A session is never made with
            more than these: one absent task outside them would hang its creation.
        call_timeout_secs: deadline of each call of the session, `close` among them; None: a call to a ps task that is
            frozen lasts as long as that is. It costs a call a way through the loopback interface.
    """
    config = tf.ConfigProto(device_filters=sorted({*peers, device}), allow_soft_placement=False)
    # The graph is already in the form we want; the optimiser would only cost start-up time.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    if call_timeout_secs is not None:
        config.operation_timeout_in_ms = int(call_timeout_secs * 1000)
        # A direct call of the server in this process looks at no deadline while it makes the session, brings a graph to
        # the tasks, or closes the session.
        config.rpc_options.use_rpc_for_inprocess_master = True
    return config
