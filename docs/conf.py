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
myst_enable_extensions = ["colon_fence", "deflist", "html_image"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"ps_trainer {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
exclude_patterns = ["_build"]

# Pages that the site takes from files outside of docs/, which the repository shows where they are.
_ELSEWHERE = {
    "reference/benchmarks": _ROOT / "benchmarks" / "README.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[\w-]+)?\)")
_ANCHORS = re.compile(r'(?:<a id="(\w+)"></a>\s*)+')


def setup(app: Sphinx) -> None:
    """Connects the changes that the site makes to pages."""
    app.connect("source-read", _read)


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Takes the pages of `_ELSEWHERE` from their files, and adapts links."""
    page = pathlib.Path(app.srcdir, f"{docname}.md")
    file = _ELSEWHERE.get(docname, page)
    text = _ANCHORS.sub(r"(\1)=\n\n", file.read_text(encoding="utf-8")) if file != page else source[0]
    source[0] = _LINK.sub(lambda link: _link_on_site(pathlib.Path(app.srcdir), page, file, link), text)


def _link_on_site(docs: pathlib.Path, page: pathlib.Path, file: pathlib.Path, link: re.Match[str]) -> str:
    """A link as the site has it; Markdown files that are not on the site are named instead.

    Args:
        docs: Folder of the site's pages.
        page: The page that contains the link.
        file: The file that holds the text of the page.
        link: The link, with a path relative to the file.
    """
    image, text, path, anchor = link.groups()
    target = (file.parent / path).resolve()
    for name, elsewhere in _ELSEWHERE.items():
        if target == elsewhere:
            return f"{{ref}}`{text} <{anchor[1:]}>`" if anchor else f"[{text}](/{name}.md)"
    if target.suffix != ".md" or target.is_relative_to(docs) or not target.exists():
        return f"{image}[{text}]({os.path.relpath(target, page.parent)}{anchor or ''})"
    name = str(target.relative_to(_ROOT))
    return f"`{name}`" if text.strip("`") in (name, target.name) else f"{text} (`{name}` in the repository)"
