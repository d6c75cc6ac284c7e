"""`ps_trainer experiment`: repeats experiments of the literature, with a verdict on each claim."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from ps_trainer import component_tables
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.errors import EXIT_DONE, UnknownNameError, UsageError, did_you_mean
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentFlags:
    """Settings of a run of the experiments."""

    quick: bool = option(False, "short form of each experiment, up to five minutes")
    out_dir: str | None = option(None, "folder for all files; none = runs/experiments, or runs/experiments-quick")
    seeds: int | None = option(None, "repetitions of each run; none = the number that the experiment declares", least=1)
    check: bool = option(False, "return exit code 1 also if a claim is refuted")
    keep_runs: bool = option(False, "reuse finished runs although the code has changed since; the report says so")
    plain: bool = option(False, "plain lines instead of a progress bar, also on a terminal")


HELP = CommandHelp(
    usage=("ps_trainer experiment list", "ps_trainer experiment NAME… | all [flags]"),
    text="""Repeats experiments of the literature on this machine, one run after the other. Writes a report for
each, with tables, plots and a verdict on every claim, and an index page of all reports. Called again,
it continues where it was interrupted.""",
    examples=(
        ("ps_trainer experiment list", "names, titles and sources"),
        ("ps_trainer experiment async_vs_sync --quick", "the short form of one experiment, up to five minutes"),
        ("ps_trainer experiment all", "every experiment in full, which takes hours"),
    ),
    flags=(ExperimentFlags,),
    words=("list", "all", *component_tables.EXPERIMENTS.names()),
)


def main_experiment(argv: Sequence[str]) -> int:
    """Runs the experiments that `argv` names; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    # Names may stand anywhere among the flags, so the value of a flag must follow "=".
    names = [arg for arg in argv[1:] if not arg.startswith("-")]
    flags = [arg for arg in argv[1:] if arg.startswith("-")]
    parsed = flags_lib.parse([argv[0], *flags], HELP, ExperimentFlags)
    (given,) = parsed.groups
    _check_names(names)
    # Clusters and simulations run on CPUs: the processes of all workers would have to share a GPU's memory.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if names == ["list"]:
        print(describe())
        return EXIT_DONE

    from ps_trainer.experiments.harness import invocation, plots

    plots.check_available()
    with importing_tensorflow():
        import tensorflow as tf

        experiments = invocation.create(component_tables.EXPERIMENTS.names() if names == ["all"] else names)
        # At the first look for GPUs TensorFlow reports their absence as an error; here nobody sees it.
        tf.config.list_physical_devices("GPU")
    request = invocation.Request(
        quick=given.quick,
        out_dir=pathlib.Path(given.out_dir) if given.out_dir else None,
        num_seeds=given.seeds,
        check=given.check,
        keep_runs=given.keep_runs,
        plain=given.plain,
    )
    return invocation.run(experiments, request, ["ps_trainer", "experiment", *argv[1:]])


def describe() -> str:
    """Returns the name, title and source of every registered experiment, as text."""
    from ps_trainer.experiments.harness.report import title_of

    lines = []
    with importing_tensorflow():
        for name in component_tables.EXPERIMENTS.names():
            experiment = component_tables.EXPERIMENTS.create(name)
            lines += [f"{name}", f"    {title_of(experiment)}", f"    {experiment.source}"]
    return "\n".join(lines)


def _check_names(names: Sequence[str]) -> None:
    known = component_tables.EXPERIMENTS.names()
    if not names:
        raise UsageError(f"missing name of an experiment; give all, list, or some of {', '.join(known)}")
    for name in names:
        if name in ("list", "all") and len(names) > 1:
            raise UsageError(f"experiment {' '.join(names)}: give {name} without other names")
        if name not in ("list", "all", *known) and ":" not in name:
            raise UnknownNameError(
                f"experiment {name}: no such experiment; {did_you_mean(name, known)}known: {', '.join(known)}, all,"
                " list, or your own class as package.module:Class (write flags as --name=value)"
            )
