"""`ps_trainer completion`: prints a script with which a shell completes commands, flags, and names of components.

The script contains all words, so that no Python starts when the user presses Tab.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ps_trainer.cli import completion_scripts, help_groups
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import help as help_lib
from ps_trainer.cli.command_wrapper import run_main
from ps_trainer.cli.completion_scripts import Flag
from ps_trainer.cli.help import CommandHelp
from ps_trainer.errors import EXIT_DONE, UsageError, did_you_mean

SHELLS = {
    "bash": completion_scripts.bash,
    "zsh": completion_scripts.zsh,
    "fish": completion_scripts.fish,
}

HELP = CommandHelp(
    usage=("ps_trainer completion bash|zsh|fish",),
    text="Prints a script with which the shell completes commands, flags, and names of components. After an update of"
    " ps_trainer, print it again. The folder of the file must exist. Bash loads the file if the package bash-completion"
    " is installed; otherwise source the file in ~/.bashrc.",
    examples=(
        ("ps_trainer completion bash > ~/.local/share/bash-completion/completions/ps_trainer", "for bash"),
        ("ps_trainer completion zsh > ~/.zfunc/_ps_trainer", "for zsh, with ~/.zfunc in fpath before compinit"),
        ("ps_trainer completion fish > ~/.config/fish/completions/ps_trainer.fish", "for fish"),
    ),
    words=tuple(SHELLS),
    words_after=dict.fromkeys(SHELLS, ()),
)


def main_completion(argv: Sequence[str]) -> int:
    """Prints the script for the shell in `argv`; returns the exit code."""
    return run_main(lambda: _run(argv))


def table() -> completion_scripts.CompletionTable:
    """Returns the words of all commands."""
    # Imported here, because the table of commands names this module.
    from ps_trainer.cli import main, task
    from ps_trainer.data.generators.generate import GENERATORS

    commands = []
    for name, command in main.COMMANDS.items():
        described = command.help()
        if name == "data":
            after = {**described.words_after, "generate": (*described.words_after["generate"], *GENERATORS)}
            described = dataclasses.replace(described, words_after=after)
        commands.append(_command(name, command.summary, described))
    scripts = {"run_ps.py": task.PS_HELP, "run_worker.py": task.WORKER_HELP}
    return completion_scripts.CompletionTable(
        tuple(commands), tuple(_command(name, "", described) for name, described in scripts.items())
    )


def _run(argv: Sequence[str]) -> int:
    flags_lib.parse(["completion", *[arg for arg in argv[1:] if arg.startswith("-")]], HELP)
    names = [arg for arg in argv[1:] if not arg.startswith("-")]
    if len(names) != 1:
        raise UsageError(f"completion takes one shell, got {len(names)}; choose from {', '.join(SHELLS)}")
    if names[0] not in SHELLS:
        raise UsageError(
            f"completion {names[0]}: unknown shell; {did_you_mean(names[0], SHELLS)}known: {', '.join(SHELLS)}"
        )
    print(SHELLS[names[0]](table()), end="")
    return EXIT_DONE


def _command(name: str, summary: str, described: CommandHelp) -> completion_scripts.Command:
    flags = []
    for flag, (field, hint) in described.fields().items():
        components = help_lib.table_of(flag)
        values = tuple(components.names()) if components else tuple(map(str, field.metadata.get("choices", ())))
        brief = field.metadata.get("help", "").partition(";")[0]
        flags.append(Flag(flag, brief, values, is_bool=hint is bool, is_path=flag in help_groups.PATHS))
    if flags:
        flags.append(Flag("flagfile", "read flags from a file", (), is_bool=False, is_path=True))
    for flag, brief in (("help", "examples and common flags"), ("helpfull", "every flag")):
        flags.append(Flag(flag, brief, (), is_bool=None, is_path=False))
    after: Mapping[str, tuple[str, ...]] = described.words_after
    return completion_scripts.Command(name, summary, tuple(flags), described.words, after)
