"""`key=value` strings become typed options, and errors name every mistake in them."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from ps_trainer import options
from ps_trainer.errors import OptionError
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """One field of every type."""

    flag: bool = option(False, "a bool")
    count: int = option(3, "an int")
    rate: float = option(0.5, "a float")
    name: str = option("x", "a text")
    sizes: tuple[int, ...] = option((1,), "ints")
    rates: tuple[float, ...] = option((), "floats")
    names: tuple[str, ...] = option((), "texts")
    limit: int | None = option(None, "an int or none")
    fraction: typing.Optional[float] = option(None, "a float or none, the older way")  # noqa: UP045
    parts: tuple[int, ...] | None = option(None, "ints or none")

    def __post_init__(self):
        if self.count > 12 and self.sizes != (1,):
            raise OptionError(f"count={self.count} is too large for sizes={self.sizes}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoOptions:
    """No field."""


def parse(*strings: str) -> Options:
    return options.parse(Options, strings, "--thing_option")


def test_an_empty_text_leaves_the_defaults():
    assert parse() == Options()


@pytest.mark.parametrize(
    ("string", "value"),
    [
        *((f"flag={text}", True) for text in ("true", "True", "1", "yes")),
        ("count=-0", 0),
        ("count=12", 12),
        ("rate=1e-3", 0.001),
        ("rate=2", 2.0),
        ("name=a=b", "a=b"),
        ("name=", ""),
        ("name=none", "none"),
        ("sizes=4,5,6", (4, 5, 6)),
        ("sizes=4", (4,)),
        ("sizes=", ()),
        ("rates=0.5,1", (0.5, 1.0)),
        ("names=a,b", ("a", "b")),
        ("limit=7", 7),
        ("limit=none", None),
        ("limit=None", None),
        ("fraction=0.25", 0.25),
        ("fraction=none", None),
        ("parts=2,3", (2, 3)),
        ("parts=none", None),
    ],
)
def test_text_becomes_the_fields_type(string, value):
    got = getattr(parse(string), string.partition("=")[0])
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["false", "FALSE", "0", "no"])
def test_false_in_its_spellings(text):
    assert options.convert(text, bool, "x") is False


def test_several_fields_at_once():
    assert parse("count=2", "name=y", "flag=yes") == Options(count=2, name="y", flag=True)


@pytest.mark.parametrize(
    ("string", "message"),
    [
        ("flag=maybe", "--thing_option flag=maybe: 'maybe' is not a bool; write true or false"),
        ("count=2.5", "--thing_option count=2.5: '2.5' is not of type int"),
        ("count=", "--thing_option count=: '' is not of type int"),
        ("rate=fast", "--thing_option rate=fast: 'fast' is not of type float"),
        ("sizes=1,x", "--thing_option sizes=1,x: 'x' is not of type int"),
        ("limit=many", "--thing_option limit=many: 'many' is not of type int"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(string, message):
    with pytest.raises(OptionError) as caught:
        parse(string)
    assert str(caught.value) == message


def test_an_unknown_key_lists_all_and_suggests_the_nearest():
    with pytest.raises(OptionError, match="unknown key 'cuont'; did you mean count") as caught:
        parse("cuont=3")
    for field in dataclasses.fields(Options):
        assert f"{field.name} (default {field.default!r})" in str(caught.value)


def test_a_key_unlike_all_others_gets_no_suggestion():
    with pytest.raises(OptionError, match="unknown key 'qqqq'; keys:"):
        parse("qqqq=3")


def test_a_repeated_key_is_rejected_even_with_the_same_value():
    with pytest.raises(OptionError, match="'count' is given twice"):
        parse("count=3", "count=3")


def test_a_string_without_equals_is_rejected():
    with pytest.raises(OptionError, match=r"--thing_option 'count': write key=value; keys: flag \(default False\)"):
        parse("count")


def test_an_unknown_key_of_a_component_without_options_says_none():
    with pytest.raises(OptionError, match="keys: none$"):
        options.parse(NoOptions, ["a=1"], "--thing_option")


def test_the_components_own_check_is_reported_with_the_flag():
    with pytest.raises(OptionError, match=r"^--thing_option: count=15 is too large for sizes=\(2,\)$"):
        parse("count=15", "sizes=2")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeywordOptions:
    """A field whose key is a Python keyword, and one whose name only looks like that."""

    lambda_: float = option(0.5, "a float")
    size_: int = option(1, "an int")


def test_a_python_keyword_is_a_key_without_its_fields_underscore():
    parsed = options.parse(KeywordOptions, ["lambda=2", "size_=3"], "--thing_option")
    assert parsed == KeywordOptions(lambda_=2.0, size_=3)


@pytest.mark.parametrize(("string", "key"), [("lambda_=2", "lambda"), ("size=3", "size_")])
def test_the_field_of_a_keyword_is_not_a_key_itself(string, key):
    with pytest.raises(OptionError, match=rf"did you mean {key}\? keys: lambda \(default 0.5\), size_ \(default 1\)$"):
        options.parse(KeywordOptions, [string], "--thing_option")


def test_a_keyword_given_twice_is_rejected():
    with pytest.raises(OptionError, match="'lambda' is given twice"):
        options.parse(KeywordOptions, ["lambda=1", "lambda=2"], "--thing_option")
