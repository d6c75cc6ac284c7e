"""`python -m ps_trainer <command>`: finds the command and runs it.

A command's module is imported when the command is called, so that help answers at once.
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


_COMMANDS = {
    "local": _Command("ps_trainer.cli.local", "main_local", "train on a whole cluster on this machine"),
    "task": _Command("ps_trainer.cli.task", "main_task", "run one task of a cluster (role from TF_CONFIG or flags)"),
    "doctor": _Command("ps_trainer.cli.doctor", "main_doctor", "say what will keep a cluster's tasks from working"),
    "evaluate": _Command("ps_trainer.cli.evaluate", "main_evaluate", "compute the test metrics of a checkpoint"),
    "export": _Command("ps_trainer.cli.export", "main_export", "write a checkpoint as a SavedModel"),
    "predict": _Command("ps_trainer.cli.predict", "main_predict", "write what a checkpoint says about examples"),
    "checkpoint": _Command(
        "ps_trainer.cli.checkpoint",
        "main_checkpoint",
        "say what checkpoints hold, whether they are whole, and fit a run",
    ),
    "data": _Command(
        "ps_trainer.cli.data", "main_data", "say what data files hold and how they are read; write generated sets"
    ),
    "experiment": _Command(
        "ps_trainer.cli.experiment", "main_experiment", "repeat experiments of the literature, with a verdict on each"
    ),
    "simulate": _Command(
        "ps_trainer.cli.simulate", "main_simulate", "say what any number of workers would do, in virtual time"
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
    if name not in _COMMANDS:
        return run_main(lambda: _refuse(name))
    command = _COMMANDS[name]
    function = getattr(importlib.import_module(command.module), command.function)
    return function([f"{argv[0]} {name}", *argv[2:]])


def console() -> None:
    """The console script `ps_trainer`."""
    leave(main(sys.argv))


def _refuse(name: str) -> int:
    known = ", ".join(_COMMANDS)
    if not name:
        raise UsageError(f"no command given; one of {known}; --help explains them")
    raise UsageError(f"unknown command {name!r}; {did_you_mean(name, _COMMANDS)}known: {known}")


def _help() -> str:
    width = max(len(name) for name in _COMMANDS) + 2
    commands = "\n".join(f"  {name.ljust(width)}{command.summary}" for name, command in _COMMANDS.items())
    return (
        "usage: python -m ps_trainer <command> [flags]\n\n"
        f"{commands}\n\n"
        "`python -m ps_trainer <command> --help` prints a command's flags. A cluster over several machines is started\n"
        "with `python run_ps.py` and `python run_worker.py`."
    )
