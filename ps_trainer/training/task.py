"""Runs one task of a cluster in this process: the place where roles meet their code."""

from __future__ import annotations

from absl import logging

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, WARNING
from ps_trainer.cluster.groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.data_source import DataSource, Shard
from ps_trainer.errors import CheckpointError
from ps_trainer.runtime import environment, logdir_checks
from ps_trainer.runtime.ps import PsTask
from ps_trainer.runtime.server import create_server
from ps_trainer.runtime.supervise import run_job
from ps_trainer.training import components, target_watch
from ps_trainer.training.checkpointer import check_checkpoints
from ps_trainer.training.chief import Chief
from ps_trainer.training.evaluator import EvaluatorTask
from ps_trainer.training.stage_host import StageHost
from ps_trainer.training.worker import Worker


def run(cluster: ClusterConfig, config: TrainConfig, *, keep_serving: bool = False) -> int:
    """Runs the task that `cluster` names until its job ends; returns the exit code.

    Args:
        cluster: Cluster, with this process's place in it.
        config: Configuration of the run; a ps task uses only its timeouts and thread counts.
        keep_serving: Whether a ps task serves one job after another until a signal ends it.

    Raises:
        UsageError: the configuration is wrong; raised before the server is started.
    """
    _check_surroundings(config)
    if cluster.job_name == "ps":
        ps = PsTask(cluster, config, create_server(cluster, config), keep_serving=keep_serving)
        return run_job(ps.serve)
    loaded = components.load(config, cluster.num_workers)
    if cluster.job_name == "evaluator":
        return run_job(EvaluatorTask(cluster, config, loaded).work)
    group = group_of(cluster, loaded.num_stages)
    if group.stage:
        return run_job(StageHost(cluster, config, group, create_server(cluster, config)).work)
    if isinstance(loaded.dataset, DataSource):
        loaded.dataset.check_shard(Shard(cluster.worker_index, group.trainers.num_workers), config.batch_size)
    # Only the chief needs the folder of the checkpoints, which may be on its disk alone.
    if cluster.is_chief:
        target_watch.check(config, loaded)
        check_checkpoints(config)
    worker_class = Chief if cluster.is_chief else Worker
    return run_job(worker_class(cluster, config, loaded, create_server(cluster, config)).work)


def _check_surroundings(config: TrainConfig) -> None:
    """Logs what `ps_trainer doctor` would report about this task's machine.

    A full disk is only a warning: it may be temporary, and training can continue without checkpoints for a while.

    Raises:
        CheckpointError: this task cannot write the logdir.
    """
    for finding in (environment.proxies(), *(logdir_checks.findings(config.logdir) if config.logdir else ())):
        if finding.level == FAIL and finding.topic == logdir_checks.FOLDER:
            raise CheckpointError(finding.message)
        if finding.level in (FAIL, WARNING):
            logging.warning("%s", finding.message)
