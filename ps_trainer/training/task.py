"""Runs one task of a cluster in this process: the place where roles meet their code."""

from __future__ import annotations

from collections.abc import Callable, Collection

import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, WARNING
from ps_trainer.cluster.worker_groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.data_source import DataSource
from ps_trainer.data.pipeline.shard import Shard
from ps_trainer.errors import CheckpointError
from ps_trainer.runtime import environment, logdir_checks
from ps_trainer.runtime.job_runner import run_job
from ps_trainer.runtime.ps import PsTask
from ps_trainer.runtime.server import create_server
from ps_trainer.training import components, model_defaults, one_process
from ps_trainer.training.chief import Chief, check_as_chief
from ps_trainer.training.components import Components
from ps_trainer.training.evaluator import EvaluatorTask
from ps_trainer.training.stage_host import StageHost
from ps_trainer.training.worker import Worker
from ps_trainer.training.worker_progress import StepObserver


def run(cluster: ClusterConfig, config: TrainConfig, *, given: Collection[str] = (), keep_serving: bool = False) -> int:
    """Runs the task that `cluster` names until its job ends; returns the exit code.

    Args:
        cluster: Cluster, with this process's place in it.
        config: Configuration of the run; a ps task uses only its timeouts and thread counts.
        given: Names of the settings that the user gave; the model may have defaults for others.
        keep_serving: Whether a ps task serves one job after another until a signal ends it.

    Raises:
        UsageError: The configuration is wrong; raised before the server is started.
    """
    check_surroundings(config)
    if cluster.job_name == "ps":
        return run_job(PsTask(cluster, config, create_server(cluster, config), keep_serving=keep_serving).serve)
    config, note = model_defaults.fill_in_defaults(config, given, cluster.num_workers)
    if cluster.is_alone:
        one_process.prepare(config)
    loaded = components.load(config, cluster.num_workers)._replace(note=note)
    if cluster.is_alone:
        return run_job(one_process.create_chief(config, loaded).work)
    if cluster.job_name == "evaluator":
        return run_job(EvaluatorTask(cluster, config, loaded).work)
    return run_job(create_worker(cluster, config, loaded, create_server).work)


def create_worker(
    cluster: ClusterConfig,
    config: TrainConfig,
    loaded: Components,
    create_server: Callable[[ClusterConfig, TrainConfig], tf.train.Server],
    *,
    observer: StepObserver | None = None,
) -> Worker | StageHost:
    """Creates the task of a worker: the chief, another worker that trains, or one that computes a stage.

    Args:
        cluster: Cluster, with this task's place in it.
        config: Configuration of the run.
        loaded: Components of the run.
        create_server: Function that starts the server of this task, or returns one that runs already. It is called
            only when everything is checked.
        observer: Object that follows the steps; None = no object.

    Raises:
        UsageError: The data, the target metric or the checkpoints do not fit the run.
    """
    components.check_shares(loaded.layout_options, is_colocated=cluster.is_colocated)
    group = group_of(cluster, loaded.num_stages)
    if group.stage:
        return StageHost(cluster, config, group, create_server(cluster, config))
    if isinstance(loaded.dataset, DataSource):
        loaded.dataset.check_shard(Shard(cluster.worker_index, group.trainers.num_workers), config.batch_size)
    # Only the chief needs the folder of the checkpoints, which may be on its disk alone.
    if cluster.is_chief:
        check_as_chief(config, loaded)
    server = create_server(cluster, config)
    # The trace must come after the server (`components._trace` says why). It comes before the worker joins, so that a
    # wrong model ends this task only, with a usage error.
    advice = components.advice(loaded)
    if advice is not None and cluster.is_chief:
        logging.warning("%s", advice)
    worker_class = Chief if cluster.is_chief else Worker
    return worker_class(cluster, config, loaded, server, observer=observer)


def check_surroundings(config: TrainConfig) -> None:
    """Logs what `ps_trainer doctor` would report about this task's machine.

    A full disk is only a warning: it may be temporary, and training can continue without checkpoints for a while.

    Raises:
        CheckpointError: This task cannot write the logdir.
    """
    for finding in (environment.proxies(), *(logdir_checks.findings(config.logdir) if config.logdir else ())):
        if finding.level == FAIL and finding.topic == logdir_checks.FOLDER:
            raise CheckpointError(finding.message)
        if finding.level in (FAIL, WARNING):
            logging.warning("%s", finding.message)
