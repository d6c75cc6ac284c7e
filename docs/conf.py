"""Settings of Sphinx, which builds the site: `make docs`."""

from __future__ import annotations

import pathlib
import re

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
