"""`ps_trainer list` with stand-ins for the components, so that TensorFlow is not needed."""

from __future__ import annotations

import dataclasses

import pytest

from ps_trainer import component_tables
from ps_trainer.cli import listing
from ps_trainer.options import option
from ps_trainer.registry import Registry


class Plain:
    """Has no options."""


class WithOptions:
    """Has options.

    More about it:
        x = 1

    Source: somebody.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Of WithOptions."""

        rate: float | None = option(None, "how fast", above=0)
        form: str = option("round", "of what shape", choices=("round", "square"))
        lambda_: int = option(3, "a key that Python keeps for itself")


class Undocumented:
    pass


class NothingToSet:
    """Takes options, but has none.

    Args:
        options: None.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Of NothingToSet."""


@pytest.fixture(autouse=True)
def components(monkeypatch):
    here = __name__
    targets = {"plain": f"{here}:Plain", "tuned": f"{here}:WithOptions", "mute": f"{here}:Undocumented"}
    table = {
        "gadgets": Registry("gadget", "gadget", targets),
        "tools": Registry("hand tool", "tool", {"hammer": f"{here}:Plain", "tuned": f"{here}:WithOptions"}),
        "gears": Registry("gear", "gear", {"fixed": f"{here}:NothingToSet"}),
        "filters": Registry("filter", "gadget_filter", {"fine": f"{here}:WithOptions"}, has_inline_options=True),
    }
    monkeypatch.setattr(component_tables, "REGISTRIES", table)


GADGETS = """\
gadgets: --gadget=NAME

  plain  Has no options.
  tuned  Has options.
  mute
"""
TOOLS = """\
tools: --tool=NAME

  hammer  Has no options.
  tuned   Has options.
"""
GEARS = """\
gears: --gear=NAME

  fixed  Takes options, but has none.
"""
FILTERS = """\
filters: --gadget_filter=NAME

  fine  Has options.
"""
FINE = """\
fine: filter, --gadget_filter=fine

Has options.

More about it:
    x = 1

Source: somebody.

Options, with their defaults (--gadget_filter=fine:KEY=VALUE,…):
  rate=none   how fast (float or none, above 0)
  form=round  of what shape (one of round, square)
  lambda=3    a key that Python keeps for itself (int)

Example:
  ps_trainer local --num_workers=4 --gadget_filter=fine --max_steps=200
"""


def out_of(capsys, *args):
    assert listing.main_list(["list", *args]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("word", ["gadgets", "gadget"])
def test_prints_a_table_of_one_kind(word, capsys):
    assert out_of(capsys, word) == GADGETS


@pytest.mark.parametrize("word", ["filters", "filter", "gadget_filter"])
def test_a_kind_is_also_found_by_its_flag(word, capsys):
    assert out_of(capsys, word) == FILTERS


def test_prints_all_tables_when_none_is_named(capsys):
    hint = "`ps_trainer list NAME` describes one in full, with its options and an example.\n"
    assert out_of(capsys) == "\n".join([GADGETS, TOOLS, GEARS, FILTERS, hint])


def test_describes_a_component_in_full(capsys):
    assert out_of(capsys, "fine") == FINE


def test_a_component_without_options_has_no_table_of_them(capsys):
    text = out_of(capsys, "plain")
    assert text.startswith("plain: gadget, --gadget=plain\n\nHas no options.\n\nExample:\n")


def test_an_empty_table_of_options_and_the_sections_for_programmers_are_left_out(capsys):
    text = out_of(capsys, "fixed")
    assert text.startswith("fixed: gear, --gear=fixed\n\nTakes options, but has none.\n\nExample:\n")


def test_a_name_of_several_kinds_describes_each(capsys):
    text = out_of(capsys, "tuned")
    assert "tuned: gadget, --gadget=tuned\n" in text and "tuned: hand tool, --tool=tuned\n" in text


def test_several_words_print_several_texts(capsys):
    assert out_of(capsys, "tools", "fine") == "\n".join([TOOLS, FINE])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("hamer", "error: list hamer: no kind and no component has this name; did you mean hammer? kinds: gadgets,"),
        ("gadgetts", "did you mean gadgets?"),
        (
            "zzz",
            "list zzz: no kind and no component has this name; kinds: gadgets, tools, gears, filters;",
        ),
    ],
)
def test_rejects_an_unknown_name_and_names_the_nearest(word, message, capsys):
    assert listing.main_list(["list", word]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""


@pytest.mark.parametrize("width", [40, 60])
def test_lines_fit_a_narrow_terminal(width, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    lines = out_of(capsys, "filters", "fine").splitlines()
    assert max(len(line) for line in lines if not line.startswith(("  ps_trainer", "Options"))) <= width
    assert " ".join(" ".join(lines).split()) == " ".join(f"{FILTERS} {FINE}".split())


def test_help_names_the_kinds(capsys):
    assert "models, datasets, updates" in out_of(capsys, "--help")
