"""`ps_trainer COMMAND`: finds the command and runs it.

This file imports a command's module only when the user calls that command, so that help appears at once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import ps_trainer
from ps_trainer.cli.command_wrapper import leave, run_main
from ps_trainer.cli.help import HELP, HELP_FULL, CommandHelp
from ps_trainer.errors import EXIT_DONE, UsageError, did_you_mean


class _Command(NamedTuple):
    module: str
    function: str
    summary: str
    help_name: str = "HELP"

    def help(self) -> CommandHelp:
        """Returns the usage, examples and flags of the command."""
        return getattr(importlib.import_module(self.module), self.help_name)


COMMANDS = {
    "local": _Command("ps_trainer.cli.local", "main_local", "train on a whole cluster on this machine"),
    "task": _Command(
        "ps_trainer.cli.task", "main_task", "run one task of a cluster (role from TF_CONFIG or flags)", "TASK_HELP"
    ),
    "doctor": _Command("ps_trainer.cli.doctor", "main_doctor", "find what keeps a cluster's tasks from working"),
    "evaluate": _Command("ps_trainer.cli.evaluate", "main_evaluate", "compute the test metrics of a checkpoint"),
    "predict": _Command("ps_trainer.cli.predict", "main_predict", "write a checkpoint's predictions for examples"),
    "export": _Command("ps_trainer.cli.export", "main_export", "write a checkpoint as a SavedModel"),
    "serve": _Command("ps_trainer.cli.serve", "main_serve", "serve predictions over HTTP (TensorFlow Serving's REST)"),
    "generate": _Command("ps_trainer.cli.generate", "main_generate", "continue a prompt with a language model"),
    "embeddings": _Command("ps_trainer.cli.embeddings", "main_embeddings", "find similar words; export word vectors"),
    "checkpoint": _Command("ps_trainer.cli.checkpoint", "main_checkpoint", "show, verify and plan with checkpoints"),
    "compare": _Command(
        "ps_trainer.cli.compare", "main_compare", "draw several runs beside each other", "COMPARE_HELP"
    ),
    "plot": _Command("ps_trainer.cli.compare", "main_plot", "draw the curves of one run", "PLOT_HELP"),
    "simulate": _Command(
        "ps_trainer.cli.simulate", "main_simulate", "predict speed and staleness of any number of workers"
    ),
    "experiment": _Command("ps_trainer.cli.experiment", "main_experiment", "repeat experiments of the literature"),
    "data": _Command("ps_trainer.cli.data", "main_data", "identify data files; write generated data"),
    "completion": _Command(
        "ps_trainer.cli.completion", "main_completion", "print a script that completes commands and flags in a shell"
    ),
    "list": _Command(
        "ps_trainer.cli.listing",
        "main_list",
        "describe models, update rules and other components, with options",
    ),
}

# Commands that only the launcher calls; help and completion do not show them.
_INTERNAL = {
    "check_model": _Command("ps_trainer.cli.check_model", "main_check_model", "check a run's model"),
}

_EXAMPLES = (
    ("ps_trainer local", "train the default model with 1 ps task and 2 workers"),
    ("ps_trainer list updates", "the update rules, with a line about each"),
    ("ps_trainer simulate --num_workers=200", "estimate the speed of 200 workers"),
)


def main(argv: Sequence[str]) -> int:
    """Runs the command that `argv[1]` names; returns its exit code."""
    name = argv[1] if len(argv) > 1 else "help"
    if name == "help" and len(argv) > 2:
        return main([argv[0], argv[2], "--help"])
    if name in (*HELP, *HELP_FULL, "help"):
        print(_help())
        return EXIT_DONE
    if name == "--version":
        print(f"ps_trainer {ps_trainer.__version__}")
        return EXIT_DONE
    command = COMMANDS.get(name) or _INTERNAL.get(name)
    if command is None:
        return run_main(lambda: _reject(name))

    def run() -> int:
        function = getattr(importlib.import_module(command.module), command.function)
        return int(function([f"{argv[0]} {name}", *argv[2:]]))

    return run_main(run)  # which also handles Ctrl-C during the import


def console() -> None:
    """Runs the console script `ps_trainer`."""
    leave(main(sys.argv))


def _reject(name: str) -> int:
    raise UsageError(f"unknown command {name!r}; {did_you_mean(name, COMMANDS)}known: {', '.join(COMMANDS)}")


def _help() -> str:
    width = max(len(name) for name in COMMANDS) + 2
    commands = "\n".join(f"  {name.ljust(width)}{command.summary}" for name, command in COMMANDS.items())
    examples = "\n".join(f"  # {purpose}\n  {line}" for line, purpose in _EXAMPLES)
    return (
        f"usage: ps_trainer COMMAND [flags]\n\nExamples:\n{examples}\n\nCommands:\n{commands}\n\n"
        "`ps_trainer COMMAND --help` prints examples and the common flags of a command, --helpfull all flags.\n"
        "Start a cluster of several machines with `python run_ps.py` and `python run_worker.py`."
    )
