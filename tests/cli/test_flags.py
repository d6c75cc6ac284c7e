"""Tests of ps_trainer.cli.flags."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer import options
from ps_trainer.cli import flags
from ps_trainer.cli.help import CommandHelp
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_USAGE, UsageError
from ps_trainer.options import option, repeatable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Some:
    """Flags of every type."""

    count: int = option(3, "how many")
    limit: int | None = option(None, "at most")
    sizes: tuple[int, ...] = option((1, 2), "of each")
    is_on: bool = option(False, "whether on")
    thing_option: tuple[str, ...] = repeatable("key=value")


def parse(*args, groups=(Some,)):
    return flags.parse(["prog", *args], CommandHelp(usage=("prog [flags]",), text="", flags=groups), *groups)


def test_without_flags_everything_has_its_default():
    parsed = parse(groups=(Some, TrainConfig))
    assert parsed.groups == (Some(), TrainConfig())
    assert parsed.given == frozenset()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--count=5"], Some(count=5)),
        (["--count", "5"], Some(count=5)),
        (["-count=5"], Some(count=5)),
        (["--count=4", "--count=5"], Some(count=5)),
        (["--limit=5"], Some(limit=5)),
        (["--limit=5", "--limit=none"], Some(limit=None)),
        (["--sizes=3,4,5"], Some(sizes=(3, 4, 5))),
        (["--is_on"], Some(is_on=True)),
        (["--is_on=true"], Some(is_on=True)),
        (["--is_on", "--nois_on"], Some(is_on=False)),
        (["--thing_option=a=1,2", "--thing_option", "b=3"], Some(thing_option=("a=1,2", "b=3"))),
    ],
)
def test_reads_each_type_of_field(args, expected):
    assert parse(*args).groups == (expected,)


def test_every_field_of_the_run_configuration_is_a_flag():
    for field in dataclasses.fields(TrainConfig):
        text = "a=1" if field.default == () else options.format_value(field.default)
        (config,) = parse(f"--{field.name}={text}", groups=(TrainConfig,)).groups
        assert getattr(config, field.name) == (("a=1",) if field.default == () else field.default)


def test_reads_a_flag_file(tmp_path):
    path = tmp_path / "job.flags"
    path.write_text("# comment\n--count=7\n--is_on\n")
    parsed = parse(f"--flagfile={path}", "--limit=1")
    assert parsed.groups == (Some(count=7, is_on=True, limit=1),)
    assert parsed.given == {"count", "is_on", "limit"}


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--count=3"],
        ["--limit=none", "--sizes=7", "--is_on=true", "--thing_option=a=1,2", "--thing_option=b"],
    ],
)
def test_given_flags_are_passed_on_as_arguments_even_if_they_equal_the_default(args):
    parsed = parse(*args)
    assert flags.to_args(parsed.groups[0], parsed.given) == args


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--cuont=5"], "unknown flag --cuont; did you mean --count?"),
        (["--helpful"], "unknown flag --helpful; did you mean --helpfull?"),
        (["--zzz=5"], "unknown flag --zzz; --helpfull lists all"),
        (["--count=five"], "--count: 'five' is not of type int"),
        (["--count=1.5"], "--count: '1.5' is not of type int"),
        (["--sizes=1,x"], "--sizes: 'x' is not of type int"),
        (["--is_on=maybe"], "--is_on: 'maybe' is not a bool; write true or false"),
        (["--is_on", "true"], "'true' is not a flag; write every argument as --name=value"),
        (["--count"], "Missing value for flag --count"),
        (["count=5"], "'count=5' is not a flag"),
        (["--count=5", "--", "more"], "'more' is not a flag"),
        (["--flagfile=/no/such/file"], "--flagfile cannot be read: [Errno 2]"),
    ],
)
def test_rejects_a_bad_command_line_with_flag_and_fix(args, expected):
    with pytest.raises(UsageError) as caught:
        parse(*args)
    assert expected in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE
