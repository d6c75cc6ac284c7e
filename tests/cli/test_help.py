"""The help of every command: groups, examples that parse, and lines that fit a terminal."""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex

import pytest

from ps_trainer import component_tables, options
from ps_trainer.cli import checkpoint, data, flags, help_groups, main, task
from ps_trainer.cli import help as help_lib
from ps_trainer.cli.command_wrapper import HelpRequested
from ps_trainer.cli.help import CommandHelp
from ps_trainer.config import TrainConfig
from ps_trainer.options import option, repeatable

COMMANDS = {f"ps_trainer {name}": command.help() for name, command in main.COMMANDS.items()}
COMMANDS |= {"python run_ps.py": task.PS_HELP, "python run_worker.py": task.WORKER_HELP}
EVERY = pytest.mark.parametrize("name", COMMANDS)
FLAGS = {name for command in COMMANDS.values() for name in command.fields()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Some:
    """Flags of an imagined command; the table of groups knows their names."""

    num_workers: int = option(3, "how many; a detail that is far too long for the line of a flag in the short help",
                              least=1)  # fmt: skip
    seeds: int | None = option(None, "how often")
    compute: tuple[str, ...] = repeatable("of what kind", ("exp",))
    update_option: tuple[str, ...] = repeatable("of the rule")
    layout: str = option("packed", "where")
    plain: bool = option(False, "whether plain")


SOME = CommandHelp(
    usage=("prog [flags]",),
    text="Does things.\n\none  the first,\n     or a text that is wrapped\nmore  the\nother",
    examples=(("prog --seeds=2", "twice"),),
    flags=(Some,),
)


def test_short_help_shows_examples_and_the_common_flags():
    assert help_lib.text(SOME, is_full=False, width=80) == (
        "usage: prog [flags]\n\nDoes things.\n\none  the first, or a text that is wrapped\nmore  the other\n\n"
        "Examples:\n  # twice\n  prog --seeds=2\n\n"
        "Common flags, with their defaults (--helpfull describes all 6):\n\n"
        "Cluster:\n"
        "  --num_workers=3               how many\n"
        "  --compute=TEXT                of what kind\n\n"
        "Update rule and optimizer:\n"
        "  --update_option=KEY=VALUE     of the rule\n\n"
        "`ps_trainer list` describes all components (models, datasets, update rules, …)\n"
        "and their options."
    )


def test_full_help_shows_every_flag_with_its_range_and_default():
    text = help_lib.text(SOME, is_full=True, width=200)
    found = {line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line.startswith("  --")}
    assert found == {
        "--num_workers=3": "how many; a detail that is far too long for the line of a flag in the short help"
        " (int, at least 1)",
        "--compute=TEXT": f"of what kind ({', '.join(component_tables.DELAYS.names())}, or package.module:Class; may be"
        " repeated; default exp)",
        "--seeds=N": "how often (int or none; default none)",
        "--update_option=KEY=VALUE": "of the rule (may be repeated)",
        "--layout=packed": "where (packed, per_variable, or package.module:Class)",
        "--[no]plain": "whether plain (bool; default false)",
        "--flagfile=PATH": "read flags from a file, one a line",
    }


def test_a_command_describes_a_flag_in_its_own_words_without_the_default_of_other_commands():
    command = dataclasses.replace(SOME, own_texts={"layout": "where; default: as before", "seeds": "how often here"})
    text = help_lib.text(command, is_full=True, width=200)
    assert "  --layout=NAME                 where; default: as before (packed, per_variable, or package" in text
    assert "  --seeds=N                     how often here (int or none)\n" in text
    assert SOME.fields()["layout"][0].default == "packed"


@pytest.mark.parametrize("name", ["evaluate", "predict", "export"])
def test_commands_that_use_a_run_show_no_defaults_of_training(name):
    text = help_lib.text(COMMANDS[f"ps_trainer {name}"], is_full=False)
    assert "--model=NAME " in text and "--dataset=NAME " in text and "write no files" not in text
    assert text.count("default: from config.json") == 5


@pytest.mark.parametrize("name", ["evaluate", "predict", "export"])
def test_commands_that_use_a_run_describe_only_flags_with_an_effect_and_accept_the_others(name):
    command = COMMANDS[f"ps_trainer {name}"]
    text = help_lib.text(command, is_full=True)
    assert "--batch_size" not in text and "--update" not in text and "--model=NAME" in text
    parsed = flags.parse([name, "--batch_size=7", "--update=sync"], command, TrainConfig)
    assert parsed.groups[0].batch_size == 7


@EVERY
def test_every_flag_has_one_group(name):
    grouped = [flag for group in help_groups.GROUPS for flag in (*group.common, *group.further)]
    assert {flag: grouped.count(flag) for flag in COMMANDS[name].fields()} == dict.fromkeys(COMMANDS[name].fields(), 1)
    assert set(COMMANDS[name].common or ()) <= set(COMMANDS[name].fields())


@pytest.mark.parametrize("is_full", [False, True])
@EVERY
def test_the_help_shows_each_flag_that_it_counts(name, is_full):
    command = COMMANDS[name]
    fields = command.fields()
    common = (
        [flag for group in help_groups.GROUPS for flag in group.common] if command.common is None else command.common
    )
    wanted = set(fields) if is_full else set(common) & set(fields)
    text = help_lib.text(command, is_full=is_full)
    assert set(re.findall(r"^  --(?:\[no\])?(\w+)", text, flags=re.MULTILINE)) - {"flagfile"} == wanted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forgotten:
    """A flag that no group names."""

    forgotten_flag: int = option(3, "what nobody has put into a group")


@pytest.mark.parametrize("is_full", [False, True])
def test_a_flag_without_a_group_is_shown_last(is_full):
    command = CommandHelp(usage=("some",), text="Some.", flags=(Some, Forgotten), common=("layout", "forgotten_flag"))
    text = help_lib.text(command, is_full=is_full)
    assert text.index("Other:\n  --forgotten_flag=3") > text.index("--layout=packed")


def test_the_table_of_groups_has_no_other_flag():
    grouped = {flag for group in help_groups.GROUPS for flag in (*group.common, *group.further)}
    assert grouped == FLAGS
    assert FLAGS | {"flagfile"} >= help_groups.PATHS


@EVERY
def test_short_help_has_one_line_a_flag_and_fits_100_columns(name):
    command = COMMANDS[name]
    lines = help_lib.text(command, is_full=False).splitlines()
    examples = {line for example, _ in command.examples for line in [f"  {example}"]}
    assert [line for line in lines if len(line) > 100 and line not in examples] == []
    assert [after for line, after in itertools.pairwise(lines) if line[:4] == "  --" and after[:3] == "   "] == []
    assert len(lines) <= 60


@EVERY
@pytest.mark.parametrize("width", [62, 80, 100])
def test_full_help_describes_every_flag_and_fits_the_terminal(name, width):
    command = COMMANDS[name]
    text = help_lib.text(dataclasses.replace(command, usage=(), text="", examples=()), is_full=True, width=width)
    heads = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
    shown = [head.removeprefix("--").removeprefix("[no]").partition("=")[0] for head in heads]
    assert sorted(shown) == sorted([*command.fields(), *(["flagfile"] if command.fields() else [])])
    too_long = [line for line in text.splitlines() if len(line) > width]
    assert [line for line in too_long if len(line.split()) > 1] == []  # one long word cannot be wrapped


def test_full_help_loses_no_word():
    text = " ".join(help_lib.text(task.TASK_HELP, is_full=True, width=80).split())
    for field, _ in task.TASK_HELP.fields().values():
        assert " ".join(field.metadata["help"].split()) in text
        assert options.range_of(field) in text


@EVERY
def test_help_has_examples_that_parse(name, capsys):
    command = COMMANDS[name]
    assert 2 <= len(command.examples) <= 3
    for example, purpose in command.examples:
        assert purpose and not purpose.endswith(".")
        assert example.startswith(name)
        argv = shlex.split(example.removeprefix(name))
        words = list(itertools.takewhile(lambda arg: not arg.startswith("-"), argv))
        groups = flags.parse([name, *argv[len(words) :]], command, *command.flags).groups
        for group in groups:
            if isinstance(group, TrainConfig):
                group.check()
        if command.words:
            assert set(words[:1]) <= {*command.words} or name == "ps_trainer list"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", main.COMMANDS)
@pytest.mark.parametrize(("flag", "is_full"), [("--help", False), ("-h", False), ("--helpfull", True)])
def test_every_command_prints_its_help(name, flag, is_full, capsys):
    assert main.main(["ps_trainer", name, flag]) == 0
    assert capsys.readouterr().out == help_lib.text(COMMANDS[f"ps_trainer {name}"], is_full=is_full) + "\n"


@pytest.mark.parametrize("args", [[], ["--help"], ["-h"], ["help"], ["--helpfull"]])
def test_the_program_prints_its_commands(args, capsys):
    assert main.main(["ps_trainer", *args]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "usage: ps_trainer COMMAND [flags]"
    for name, command in main.COMMANDS.items():
        assert [line.split() for line in lines if line.startswith(f"  {name} ")] == [[name, *command.summary.split()]]
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("  # ") for line in lines) == 3


def test_help_of_a_command_is_also_found_as_a_word(capsys):
    assert main.main(["ps_trainer", "help", "local"]) == 0
    assert capsys.readouterr().out.startswith("usage: ps_trainer local ")


@pytest.mark.parametrize("script", [task.main_ps, task.main_worker])
def test_the_scripts_print_their_help(script, capsys):
    assert script(["run.py", "--helpfull"]) == 0
    assert capsys.readouterr().out.startswith("usage: python run_")


def test_help_comes_before_any_error(capsys):
    with pytest.raises(HelpRequested):
        flags.parse(["prog", "--unknown", "--help"], SOME, Some)
    assert capsys.readouterr().out.startswith("usage: prog [flags]\n")


def test_the_words_of_a_command_are_its_actions():
    assert checkpoint.HELP.words == tuple(checkpoint._ACTIONS)
    assert data.HELP.words == tuple(data._ACTIONS)
