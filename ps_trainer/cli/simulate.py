"""`ps_trainer simulate`: runs an update rule on a cluster of any size, in virtual time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import simulate_train
from ps_trainer.cli.command_wrapper import run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.errors import EXIT_DONE, OptionError, UsageError
from ps_trainer.options import option, repeatable

_CLUSTER_FIELDS = (
    *("num_workers", "num_ps", "colocated", "model_bytes", "worker_bytes_per_sec", "ps_bytes_per_sec"),
    *("latency_secs", "ps_secs", "start_secs", "seed"),
)

# The option that --backup_workers=b sets, by rule: its key, and its value for n workers.
_BACKUP_OPTIONS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "backup": ("backup_workers", lambda n, b: b),
    "sync": ("replicas_to_aggregate", lambda n, b: n - b),
    "token_queue": ("replicas_to_aggregate", lambda n, b: n - b),
    "stock_sync": ("replicas_to_aggregate", lambda n, b: n - b),
    "k_sync": ("k", lambda n, b: n - b),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateFlags:
    """The cluster, the update rule, and the length of the simulation."""

    num_workers: int = option(8, "workers, including backup workers", least=1)
    num_ps: int = option(1, "ps tasks", least=1)
    colocated: bool = option(False, "ps task i is on the host of worker i and uses its link, --worker_bytes_per_sec")
    compute: tuple[str, ...] = repeatable(
        "compute times of the workers, as name:key=value,…; the last one that matches a worker counts", ("lognormal",)
    )
    update: str | None = option(None, "update rule; none = async, or backup if --backup_workers is given")
    update_option: tuple[str, ...] = repeatable("option of the update rule, as key=value")
    backup_workers: int | None = option(
        None, "workers that an update does not wait for; needs --update=backup, sync or k_sync", least=0
    )
    max_updates: int = option(10_000, "global_step at which the simulation ends", least=1)
    model_bytes: int = option(0, "size of the parameters, and so of a pull or push, in bytes", least=0)
    worker_bytes_per_sec: float = option(
        math.inf, "bandwidth of a worker's link in each direction", above=0, most=math.inf
    )
    ps_bytes_per_sec: float = option(
        math.inf, "bandwidth of a ps task's link in each direction", above=0, most=math.inf
    )
    latency_secs: float = option(0.0, "seconds added to every pull and push", least=0)
    ps_secs: float = option(
        0.0, "seconds that a single ps task needs to apply a push; num_ps tasks share this work", least=0
    )
    start_secs: float = option(0.0, "seconds in which the workers begin, one after the other; 0 = all at once", least=0)
    seed: int = option(0, "seed of the compute times; with --model also of initial values and data order", least=0)
    out_dir: str | None = option(None, "folder for summary.json and CSV tables; none = only print")
    steps: bool = option(False, "with --out_dir: also write steps.csv, a line per step of a worker")


HELP = CommandHelp(
    usage=("ps_trainer simulate [flags]",),
    text="""Predicts time per update, throughput, staleness and dropped gradients of a cluster. It simulates events
in virtual time, without training and without TensorFlow. With --model the command also trains that
model in this process: each gradient is computed at the parameters that its worker would have had, on
the batches of a real run.""",
    examples=(
        ("ps_trainer simulate --num_workers=200", "asynchronous training on 200 workers"),
        (
            "ps_trainer simulate --num_workers=200 --backup_workers=4 --compute=lognormal:sigma=0.5",
            "synchronous training with 4 backup workers, and compute times that vary",
        ),
        ("ps_trainer simulate --num_workers=16 --model=softmax --max_updates=500", "also train a model"),
    ),
    flags=(SimulateFlags, simulate_train.ReplayFlags),
)


def main_simulate(argv: Sequence[str]) -> int:
    """Runs the simulation that `argv` describes and prints the result; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, SimulateFlags, simulate_train.ReplayFlags)
    given, trained_flags = parsed.groups
    update, update_options = update_of(given)
    if given.steps and given.out_dir is None:
        raise UsageError("--steps writes steps.csv into a folder; add --out_dir=…")
    simulate_train.check(trained_flags, parsed.given)

    from ps_trainer.disturbances import delays
    from ps_trainer.simulation import report
    from ps_trainer.simulation.cluster import ClusterModel
    from ps_trainer.simulation.simulate import stream
    from ps_trainer.simulation.summary import summarise

    cluster = ClusterModel(
        compute=[delays.parse(text, "--compute") for text in given.compute],
        **{name: getattr(given, name) for name in _CLUSTER_FIELDS},
    )
    blocks = stream(cluster, update, update_options, num_updates=given.max_updates)
    # Before the simulation, so that a wrong name or option of the training ends the command at once.
    replay_request = None
    if trained_flags.model is not None:
        replay_request = simulate_train.ReplayRequest(
            trained_flags, parsed.given, cluster, update, update_options, given.max_updates
        )
    folder = _create_folder(given.out_dir)
    with contextlib.ExitStack() as files:
        if given.steps and folder is not None:
            file = files.enter_context((folder / "steps.csv").open("w", newline="", encoding="utf-8"))
            blocks = report.write_steps(blocks, file)
        if replay_request is not None:
            blocks = replay_request.keep(blocks)
        summary = summarise(blocks, cluster.num_workers, given.max_updates)
    rule = " ".join([update, *update_options])
    print(f"{cluster.num_workers} workers, {cluster.num_ps} ps, {rule}, compute {', '.join(given.compute)}")
    print(f"virtual time (level L0), seed {cluster.seed}")
    # Flushed, because a training that follows may take minutes.
    print(report.describe(summary), flush=True)
    figures = {"summary": report.to_json(summary)}
    if replay_request is not None:
        figures["training"] = replay_request.train(folder)
    if folder is not None:
        settings = dataclasses.asdict(given) | {"update": update, "update_option": update_options}
        if replay_request is not None:
            settings |= replay_request.settings
        _write(folder, argv, settings, figures)
        report.write_tables(summary, folder)
        print(f"written to {shlex.quote(str(folder))}")
    return EXIT_DONE


def update_of(flags: SimulateFlags) -> tuple[str, list[str]]:
    """Returns the update rule that the flags ask for, and its options.

    Raises:
        OptionError: `--backup_workers` with a rule without backup workers, or with the number of all workers.
    """
    update_options = list(flags.update_option)
    if flags.backup_workers is None:
        return flags.update or "async", update_options
    update = flags.update or "backup"
    if update not in _BACKUP_OPTIONS:
        raise OptionError(
            f"--backup_workers={flags.backup_workers}: --update={update} has no backup workers; use one of"
            f" {', '.join(_BACKUP_OPTIONS)}, or remove --backup_workers"
        )
    if not 0 <= flags.backup_workers < flags.num_workers:
        raise OptionError(
            f"--backup_workers={flags.backup_workers} of --num_workers={flags.num_workers}; give 0 to"
            f" {flags.num_workers - 1}, because an update waits for all other workers"
        )
    key, value = _BACKUP_OPTIONS[update]
    return update, [*update_options, f"{key}={value(flags.num_workers, flags.backup_workers)}"]


def _create_folder(out_dir: str | None) -> pathlib.Path | None:
    if out_dir is None:
        return None
    folder = pathlib.Path(out_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out_dir={out_dir} cannot be made: {error.strerror}; give another folder") from error
    return folder


def _write(folder: pathlib.Path, argv: Sequence[str], settings: dict[str, Any], figures: dict[str, Any]) -> None:
    from ps_trainer.experiments.harness.provenance import provenance

    result = {
        "level": "L0 virtual time",
        # JSON has no infinity.
        "settings": {name: str(value) if value == math.inf else value for name, value in settings.items()},
        **figures,
        "provenance": provenance(["ps_trainer", "simulate", *argv[1:]]),
    }
    (folder / "summary.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
