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
    columns=(Column(name="rule"), Column(name="time", form=".2f", unit="s")),
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


def test_a_table_in_markdown():
    assert page.to_markdown([TABLE]).splitlines() == [
        "**Times** (L0 virtual time)",
        "",
        "| rule | time (s) |",
        "| --- | --: |",
        "| `sync` | 1.24 |",
        "| a \\| b <c> | – |",
        "| none | – |",
    ]


@pytest.mark.parametrize(("num_rows", "is_folded"), [(12, False), (13, True)])
def test_a_long_table_is_folded_in_markdown(num_rows, is_folded):
    table = dataclasses.replace(TABLE, rows=[TABLE.rows[0]] * num_rows)
    lines = page.to_markdown([table]).splitlines()
    assert ("<details><summary>13 rows</summary>" in lines) == is_folded
    assert lines[0] == "**Times** (L0 virtual time)"
    assert lines.count("| `sync` | 1.24 |") == num_rows
    claims = dataclasses.replace(table, title="")  # has no title, and `marks` reads it from the page
    assert "<details>" not in page.to_markdown([claims])


def test_a_table_in_html():
    parsed = ParsedPage(page.to_html([TABLE]))
    assert parsed.open == []
    for text in (("code", "sync"), ("td", "1.24"), ("td", "a | b <c>"), ("th", "time (s)"), ("caption", "Times ")):
        assert text in parsed.texts
    assert ("span", "(L0 virtual time)") in parsed.texts


def test_texts_keep_links_and_code_and_no_other_markup():
    blocks = [page.Heading("A <b>", 1), page.Paragraph("See [the `x` page](a.html?b=1&c): 1 < 2"), page.Bullets(["*"])]
    text = page.to_html(blocks)
    assert '<a href="a.html?b=1&amp;c">the <code>x</code> page</a>: 1 &lt; 2' in text
    assert "<title>A &lt;b&gt;</title>" in text
    assert "<li>*</li>" in text
    assert page.to_markdown(blocks) == "# A <b>\n\nSee [the `x` page](a.html?b=1&c): 1 < 2\n\n* *\n"


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
