"""`ps_trainer local`: a whole cluster on this machine."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence

from ps_trainer import shadowing
from ps_trainer.cli import check_model
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.config import COLOCATED, TrainConfig
from ps_trainer.errors import OptionError, UnknownNameError, UsageError, did_you_mean
from ps_trainer.launch.hosts import Hosts, LocalHosts
from ps_trainer.launch.hosts_netns import NetnsHosts
from ps_trainer.launch.hosts_rate import parse_rate
from ps_trainer.launch.local_cluster import LocalClusterSpec, resolved_placement
from ps_trainer.options import option, repeatable, same_as

_HOSTS = ("local", "netns")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalFlags:
    """The cluster, its hosts, faults and display."""

    num_ps: int = same_as(LocalClusterSpec, "num_ps")
    num_workers: int = same_as(LocalClusterSpec, "num_workers")
    num_evaluators: int = same_as(LocalClusterSpec, "num_evaluators")
    hosts: str = option("local", "local = tasks share this machine's network; netns = shaped hosts (Linux, root)")
    rate: str | None = option(None, "with --hosts=netns: rate of each task's link in each direction, e.g. 200mbit")
    ps_rate: str | None = option(None, "rate for the ps tasks only, instead of --rate")
    worker_rate: str | None = option(None, "rate for the workers only, instead of --rate")
    max_restarts: int | None = same_as(LocalClusterSpec, "max_restarts")
    fault: tuple[str, ...] = repeatable(
        "a fault to inject, e.g. kill:worker:1@step=200; the others are term:, freeze:ps:0@step=50,secs=20, raise:,"
        " cut:, slow_ps:0@step=50,ms=100, chaos:kills=10,roles=ps+worker+chief,seed=0"
    )
    preload: bool = option(True, "import TensorFlow once and fork all tasks from that process (Linux only)")
    plain: bool = option(False, "plain lines instead of a live table, also on a terminal")


HELP = CommandHelp(
    usage=("ps_trainer local [flags]",),
    text="Starts ps tasks and workers on this machine, shows their progress, and ends when training is done.",
    examples=(
        ("ps_trainer local --num_workers=2 --max_steps=1000", "train the default model on the built-in digits"),
        (
            "ps_trainer local --num_workers=4 --update=sync --logdir=runs/sync",
            "train synchronously, and write checkpoints and metrics",
        ),
        (
            "ps_trainer local --logdir=runs/kill --max_restarts=3 --fault=kill:worker:1@step=200",
            "kill a worker at step 200, and restart it",
        ),
    ),
    flags=(LocalFlags, TrainConfig),
)


def main_local(argv: Sequence[str]) -> int:
    """Runs a local cluster; returns its exit code."""
    return run_main(lambda: _run(argv))


def create_hosts(flags: LocalFlags) -> Hosts:
    """Returns the hosts that the flags describe; nothing is created on the machine yet.

    Raises:
        UnknownNameError: The value of `--hosts` is unknown.
        OptionError: A rate is malformed, or given without shaped hosts.
    """
    texts = {name: getattr(flags, name) for name in ("rate", "ps_rate", "worker_rate")}
    if flags.hosts not in _HOSTS:
        raise UnknownNameError(
            f"--hosts={flags.hosts}: unknown; {did_you_mean(flags.hosts, _HOSTS)}known: {', '.join(_HOSTS)}"
        )
    if flags.hosts == "local":
        given = [f"--{name}={text}" for name, text in texts.items() if text is not None]
        if given:
            raise OptionError(f"{' '.join(given)} needs a link for each task; add --hosts=netns")
        return LocalHosts()
    rates = {name: parse_rate(text, f"--{name}") if text is not None else None for name, text in texts.items()}
    return NetnsHosts(ps_rate=rates["ps_rate"] or rates["rate"], worker_rate=rates["worker_rate"] or rates["rate"])


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, LocalFlags, TrainConfig)
    local_flags, config = parsed.groups
    config.check(has_batch_size="batch_size" in parsed.given)
    config, num_ps = resolved_placement(config, local_flags.num_ps, local_flags.num_workers, parsed.given)
    hosts = create_hosts(local_flags)
    cluster = LocalClusterSpec(
        config=config,
        train_args=flags_lib.to_args(
            config, parsed.given | ({"placement"} if config.placement == COLOCATED else set())
        ),
        num_ps=num_ps,
        num_workers=local_flags.num_workers,
        num_evaluators=local_flags.num_evaluators,
        faults=local_flags.fault,
        max_restarts=local_flags.max_restarts,
        preload=local_flags.preload,
        plain=local_flags.plain,
    )
    cluster.check()
    if local_flags.hosts == "netns" and cluster.is_alone:
        raise OptionError("--hosts=netns --num_ps=0: one process has no link; remove --hosts, or give --num_ps=1")
    # The first entry of the path belongs to this process alone: its script's folder, or the working folder.
    if (problem := shadowing.problem_of_children(os.getcwd(), sys.path[1:])) is not None:
        raise UsageError(problem)
    if not cluster.is_forked:
        check_model.check_without_fork_server(config, cluster.train_args, cluster.num_workers)
    # Imported here because it imports rich, which would delay --help.
    from ps_trainer.launch import local

    return local.run(cluster, hosts=hosts)
