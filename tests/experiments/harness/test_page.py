"""Blocks as Markdown and as HTML."""

from __future__ import annotations

import dataclasses
import html.parser
import math

import pytest

from ps_trainer.experiments.harness import page, plots
from ps_trainer.experiments.harness.tables import Column, Table

TABLE = Table(
    title="Times",
    level="L0 virtual time",
    columns=(Column(name="|rule|"), Column(name="time", form=".2f", unit="s")),
    rows=[["`sync`", 1.239], ["a | b <c>", None], ["none", math.nan]],
)


class ParsedPage(html.parser.HTMLParser):
    """The texts of each tag, and the tags that are still open at the end."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.images = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images.append(dict(attrs))
        elif tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.open[-1], data))


ROWS = ["| \\|rule\\| | time (s) |", "| --- | --: |", "| `sync` | 1.24 |", "| a \\| b <c> | – |", "| none | – |"]


def test_a_table_with_a_title_is_folded_in_markdown():
    fold = ["<details><summary>3 rows</summary>", "", *ROWS, "", "</details>"]
    assert page.to_markdown([TABLE]).splitlines() == ["**Times** (L0 virtual time)", "", *fold]
    one = dataclasses.replace(TABLE, rows=TABLE.rows[:1])
    assert "<summary>1 row</summary>" in page.to_markdown([one])


def test_a_table_without_a_title_is_not_folded():
    assert page.to_markdown([dataclasses.replace(TABLE, title="")]).splitlines() == ROWS


def test_a_formula_keeps_its_lines():
    formula = page.Formula("a  = b\n\n  < c")
    assert page.to_markdown([formula]) == "```text\na  = b\n\n  < c\n```\n"
    assert "<pre>a  = b\n\n  &lt; c</pre>" in page.to_html([formula])


def test_a_table_in_html():
    parsed = ParsedPage(page.to_html([TABLE]))
    assert parsed.open == []
    for text in (("code", "sync"), ("td", "1.24"), ("td", "a | b <c>"), ("th", "time (s)"), ("caption", "Times ")):
        assert text in parsed.texts
    assert ("span", "(L0 virtual time)") in parsed.texts


def test_texts_keep_links_code_and_bold_words_and_no_other_markup():
    see = page.Paragraph("See [the `x` page](a.html?b=1&c): **1 < 2**")
    blocks = [page.Heading("A <b>", 1), see, page.Bullets(["*"])]
    text = page.to_html(blocks)
    assert '<a href="a.html?b=1&amp;c">the <code>x</code> page</a>: <b>1 &lt; 2</b>' in text
    assert "<title>A &lt;b&gt;</title>" in text
    assert "<li>*</li>" in text
    assert page.to_markdown(blocks) == "# A <b>\n\nSee [the `x` page](a.html?b=1&c): **1 < 2**\n\n* *\n"


@pytest.fixture
def files(tmp_path):
    draw = lambda figure, ys: figure.add_subplot().plot(ys)  # noqa: E731
    plot = plots.Plot(key="p", title="T", shows='A "line".', expected="it falls.", draw=draw, level="L0")
    return plots.save(plots.Drawing(plot, [2, 1]), 'A "line". Expected: it falls.', tmp_path)


def test_plots_are_inside_of_html_and_beside_markdown(files):
    (image,) = ParsedPage(page.to_html([files])).images
    assert image["src"].startswith("data:image/svg+xml;base64,")
    assert image["alt"] == 'A "line". Expected: it falls.'
    assert page.to_markdown([files]) == '![T](p.png)\n\n*T* (L0). A "line". Expected: it falls.\n'
