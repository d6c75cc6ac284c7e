"""One process that trains alone: it is the only worker, and holds the parameters in place of the ps tasks."""

from __future__ import annotations

from collections.abc import Mapping

from ps_trainer.cluster.config import ONE_PROCESS, ClusterConfig
from ps_trainer.cluster.sources import TF_CONFIG, ClusterFlags
from ps_trainer.config import COLOCATED, TrainConfig
from ps_trainer.errors import ClusterConfigError, OptionError

_EXCHANGING = ("all_reduce", "hybrid")  # rules whose workers send gradients to each other


def describe() -> ClusterConfig:
    """Returns the "cluster" that consists of this process alone."""
    return ClusterConfig(jobs=ONE_PROCESS, job_name="worker", task_index=0, source="one process")


def resolve(flags: ClusterFlags, environ: Mapping[str, str]) -> ClusterConfig:
    """Returns the configuration of a process that was started with `--alone`.

    Args:
        flags: Values of the cluster flags, none of which describes a cluster.
        environ: Environment of the process.

    Raises:
        ClusterConfigError: A cluster is described, or the task is not a worker.
    """
    described = [name for name in ("ps_hosts", "worker_hosts", "chief_hosts", "cluster_file") if getattr(flags, name)]
    names = [f"--{name}" for name in described] + ([TF_CONFIG] if environ.get(TF_CONFIG, "").strip() else [])
    if names:
        raise ClusterConfigError(f"--alone: one process has no cluster; remove {', '.join(names)}, or --alone")
    if flags.job_name in ("ps", "evaluator"):
        raise ClusterConfigError(
            f"--alone --job_name={flags.job_name}: one process trains as worker 0; remove --job_name, or --alone"
        )
    if flags.task_index:
        raise ClusterConfigError(
            f"--alone --task_index={flags.task_index}: one process trains as worker 0; remove --task_index"
        )
    return describe()


def check(config: TrainConfig) -> None:
    """Checks that one process can train with these settings.

    Raises:
        OptionError: A setting needs a ps task or other workers.
    """
    if config.placement == COLOCATED:
        raise OptionError(
            "--placement=colocated: its workers are tasks of a cluster, and one process has none; remove --placement,"
            " or --alone"
        )
    if config.sharding == "dynamic":
        raise OptionError(
            "--sharding=dynamic: ps task 0 hands out the shards, and one process has none; use --sharding=static,"
            " with which a single worker reads every example as well, or --num_ps=1"
        )
    if config.update in _EXCHANGING:
        raise OptionError(
            f"--update={config.update}: its workers send gradients to each other, and one process has no other worker;"
            " use --update=sync or async, or --num_ps=1"
        )
