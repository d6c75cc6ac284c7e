"""Pages made of blocks, rendered as Markdown and as HTML that needs no other file.

In texts, `code`, **bold** and [words](target) mean what they mean in Markdown; all other text is literal.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from ps_trainer.experiments.harness.plots import PlotFiles
from ps_trainer.experiments.harness.tables import Table

_INLINE = re.compile(r"`([^`]+)`|\*\*([^*`]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 68em; margin: 2em auto;
       padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.25em; margin-top: 2em }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto }
caption { text-align: left; font-weight: 600; padding: .3em 0 }
th, td { padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
figure { margin: 1.5em 0 } img { max-width: 100%; height: auto }
figcaption, .level { color: #555; font-size: .9em } .level { font-weight: 400 }
code { background: #f3f3f3; padding: .1em .3em } pre { background: #f3f3f3; padding: .6em 1em; overflow-x: auto }
"""


class Heading(NamedTuple):
    """A heading; depth 1 is the page's title."""

    text: str
    depth: int = 2


class Paragraph(NamedTuple):
    """A paragraph."""

    text: str


class Bullets(NamedTuple):
    """A list."""

    items: Sequence[str]


class Formula(NamedTuple):
    """Lines of fixed width."""

    text: str


Block = Heading | Paragraph | Bullets | Formula | Table | PlotFiles


def to_markdown(blocks: Sequence[Block]) -> str:
    """Returns the page as Markdown; plots are linked by their files' names."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def to_html(blocks: Sequence[Block]) -> str:
    """Returns the page as HTML; plots are inside."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def anchor(heading: str) -> str:
    """Returns the name by which a link reaches a heading, in HTML as in rendered Markdown."""
    return "-".join(re.findall(r"\w+", heading.lower()))


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, depth):
            return f"{'#' * depth} {text}"
        case Paragraph(text):
            return text
        case Bullets(items):
            return "\n".join(f"* {item}" for item in items)
        case Formula(text):
            return f"```text\n{text}\n```"
        case Table():
            return _markdown_table(block)
        case PlotFiles(drawing, caption, png):
            plot = drawing.plot
            return f"![{plot.title}]({png.name})\n\n*{plot.title}* ({drawing.level}). {caption}"


def _markdown_table(table: Table) -> str:
    rule = ["--:" if column.form else "---" for column in table.columns]
    header, *rows = (
        [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        for row in ([column.header for column in table.columns], *table.cells())
    )
    lines = [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]
    if not table.title:
        return "\n".join(lines)
    heading = f"**{table.title}** ({table.level})" if table.level else f"**{table.title}**"
    size = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
    return "\n".join([heading, "", f"<details><summary>{size}</summary>", "", *lines, "", "</details>"])


def _html(block: Block) -> str:
    match block:
        case Heading(text, depth):
            return f'<h{depth} id="{anchor(text)}">{_inline(text)}</h{depth}>'
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Formula(text):
            return f"<pre>{html.escape(text)}</pre>"
        case Table():
            return _html_table(block)
        case PlotFiles():
            return _html_plot(block)


def _html_table(table: Table) -> str:
    classes = [' class="number"' if column.form else "" for column in table.columns]
    level = f' <span class="level">({_inline(table.level)})</span>' if table.level else ""
    caption = f"<caption>{_inline(table.title)}{level}</caption>" if table.title else ""
    head = "".join(
        f"<th{kind}>{_inline(column.header)}</th>" for kind, column in zip(classes, table.columns, strict=True)
    )
    rows = (
        "<tr>" + "".join(f"<td{kind}>{_inline(cell)}</td>" for kind, cell in zip(classes, row, strict=True)) + "</tr>"
        for row in table.cells()
    )
    return f"<table>{caption}\n<tr>{head}</tr>\n" + "\n".join(rows) + "\n</table>"


def _html_plot(files: PlotFiles) -> str:
    # As an image, so that names inside of one SVG do not clash with names in another.
    data = base64.b64encode(files.svg.read_bytes()).decode("ascii")
    drawing, caption = files.drawing, files.caption
    return (
        f'<figure><img alt="{html.escape(caption)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption><b>{_inline(drawing.plot.title)}</b> ({_inline(drawing.level)}). {_inline(caption)}</figcaption>"
        "</figure>"
    )


def _inline(text: str) -> str:
    """Returns the HTML of a text with code, bold words and links."""
    parts, end = [], 0
    for match in _INLINE.finditer(text):
        parts.append(html.escape(text[end : match.start()]))
        code, bold, link_text, target = match.groups()
        if code:
            parts.append(f"<code>{html.escape(code)}</code>")
        elif bold:
            parts.append(f"<b>{html.escape(bold)}</b>")
        else:
            parts.append(f'<a href="{html.escape(target)}">{_inline(link_text)}</a>')
        end = match.end()
    return "".join([*parts, html.escape(text[end:])])
