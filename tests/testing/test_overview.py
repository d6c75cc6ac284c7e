"""The overview in this folder's `__init__.py` names each helper, and nothing else."""

from __future__ import annotations

import pathlib
import re

from tests import testing


def test_every_helper_has_its_line():
    files = {path.stem for path in pathlib.Path(__file__).parent.glob("*.py")}
    helpers = {name for name in files if not name.startswith(("test_", "__"))}
    assert set(re.findall(r"^ {4}(\w+) {2,}\S", testing.__doc__ or "", re.MULTILINE)) == helpers
