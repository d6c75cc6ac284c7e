"""The commands that run one task of a cluster.

They check the whole input before they import TensorFlow, which takes seconds.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import run_main, start_logging
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cluster import one_process, ports, sources
from ps_trainer.cluster.config import JOB_NAMES
from ps_trainer.cluster.sources import ClusterFlags
from ps_trainer.config import COLOCATED, TrainConfig
from ps_trainer.launch.parent_death import wake_when_parent_dies
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PsFlags:
    """Lifetime of a ps task (no effect on other tasks)."""

    keep_serving: bool = option(
        False, "serve one job after another until SIGTERM; otherwise the task ends with its first job"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AloneFlags:
    """Training without a cluster."""

    alone: bool = option(False, "train in this process alone, without a cluster")


_HOSTS = "--ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224"
_COMMON = (
    *("ps_hosts", "worker_hosts", "job_name", "task_index", "cluster_file"),
    *("model", "model_option", "dataset", "dataset_option", "data_dir", "batch_size", "max_steps", "target_metric"),
    *("update", "update_option", "optimizer", "optimizer_option", "learning_rate"),
    *("logdir", "save_checkpoint_secs", "recover_timeout_secs", "isolation"),
)

PS_HELP = CommandHelp(
    usage=("python run_ps.py --ps_hosts=HOST:PORT,… --worker_hosts=HOST:PORT,… --task_index=N [flags]",),
    text="""Runs a parameter server until every worker is done. It accepts the training flags and ignores them,
so that all tasks can share one --flagfile.""",
    examples=(
        (f"python run_ps.py {_HOSTS}", "the only ps task of a cluster with two workers"),
        (f"python run_ps.py {_HOSTS} --keep_serving", "the same, for one job after another"),
    ),
    flags=(ClusterFlags, PsFlags, TrainConfig),
    common=("ps_hosts", "worker_hosts", "chief_hosts", "task_index", "cluster_file", "keep_serving", "isolation"),
)

WORKER_HELP = CommandHelp(
    usage=("python run_worker.py --ps_hosts=HOST:PORT,… --worker_hosts=HOST:PORT,… --task_index=N [flags]",),
    text="""Runs a worker. Worker 0 is the chief, unless --chief_hosts names a chief, which runs with
--job_name=chief. --job_name=evaluator evaluates every checkpoint of --logdir.""",
    examples=(
        (f"python run_worker.py {_HOSTS} --task_index=0 --logdir=runs/a", "the chief of two workers"),
        (f"python run_worker.py {_HOSTS} --task_index=1 --logdir=runs/a", "the other worker"),
        (f"python run_worker.py {_HOSTS} --job_name=evaluator --logdir=runs/a", "evaluate each checkpoint"),
    ),
    flags=(ClusterFlags, TrainConfig),
    common=_COMMON,
)

TASK_HELP = CommandHelp(
    usage=("ps_trainer task [flags]",),
    text="Runs the task that TF_CONFIG or --job_name and --task_index name.",
    examples=(
        ("ps_trainer task --logdir=runs/a", "the task that the environment variable TF_CONFIG describes"),
        ("ps_trainer task --cluster_file=cluster.json --job_name=ps", "a ps task of the cluster in a file"),
        (f"ps_trainer task {_HOSTS} --job_name=worker --task_index=1", "the second of two workers"),
    ),
    flags=(ClusterFlags, AloneFlags, PsFlags, TrainConfig),
    common=("alone", *_COMMON),
)


def main_ps(argv: Sequence[str]) -> int:
    """Runs a ps task, as `run_ps.py` does, and returns its exit code."""
    return run_main(lambda: _run(argv, PS_HELP, ("ps",), "ps", os.environ))


def main_worker(argv: Sequence[str]) -> int:
    """Runs a worker, the chief or the evaluator, as `run_worker.py` does, and returns its exit code."""
    return run_main(lambda: _run(argv, WORKER_HELP, ("worker", "chief", "evaluator"), "worker", os.environ))


def main_task(argv: Sequence[str]) -> int:
    """Runs the task that TF_CONFIG or the flags name, as `ps_trainer task` does, and returns its exit code."""
    return run_main(lambda: _run(argv, TASK_HELP, JOB_NAMES, None, os.environ))


def _run(
    argv: Sequence[str],
    command: CommandHelp,
    roles: Sequence[str],
    default_role: str | None,
    environ: Mapping[str, str],
) -> int:
    # Before anything else: a fault may freeze the task at any moment from its start on.
    wake_when_parent_dies()
    parsed = flags_lib.parse(argv, command, *command.flags)
    cluster_flags, *others, config = parsed.groups
    own = {name: getattr(group, name) for group in others for name in ("alone", "keep_serving") if hasattr(group, name)}
    if own.get("alone"):
        cluster = one_process.resolve(cluster_flags, environ)
        one_process.check(config)
    else:
        cluster = sources.resolve(
            cluster_flags,
            environ,
            roles=roles,
            default_role=default_role,
            is_colocated=config.placement == COLOCATED,
        )
    config.check(has_batch_size="batch_size" in parsed.given)
    # TensorFlow would notice a port in use only after its import, and its error names neither the port nor the cause.
    if cluster.job_name != "evaluator" and not cluster.is_alone:
        ports.check_port_free(cluster.own_address)
    start_logging()

    from ps_trainer.runtime import environment, tensorflow_import

    environment.prepare(is_ps=cluster.job_name == "ps")
    tensorflow_import.load()

    from ps_trainer.training import task

    return task.run(cluster, config, given=parsed.given, keep_serving=own.get("keep_serving", False))
