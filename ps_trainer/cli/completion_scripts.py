"""The text of completion scripts for bash, zsh and fish, made from the words of all commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Flag(NamedTuple):
    """A flag.

    Attributes:
        name: Name without dashes.
        text: One line about it.
        values: Known values.
        is_bool: True for `--name` and `--noname`, False for `--name=value`, None for a flag that only has `--name`.
        is_path: Whether the value is a file or a folder.
    """

    name: str
    text: str
    values: tuple[str, ...]
    is_bool: bool | None
    is_path: bool

    def forms(self) -> tuple[str, ...]:
        """Returns the user's input, up to the value."""
        if self.is_bool is False:
            return (f"--{self.name}=",)
        return (f"--{self.name}", f"--no{self.name}") if self.is_bool else (f"--{self.name}",)


class Command(NamedTuple):
    """A command: its flags, the words that follow it, and the words that follow one of those."""

    name: str
    text: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]
    words_after: Mapping[str, tuple[str, ...]]


class CompletionTable(NamedTuple):
    """The commands of `ps_trainer`, and the scripts that are separate programs."""

    commands: tuple[Command, ...]
    scripts: tuple[Command, ...]


def bash(table: CompletionTable) -> str:
    """Returns the script for bash."""
    return _BASH % "\n".join(_shell_cases(table))


def zsh(table: CompletionTable) -> str:
    """Returns the script for zsh."""
    return _ZSH % "\n".join(_shell_cases(table))


def fish(table: CompletionTable) -> str:
    """Returns the script for fish."""
    lines = ["# Completion of ps_trainer for fish, printed by `ps_trainer completion fish`."]
    names = " ".join(command.name for command in table.commands)
    lines.append("complete -c ps_trainer -f")
    for command in table.commands:
        lines.append(
            f"complete -c ps_trainer -n 'not __fish_seen_subcommand_from {names}' -a {command.name}"
            f" -d {_fish_quote(command.text)}"
        )
    for command in table.commands:
        where = f"-c ps_trainer -n '__fish_seen_subcommand_from {command.name}"
        lines += _fish_flags(command, f"{where}'")
        words = " ".join(command.words)
        if words:
            once = f"; and not __fish_seen_subcommand_from {words}" if command.words_after else ""
            lines.append(f"complete {where}{once}' -f -a {_fish_quote(words)}")
        for word, after in command.words_after.items():
            offered = f"-f -a {_fish_quote(' '.join(after))}" if after else "-F"
            lines.append(f"complete {where}; and __fish_seen_subcommand_from {word}' {offered}")
        if not words and not any(flag.is_bool is False for flag in command.flags if not flag.is_path):
            lines.append(f"complete {where}' -F")  # its arguments are folders
    for script in table.scripts:
        lines += _fish_flags(script, f"-c {script.name}")
    return "\n".join(lines) + "\n"


def _fish_flags(command: Command, where: str) -> Iterator[str]:
    for flag in command.flags:
        text = f"-d {_fish_quote(flag.text)}"
        if flag.is_bool is False:
            values = f" -x -a {_fish_quote(' '.join(flag.values))}" if flag.values else " -r"
            yield f"complete {where} -l {flag.name}{values if not flag.is_path else ' -r -F'} {text}"
        else:
            for form in flag.forms():
                yield f"complete {where} -l {form.removeprefix('--')} {text}"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _shell_cases(table: CompletionTable) -> Iterator[str]:
    """Returns the branches of a `case` over "command:kind" that set `offered`; bash and zsh read the same text."""
    yield _case("ps_trainer:commands", (command.name for command in table.commands))
    for command in (*table.commands, *table.scripts):
        yield _case(f"{command.name}:flags", (form for flag in command.flags for form in flag.forms()))
        for flag in command.flags:
            if flag.values:
                yield _case(f"{command.name}:--{flag.name}", flag.values)
        if command.words:
            yield _case(f"{command.name}:", command.words)
        for word, after in command.words_after.items():
            yield _case(f"{command.name}:{word}", after)
        if command.words and not command.words_after:  # several names may follow
            yield _case(f"{command.name}:[a-z]*", command.words)


def _case(pattern: str, words: Iterator[str] | tuple[str, ...]) -> str:
    return f"    {pattern}) offered={shlex.quote(' '.join(words))} ;;"


# Where a value follows "=", bash splits the word there if COMP_WORDBREAKS contains "=", as it does by default.
_BASH = """\
# Completion of ps_trainer for bash, printed by `ps_trainer completion bash`.
_ps_trainer_words() {
  offered=
  case "$1" in
%s
  esac
}
_ps_trainer() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=${COMP_WORDS[0]##*/} first=1 prefix= flag= offered
  if [[ $command == ps_trainer ]]; then
    command=${COMP_WORDS[1]}
    first=2
  fi
  if [[ $current == "=" ]]; then
    flag=$previous current=
  elif [[ $previous == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  elif [[ $current == --*=* ]]; then
    flag=${current%%%%=*} prefix=${current%%%%=*}= current=${current#*=}
  fi
  if (( COMP_CWORD < first )); then
    _ps_trainer_words ps_trainer:commands
  elif [[ $flag == --* ]]; then
    _ps_trainer_words "${command}:$flag"
  elif [[ $current == -* ]]; then
    _ps_trainer_words "${command}:flags"
  else
    (( COMP_CWORD == first )) && previous=
    _ps_trainer_words "${command}:$previous"
  fi
  COMPREPLY=()
  local word
  for word in $offered; do
    [[ $word == "$current"* ]] && COMPREPLY+=("$prefix$word")
  done
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == --*= ]]; then
    compopt -o nospace 2> /dev/null
  fi
}
complete -o default -o bashdefault -F _ps_trainer ps_trainer run_ps.py run_worker.py
"""

_ZSH = """\
#compdef ps_trainer run_ps.py run_worker.py
# Completion of ps_trainer for zsh, printed by `ps_trainer completion zsh`.
_ps_trainer_words() {
  case "$1" in
%s
    *) offered= ;;
  esac
}
_ps_trainer() {
  local -a line found
  line=("${words[@]}")
  local current=${line[CURRENT]} previous=${line[CURRENT-1]} command=${line[1]##*/} first=2 offered= word
  if [[ $command == ps_trainer ]]; then
    command=${line[2]}
    first=3
  fi
  if (( CURRENT < first )); then
    _ps_trainer_words ps_trainer:commands
  elif [[ $current == --*=* ]]; then
    _ps_trainer_words "${command}:${current%%%%=*}"
    for word in ${=offered}; do found+=("${current%%%%=*}=$word"); done
    offered=
    if (( ! ${#found} )); then
      compset -P '*='
      _files
      return
    fi
  elif [[ $current == -* ]]; then
    _ps_trainer_words "${command}:flags"
  else
    (( CURRENT == first )) && previous=
    _ps_trainer_words "${command}:$previous"
  fi
  found+=(${=offered})
  if (( ! ${#found} )); then
    _files
    return
  fi
  compadd -S '' -- ${(M)found:#--*=}
  compadd -- ${found:#--*=}
}
if [[ $funcstack[1] == _ps_trainer ]]; then
  _ps_trainer "$@"
else
  compdef _ps_trainer ps_trainer run_ps.py run_worker.py
fi
"""
