"""The completion scripts, in real shells."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

from ps_trainer import component_tables
from ps_trainer.cli import completion, main
from ps_trainer.data.generators.generate import GENERATORS

UPDATES = component_tables.UPDATES.names()
# The typed line, the last word incomplete -> the words that the shell offers.
CASES = {
    "ps_trainer ": set(main.COMMANDS),
    "ps_trainer ev": {"evaluate"},
    "ps_trainer local --num_": {"--num_ps=", "--num_workers=", "--num_evaluators=", "--num_epochs="},
    "ps_trainer simulate --num_": {"--num_ps=", "--num_workers="},
    "ps_trainer local --pl": {"--plain", "--placement="},
    "ps_trainer local --nopl": {"--noplain"},
    "ps_trainer local --max_steps=3 --step_": {"--step_log"},
    "ps_trainer local --update=": set(UPDATES),
    "ps_trainer local --update=s": {name for name in UPDATES if name.startswith("s")},
    "ps_trainer local --model=cnn --dataset=mn": {"mnist"},
    "ps_trainer local --pull_dtype=b": {"bfloat16"},
    "ps_trainer local --zzz": set(),
    "ps_trainer simulate --compute=lo": {"lognormal"},
    "ps_trainer checkpoint ": {"info", "verify", "plan"},
    "ps_trainer checkpoint plan --optimizer=a": {"adagrad", "adam"},
    "ps_trainer embeddings ": {"nearest", "analogy", "export"},
    "ps_trainer embeddings export --format=b": {"binary"},
    "ps_trainer data generate pl": {name for name in GENERATORS if name.startswith("pl")},
    "ps_trainer experiment all --qu": {"--quick"},
    "ps_trainer experiment null_step scal": {"scaling_curve"},
    "ps_trainer completion f": {"fish"},
    "ps_trainer plot --out": {"--out_dir="},
    "run_ps.py --keep_s": {"--keep_serving"},
    "run_worker.py --job": {"--job_name="},
}
EVERY = pytest.mark.parametrize("line", CASES)

# Calls the function that the script registers, as bash does when the user presses Tab.
BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 ))
_ps_trainer "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""

# Outside of a completion zsh has no `compadd`; this one prints the matches as the real one finds them.
ZSH = """
compdef() {}
compadd() {
  while [[ $1 != -- ]]; do shift; done
  shift
  print -l -- ${(M)@:#${words[CURRENT]}*}
}
_files() { print "<files>" }
compset() {}
source "$1"; shift
words=("$@"); CURRENT=$#
_ps_trainer
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """A file for each shell with its script."""
    folder = tmp_path_factory.mktemp("completion")
    for name, create in completion.SHELLS.items():
        (folder / name).write_text(create(completion.table()), encoding="utf-8")
    return folder


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        if name == "bash":
            pytest.fail("bash is not installed")
        pytest.skip(f"{name} is not installed")
    return path


def call(*command, folder=pathlib.Path("/")):
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == "" and result.returncode in (0, 1), result.stderr
    return {line for line in result.stdout.splitlines() if line}


@EVERY
@pytest.mark.parametrize("splits_at_equals", [True, False])
def test_bash_completes(scripts, line, splits_at_equals):
    """COMP_WORDBREAKS contains "=" by default: bash then passes `--update=s` as three words, and takes only `sync`."""
    *words, last = line.split(" ")
    expected = CASES[line]
    if splits_at_equals:
        words = [part for word in words for part in word.replace("=", " = ").split()]
        last_words = last.replace("=", " = ").split() if "=" in last else [last]
    else:
        last_words = [last]
        if "=" in last:
            expected = {f"{last.partition('=')[0]}={word}" for word in expected}
    assert call(shell("bash"), "--norc", "-c", BASH, "bash", str(scripts / "bash"), *words, *last_words) == expected


@EVERY
def test_zsh_completes(scripts, line):
    *_, last = line.split(" ")
    expected = {f"{last.partition('=')[0]}={word}" for word in CASES[line]} if "=" in last else CASES[line]
    assert call(shell("zsh"), "-f", "-c", ZSH, "zsh", str(scripts / "zsh"), *line.split(" ")) == expected


@EVERY
def test_fish_completes(scripts, line, tmp_path):
    program = shell("fish")
    lines = call(program, "--no-config", "-c", f"source {scripts}/fish; complete -C '{line}'", folder=tmp_path)
    *_, last = line.split(" ")
    offered = {entry.partition("\t")[0] for entry in lines}
    if "=" in last:
        offered = {entry.partition("=")[2] for entry in offered}
    # fish also offers matches in the middle of a word, and leaves out the "=" after a flag.
    matches = {entry for entry in offered if entry.startswith(last.rpartition("=")[2])}
    assert matches == {word.rstrip("=") for word in CASES[line]}


def test_bash_registers_the_function_for_every_program(scripts):
    lines = call(shell("bash"), "--norc", "-c", f"source {scripts}/bash; complete -p")
    assert {line.split()[-1] for line in lines} == {"ps_trainer", "run_ps.py", "run_worker.py"}
    assert all("-F _ps_trainer" in line and "-o default" in line for line in lines)  # else it completes file names


@pytest.mark.parametrize("name", completion.SHELLS)
def test_command_prints_the_script(scripts, name, capsys):
    assert main.main(["ps_trainer", "completion", name]) == 0
    assert capsys.readouterr().out == (scripts / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", completion.SHELLS)
def test_script_starts_no_python(scripts, name):
    text = (scripts / name).read_text(encoding="utf-8")
    assert "python" not in text.lower().replace("python path", "") and "$(ps_trainer" not in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "completion takes one shell, got 0; choose from bash, zsh, fish"),
        (["bsh"], "completion bsh: unknown shell; did you mean bash?"),
        (["bash", "zsh"], "completion takes one shell, got 2"),
        (["bash", "--plain"], "unknown flag --plain"),
    ],
)
def test_wrong_arguments_are_rejected(args, message, capsys):
    assert main.main(["ps_trainer", "completion", *args]) == 2
    assert message in capsys.readouterr().err
