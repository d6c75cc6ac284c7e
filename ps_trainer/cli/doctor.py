"""`ps_trainer doctor`: reports problems that keep the tasks of a job from working together."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.task import PsFlags
from ps_trainer.cluster import checks, sources
from ps_trainer.cluster.checks import TaskAddress
from ps_trainer.cluster.config import JOB_NAMES, ClusterConfig
from ps_trainer.cluster.findings import OK, UNKNOWN, ClusterFinding, will_fail
from ps_trainer.cluster.sources import ClusterFlags
from ps_trainer.config import COLOCATED, TrainConfig
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED

HELP = CommandHelp(
    usage=("ps_trainer doctor --ps_hosts=HOST:PORT,… --worker_hosts=HOST:PORT,… [flags]",),
    text="""Examines a cluster before its tasks start or while they run. Each line is one finding: ok, warning,
will fail, or not known if the check needs another machine. Takes all flags of the tasks, from the
same sources. Exit code 1 if something will fail. The command does not disturb running tasks,
and does not keep tasks from starting later.""",
    examples=(
        (
            "ps_trainer doctor --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224",
            "check names, ports and connections",
        ),
        ("ps_trainer doctor --cluster_file=cluster.json --logdir=runs/a", "also check the folder of a run"),
    ),
    flags=(ClusterFlags, PsFlags, TrainConfig),
    common=("ps_hosts", "worker_hosts", "chief_hosts", "job_name", "task_index", "cluster_file", "logdir", "isolation"),
)


def main_doctor(argv: Sequence[str]) -> int:
    """Prints the findings; returns 1 if something will fail, else 0."""
    return run_main(lambda: _run(argv, os.environ))


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    parsed = flags_lib.parse(argv, HELP, ClusterFlags, PsFlags, TrainConfig)
    cluster_flags, _, config = parsed.groups
    # Without a role in any source the doctor acts as an evaluator, which like the doctor has no address in the cluster.
    cluster = sources.resolve(
        cluster_flags,
        environ,
        roles=JOB_NAMES,
        default_role="evaluator",
        is_colocated=config.placement == COLOCATED,
    )
    config.check()
    found = []
    for finding in _examine(cluster, config, parsed.given, environ):
        print(finding.line(), flush=True)
        found.append(finding)
    return EXIT_FAILED if will_fail(found) else EXIT_DONE


def _examine(
    cluster: ClusterConfig, config: TrainConfig, given: frozenset[str], environ: Mapping[str, str]
) -> Iterator[ClusterFinding]:
    from ps_trainer.runtime import environment

    addresses = checks.probe(cluster)
    is_running = any(address.answers for address in addresses)
    yield from checks.names(addresses)
    yield from filter(None, [checks.own_host(cluster, addresses)])
    yield environment.proxies(environ)
    yield from checks.own_ports(addresses)
    yield from checks.others(addresses, is_running=is_running)
    here = [(f"{address.job_name}-{address.task_index}", address.port) for address in addresses if address.is_local]
    if here:
        yield checks.listening(here, config.isolation)
    yield from _folder_findings(cluster, config, addresses)
    if not is_running:
        yield ClusterFinding(
            UNKNOWN,
            "tasks",
            "no task runs, so none could report its cluster definition, model, TensorFlow, clock and connections",
            "run this again while the tasks wait for each other; every task runs the same checks when it starts",
        )
        return
    environment.prepare(is_ps=True)  # no GPU is needed

    with importing_tensorflow():
        from ps_trainer.runtime import doctor

    # Only flags that the user gave: the doctor may be called without the flags of the training.
    settings = {name: value for name, value in config.agreement().items() if name in given}
    yield from doctor.examine(cluster, addresses, settings)


def _folder_findings(
    cluster: ClusterConfig, config: TrainConfig, addresses: Sequence[TaskAddress]
) -> Iterator[ClusterFinding]:
    """Returns the findings about the folder, if this is the chief's machine: only the chief saves checkpoints."""
    from ps_trainer.runtime import logdir_checks

    job_name, index = cluster.worker_tasks[0]
    chief = next(address for address in addresses if (address.job_name, address.task_index) == (job_name, index))
    if config.logdir is None:
        yield ClusterFinding(
            UNKNOWN, logdir_checks.FOLDER, "no --logdir is given", "give the --logdir of the tasks to check it"
        )
    elif not chief.is_local and not cluster.is_chief:
        text = f"only the chief uses --logdir={config.logdir}, and the chief {chief.name} is on another machine"
        yield ClusterFinding(UNKNOWN, logdir_checks.FOLDER, text, "run this command there as well")
    else:
        yield from logdir_checks.findings(config.logdir)
        yield from _leftover_findings(config.checkpoint_dir)


def _leftover_findings(checkpoint_dir: pathlib.Path | None) -> Iterator[ClusterFinding]:
    """Yields a finding if the folder contains checkpoints from which the run would continue."""
    count = len(list(checkpoint_dir.glob("model.ckpt-*.index"))) if checkpoint_dir is not None else 0
    if count:
        yield ClusterFinding(
            OK, "folder", f"{count} checkpoints in {checkpoint_dir}: training continues from the newest"
        )
