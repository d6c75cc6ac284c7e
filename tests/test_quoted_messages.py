"""Each message that a how-to guide explains exists in the code, so that a reader can find it by its words."""

from __future__ import annotations

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDES = sorted((ROOT / "docs" / "howto").glob("*.md"))
PLACEHOLDER = re.compile(r"\{\w*\}|%[\d.]*[sdrfg]")
# Fewer literal letters than these would be found in some text by chance.
FEWEST_LETTERS = 12


def quoted_messages(page: str) -> list[str]:
    """The messages in the first column of the tables whose first heading is "message"."""
    tables = re.findall(r"^\| message \|.*\n\|[-| ]+\n((?:\|.*\n)+)", page, flags=re.MULTILINE)
    return [row.split("`")[1] for table in tables for row in table.splitlines()]


@functools.cache
def texts_of_the_code() -> tuple[str, ...]:
    """Every string of the package, with "…" for what it fills in."""
    texts = []
    for path in (*(ROOT / "ps_trainer").rglob("*.py"), *(ROOT / "models").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(PLACEHOLDER.sub("…", node.value))
    return tuple(texts)


def exists(message: str) -> bool:
    literal = [part.strip() for part in message.split("…")]
    assert sum(len(part) for part in literal) >= FEWEST_LETTERS, message
    pattern = re.compile(".*".join(re.escape(part) for part in literal), re.DOTALL)
    return any(all(part in text for part in literal) and pattern.search(text) for text in texts_of_the_code())


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_quoted_messages_exist_in_the_code(guide):
    missing = [m for m in quoted_messages(guide.read_text(encoding="utf-8")) if not exists(m)]
    assert missing == []


def test_the_guides_quote_messages():
    assert sum(len(quoted_messages(guide.read_text(encoding="utf-8"))) for guide in GUIDES) > 30


def test_a_message_that_no_code_prints_is_noticed():
    assert not exists("the parameter server … is out of coffee")
    assert not exists("… in use is … of port …")  # the words, in another order
