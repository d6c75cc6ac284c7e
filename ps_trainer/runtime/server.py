"""The task's `tf.train.Server`, and the configuration of sessions on it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster import checks
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import WARNING
from ps_trainer.config import TrainConfig
from ps_trainer.errors import ClusterConfigError, OptionError
from ps_trainer.runtime import request_ids


def create_server(cluster: ClusterConfig, config: TrainConfig) -> tf.train.Server:
    """Starts this task's server.

    Raises:
        ClusterConfigError: The server could not be started, most often because the port is taken.
    """
    server_config = prepare_server(cluster, config)
    with start_errors(cluster):
        return tf.train.Server(
            tf.train.ClusterSpec(cluster.as_dict()),
            job_name=cluster.job_name,
            task_index=cluster.task_index,
            config=server_config,
        )


def prepare_server(
    cluster: ClusterConfig, config: TrainConfig, describe_setting: Callable[[str], str] = str
) -> tf.ConfigProto:
    """Prepares this process for its server, warns of an open port, and returns the server's configuration.

    The server sets the sizes of the thread pools, because a session's own setting has no effect in a cluster. If the
    configuration does not give them, the tasks on one machine share its cores equally.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Settings of the run.
        describe_setting: Function that names in a warning what this task's owner can set.
    """
    finding = checks.listening([(cluster.task_name, cluster.own_port)], config.isolation)
    if finding.level == WARNING:
        logging.warning("%s", describe_setting(finding.message))
    server_config = process_config(cluster, config)
    if cluster.job_name != "ps":
        # Collective ops of several workers find each other by numbers that this task hands out.
        job, index = cluster.worker_tasks[0]
        server_config.experimental.collective_group_leader = f"/job:{job}/replica:0/task:{index}"
    request_ids.make_unique()
    return server_config


@contextlib.contextmanager
def start_errors(cluster: ClusterConfig) -> Iterator[None]:
    """Translates TensorFlow's errors at the start of this task's server into `ClusterConfigError`."""
    try:
        yield
    except tf.errors.OpError as error:
        # UnknownError if the port is taken; InvalidArgumentError for an address that TensorFlow does not accept.
        raise ClusterConfigError(f"{cluster.task_name}: no server on {cluster.own_address}: {error.message}") from error


def process_config(cluster: ClusterConfig, config: TrainConfig) -> tf.ConfigProto:
    """Returns the numbers of threads and of logical CPU devices of this task."""
    # Only the cores that this process may use: Slurm or a container may allow it a part of the machine.
    share = max(1, len(os.sched_getaffinity(0)) // tasks_on_this_host(cluster))
    server_config = tf.ConfigProto(
        intra_op_parallelism_threads=config.intra_op_threads or share,
        inter_op_parallelism_threads=config.inter_op_threads or max(2, share),
    )
    if cluster.job_name != "ps" and config.devices_per_worker > 1 and _kind_of_devices(config) == "CPU":
        server_config.device_count["CPU"] = config.devices_per_worker
    return server_config


def compute_devices(cluster: ClusterConfig, config: TrainConfig) -> list[str]:
    """Returns the devices on which this worker computes its model: GPUs, or logical CPUs where there is no GPU.

    Raises:
        OptionError: There are GPUs, and fewer than `devices_per_worker`.
    """
    if config.devices_per_worker == 1:
        return [cluster.device]
    kind = _kind_of_devices(config)
    return [f"{cluster.device}/device:{kind}:{index}" for index in range(config.devices_per_worker)]


def _kind_of_devices(config: TrainConfig) -> str:
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if num_gpus and num_gpus < config.devices_per_worker:
        raise OptionError(
            f"--devices_per_worker={config.devices_per_worker}: TensorFlow sees {num_gpus} GPU(s) here; lower it, or"
            " name more GPUs in CUDA_VISIBLE_DEVICES (an empty value computes on logical CPUs)"
        )
    return "GPU" if num_gpus else "CPU"


def tasks_on_this_host(cluster: ClusterConfig) -> int:
    """Counts the tasks whose address has this task's host name. In containers, each task has its own host name.

    A process that trains alone counts as two, worker and ps task. So it has as many threads as one worker beside one ps
    task, and adds up sums in the same order.
    """
    if cluster.is_alone:
        return 2
    host = cluster.own_address.rpartition(":")[0]
    return sum(a.rpartition(":")[0] == host for addresses in cluster.jobs.values() for a in addresses)


def session_config(
    device: str, peers: Sequence[str] = ("/job:ps",), call_timeout_secs: float | None = None, *, grappler: bool = False
) -> tf.ConfigProto:
    """Configures a session on this task's server.

    Args:
        device: Device of this task.
        peers: Device filters of the other tasks that the session uses. There must be no others: the creation of a
            session waits for every task within the filters.
        call_timeout_secs: Deadline in seconds of each call of the session, `close` included. It makes each call pass
            through the loopback interface. With None, a call to a suspended ps task lasts as long as the suspension.
        grappler: Whether TensorFlow's graph optimizer rewrites the graph. The graph is built in its final form, so that
            would only add start-up time for most models.
    """
    config = tf.ConfigProto(device_filters=sorted({*peers, device}), allow_soft_placement=False)
    config.graph_options.rewrite_options.disable_meta_optimizer = not grappler
    if call_timeout_secs is not None:
        config.operation_timeout_in_ms = int(call_timeout_secs * 1000)
        # Without this, a call of this process's server ignores the deadline while it creates or closes the session, or
        # sends a graph.
        config.rpc_options.use_rpc_for_inprocess_master = True
    return config
