"""Tests of ps_trainer.cli.listing; the components are stand-ins, so that TensorFlow is not needed."""

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

    More about it.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Of WithOptions."""

        rate: float | None = option(None, "how fast", above=0)
        form: str = option("round", "of what shape", choices=("round", "square"))
        sizes: tuple[int, ...] = option((1, 2), "of each")
        lambda_: int = option(3, "a key that Python keeps for itself")


class Undocumented:
    pass


@pytest.fixture(autouse=True)
def components(monkeypatch):
    here = __name__
    targets = {"plain": f"{here}:Plain", "tuned": f"{here}:WithOptions", "mute": f"{here}:Undocumented"}
    table = {
        "gadgets": Registry("gadget", "gadget", targets),
        "tools": Registry("tool", "tool", {"hammer": f"{here}:Plain"}),
        "filters": Registry("filter", "filter", {"fine": f"{here}:WithOptions"}, has_inline_options=True),
    }
    monkeypatch.setattr(component_tables, "REGISTRIES", table)


GADGETS = """\
gadgets (--gadget)
  plain           Has no options.
  tuned           Has options.
                  --gadget_option rate=none  how fast (float or none, above 0)
                  --gadget_option form=round  of what shape (one of round, square)
                  --gadget_option sizes=1,2  of each (comma-separated int)
                  --gadget_option lambda=3  a key that Python keeps for itself (int)
  mute
"""
FILTERS = """\
filters (--filter)
  fine            Has options.
                  --filter fine:rate=none  how fast (float or none, above 0)
                  --filter fine:form=round  of what shape (one of round, square)
                  --filter fine:sizes=1,2  of each (comma-separated int)
                  --filter fine:lambda=3  a key that Python keeps for itself (int)
"""
TOOLS = """\
tools (--tool)
  hammer          Has no options.
"""


def test_lists_names_summaries_and_options_of_a_kind(capsys):
    assert listing.main_list(["list", "gadgets"]) == 0
    assert capsys.readouterr().out == GADGETS


def test_lists_all_kinds_when_none_is_named(capsys):
    assert listing.main_list(["list"]) == 0
    assert capsys.readouterr().out == "\n".join([GADGETS, TOOLS, FILTERS])


def test_rejects_an_unknown_kind(capsys):
    assert listing.main_list(["list", "gadget"]) == 2
    expected = "error: list gadget: unknown kind; did you mean gadgets? known: gadgets, tools, filters\n"
    assert capsys.readouterr().err == expected


def test_help_names_the_kinds(capsys):
    assert listing.main_list(["list", "--help"]) == 0
    assert "models, datasets, updates" in capsys.readouterr().out
