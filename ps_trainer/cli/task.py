"""The commands that run one task of a cluster.

They check the whole input before they import TensorFlow, which takes seconds.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import run_main, start_logging
from ps_trainer.cluster import ports, sources
from ps_trainer.cluster.config import JOB_NAMES
from ps_trainer.cluster.sources import ClusterFlags
from ps_trainer.config import TrainConfig
from ps_trainer.launch.parent_death import wake_when_parent_dies
from ps_trainer.options import option

_PS_USAGE = """python run_ps.py --ps_hosts=HOST:PORT,… --worker_hosts=HOST:PORT,… --task_index=N [flags]

Runs a parameter server until every worker is done. It accepts the training flags and ignores them, so that all tasks
can share one --flagfile."""

_WORKER_USAGE = """python run_worker.py --ps_hosts=HOST:PORT,… --worker_hosts=HOST:PORT,… --task_index=N [flags]

Runs a worker. Worker 0 is the chief, unless --chief_hosts names a chief, which runs with --job_name=chief.
--job_name=evaluator evaluates every checkpoint of --logdir."""

_TASK_USAGE = """python -m ps_trainer task [flags]

Runs the task that TF_CONFIG or --job_name and --task_index name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PsFlags:
    """Lifetime of a ps task (no effect on other tasks)."""

    keep_serving: bool = option(
        False, "serve one job after another until SIGTERM, instead of ending with the first job"
    )


def main_ps(argv: Sequence[str]) -> int:
    """`run_ps.py`: runs a ps task; returns its exit code."""
    return run_main(lambda: _run(argv, _PS_USAGE, ("ps",), "ps", os.environ))


def main_worker(argv: Sequence[str]) -> int:
    """`run_worker.py`: runs a worker, the chief or the evaluator; returns its exit code."""
    return run_main(lambda: _run(argv, _WORKER_USAGE, ("worker", "chief", "evaluator"), "worker", os.environ))


def main_task(argv: Sequence[str]) -> int:
    """`python -m ps_trainer task`: runs the task that TF_CONFIG or the flags name; returns its exit code."""
    return run_main(lambda: _run(argv, _TASK_USAGE, JOB_NAMES, None, os.environ))


def _run(
    argv: Sequence[str],
    usage: str,
    roles: Sequence[str],
    default_role: str | None,
    environ: Mapping[str, str],
) -> int:
    # Before anything else: a fault may freeze the task at any moment from its start on.
    wake_when_parent_dies()
    groups = (ClusterFlags, TrainConfig) if "ps" not in roles else (ClusterFlags, PsFlags, TrainConfig)
    cluster_flags, *ps_flags, config = flags_lib.parse(argv, usage, *groups).groups
    cluster = sources.resolve(cluster_flags, environ, roles=roles, default_role=default_role)
    config.check()
    # TensorFlow would notice a port in use only after its import, and its error names neither the port nor the cause.
    if cluster.job_name != "evaluator":
        ports.check_port_free(cluster.own_address)
    start_logging()

    from ps_trainer.runtime import environment

    environment.prepare(is_ps=cluster.job_name == "ps")

    from ps_trainer.training import task

    keep_serving = cluster.job_name == "ps" and ps_flags[0].keep_serving
    return task.run(cluster, config, keep_serving=keep_serving)
