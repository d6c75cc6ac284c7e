"""Settings of Sphinx, which builds the site: `make docs`."""

from __future__ import annotations

import os
import pathlib
import re

from sphinx.application import Sphinx

_ROOT = pathlib.Path(__file__).resolve().parent.parent

project = "ps_trainer"
copyright = "the ps_trainer authors"
release = re.search(r'__version__ = "(.+)"', (_ROOT / "ps_trainer" / "__init__.py").read_text(encoding="utf-8"))[1]

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"ps_trainer {release}"
exclude_patterns = ["_build"]

# Pages that the site takes from files outside of docs/, which the repository shows where they are.
_ELSEWHERE = {"results/experiments": _ROOT / "ps_trainer" / "experiments" / "RESULTS.md"}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+\.md)(#[\w-]+)?\)")
_ANCHOR = re.compile(r'(?:<a id="(\w+)"></a>\s*)+')
_IMAGE = re.compile(r"(!\[[^\]]*\]\()([^)\s:]+\))")


def setup(app: Sphinx) -> None:
    """Connects the changes that the site makes to pages."""
    app.connect("source-read", _read)


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replaces the pages in `_ELSEWHERE`, and links to Markdown files that are not on the site."""
    page = pathlib.Path(app.srcdir, f"{docname}.md")
    if docname in _ELSEWHERE:
        file = _ELSEWHERE[docname]
        folder = os.path.relpath(file.parent, page.parent)
        text = _ANCHOR.sub(r"(\1)=\n\n", file.read_text(encoding="utf-8"))
        source[0] = _IMAGE.sub(rf"\1{folder}/\2", text)
        page = file
    source[0] = _LINK.sub(lambda link: _link_on_site(pathlib.Path(app.srcdir), page, link), source[0])


def _link_on_site(docs: pathlib.Path, page: pathlib.Path, link: re.Match[str]) -> str:
    """A link to a Markdown file as the site has it; files that are not on the site are named instead."""
    text, path, anchor = link.groups()
    target = (page.parent / path).resolve()
    for name, file in _ELSEWHERE.items():
        if target == file:
            return f"{{ref}}`{text} <{anchor[1:]}>`" if anchor else f"[{text}](/{name}.md)"
    if target.is_relative_to(docs) or not target.exists():
        return link[0]
    name = str(target.relative_to(_ROOT))
    return f"`{name}`" if text in (name, target.name) else f"{text} (`{name}` in the repository)"
