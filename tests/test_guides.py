"""The guides to update rules and gradient transforms name every one of them, with existing options."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest

from ps_trainer import component_tables
from ps_trainer.registry import Registry

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDES = {"update-rules": component_tables.UPDATES, "gradient-transforms": component_tables.GRADIENT_TRANSFORMS}


def text_of(guide: str) -> str:
    return (ROOT / "docs" / "explanation" / f"{guide}.md").read_text(encoding="utf-8")


def sections(guide: str) -> dict[str, str]:
    """The guide's text below each second-level heading."""
    parts = re.split(r"^## (.+)$", text_of(guide), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def column(table: str) -> list[str]:
    """The names in code style in the first column of a text's tables."""
    cells = re.findall(r"^\| ([^|]*`[^|]*) \|", table, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def option_names(table: Registry) -> set[str]:
    classes = [getattr(table.load(name), "Options", None) for name in table.names()]
    return {field.name.rstrip("_") for cls in classes if cls for field in dataclasses.fields(cls)}


def test_every_rule_is_recommended_explained_and_measured():
    guide = sections("update-rules")
    names = component_tables.UPDATES.names()
    families = re.findall(r"^\|.*\| ([^|]+) \|$", guide["The families"], flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(families))) == sorted(names)
    advice = guide["Which rule to choose"]
    assert [name for name in names if f"`{name}`" not in advice and not name.startswith("k_")] == []
    assert sorted(column(guide["Global steps and learning rates"])) == sorted(names)
    assert column(guide["Measured"]) == names * 2  # in the table of the results, and in the table of the costs
    departures = guide["Where the rules differ from their papers"]
    assert [name for name in names if f"`{name}`" not in departures] == []


def test_every_transform_has_a_place_in_the_order_and_is_measured():
    guide = sections("gradient-transforms")
    names = component_tables.GRADIENT_TRANSFORMS.names()
    order = guide["Which transforms combine, and in which order"]
    places = re.findall(r"^\| \d \|([^|]+)\|", order, flags=re.MULTILINE)
    assert sorted(name for place in places for name in re.findall(r"`(\w+)`", place)) == sorted(names)
    assert set(names) <= set(column(guide["Measured"]))


@pytest.mark.parametrize("guide", GUIDES)
def test_options_in_the_text_exist(guide):
    text = text_of(guide)
    known = option_names(GUIDES[guide]) | {"warmup_steps"}  # an option of the schedules
    used = set(re.findall(r"[`,: ](\w+)=", text)) - {"NAME", "key"}
    assert used <= known, used - known


def test_the_failure_contract_names_files_of_tests():
    names = re.findall(r"`(tests/[\w/]+\.py)`", text_of("failure-model"))
    assert len(names) > 10
    assert [name for name in names if not (ROOT / name).is_file()] == []
