"""`python -m ps_trainer <command>`: finds the command and runs it.

This file imports a command's module only when the user calls that command, so that help appears at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import ps_trainer
from ps_trainer.cli.command_wrapper import leave, run_main
from ps_trainer.errors import EXIT_DONE, UsageError, did_you_mean


class _Command(NamedTuple):
    module: str
    function: str
    summary: str


COMMANDS = {
    "local": _Command("ps_trainer.cli.local", "main_local", "train on a whole cluster on this machine"),
    "task": _Command("ps_trainer.cli.task", "main_task", "run one task of a cluster (role from TF_CONFIG or flags)"),
    "doctor": _Command(
        "ps_trainer.cli.doctor", "main_doctor", "report problems that keep a cluster's tasks from working"
    ),
    "evaluate": _Command("ps_trainer.cli.evaluate", "main_evaluate", "compute the test metrics of a checkpoint"),
    "export": _Command("ps_trainer.cli.export", "main_export", "write a checkpoint as a SavedModel"),
    "predict": _Command("ps_trainer.cli.predict", "main_predict", "write a checkpoint's predictions for examples"),
    "compare": _Command("ps_trainer.cli.compare", "main_compare", "compare runs: curves, staleness, bytes, faults"),
    "plot": _Command("ps_trainer.cli.compare", "main_plot", "draw the curves of one run"),
    "checkpoint": _Command(
        "ps_trainer.cli.checkpoint",
        "main_checkpoint",
        "show what checkpoints contain, and whether they are complete and fit a run",
    ),
    "data": _Command(
        "ps_trainer.cli.data", "main_data", "identify data files and the flags that read them; write generated data"
    ),
    "experiment": _Command(
        "ps_trainer.cli.experiment", "main_experiment", "repeat experiments of the literature, with a verdict on each"
    ),
    "simulate": _Command(
        "ps_trainer.cli.simulate",
        "main_simulate",
        "predict speed and staleness of any number of workers, in virtual time",
    ),
    "list": _Command("ps_trainer.cli.listing", "main_list", "print models, datasets, update rules … and their options"),
}


def main(argv: Sequence[str]) -> int:
    """Runs the command that `argv[1]` names; returns its exit code."""
    name = argv[1] if len(argv) > 1 else ""
    if name in ("--help", "-h", "help"):
        print(_help())
        return EXIT_DONE
    if name == "--version":
        print(f"ps_trainer {ps_trainer.__version__}")
        return EXIT_DONE
    if name not in COMMANDS:
        return run_main(lambda: _reject(name))
    command = COMMANDS[name]
    function = getattr(importlib.import_module(command.module), command.function)
    return function([f"{argv[0]} {name}", *argv[2:]])


def console() -> None:
    """The console script `ps_trainer`."""
    leave(main(sys.argv))


def _reject(name: str) -> int:
    known = ", ".join(COMMANDS)
    if not name:
        raise UsageError(f"missing command; choose from {known}; --help explains them")
    raise UsageError(f"unknown command {name!r}; {did_you_mean(name, COMMANDS)}known: {known}")


def _help() -> str:
    width = max(len(name) for name in COMMANDS) + 2
    commands = "\n".join(f"  {name.ljust(width)}{command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: python -m ps_trainer <command> [flags]\n\n"
        f"{commands}\n\n"
        "`python -m ps_trainer <command> --help` prints a command's flags. Start a cluster of several machines\n"
        "with `python run_ps.py` and `python run_worker.py`."
    )
