"""Finds a folder named `ps_trainer` that hides this package from Python.

A folder without an `__init__.py` is a package too, unless a real one lies further back on the path. The folder of a
clone is one, seen from the folder above it. Where an editable install finds the real package by a hook, Python asks the
hook only for the modules inside. Then the package has modules, but not the names that its `__init__.py` defines. Every
module of this package imports `errors`, which refuses to continue in that case.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterable, Sequence

_NAME = __name__.partition(".")[0]
_EXIT_USAGE = 2


def refuse() -> None:
    """Ends this process with exit code 2 and one line if Python has taken another folder for the package.

    Raises:
        SystemExit: Such a folder is in front of the package.
    """
    package = sys.modules[_NAME]
    if getattr(package, "__file__", None) is None:
        print(f"error: {_explain(list(package.__path__))}", file=sys.stderr, flush=True)
        raise SystemExit(_EXIT_USAGE)


def problem_of_children(folder: str, path: Sequence[str]) -> str | None:
    """Returns the problem that `python -m ps_trainer` in `folder` would have; None if it would find the package.

    Args:
        folder: Working folder of the child process.
        path: Path of this process, `sys.path`.
    """
    if getattr(sys.flags, "safe_path", False):
        return None  # then Python does not look into the working folder
    spec = importlib.machinery.PathFinder.find_spec(_NAME, [folder, *path])
    # A spec without an origin is a folder without `__init__.py`, and no real package is on the path.
    if spec is None or spec.origin is not None or spec.submodule_search_locations is None:
        return None
    return _explain(spec.submodule_search_locations)


def _explain(folders: Iterable[str]) -> str:
    folder = os.path.abspath(next(iter(folders)))
    above = os.path.dirname(folder)
    if above == os.getcwd():
        fix = f"start from another folder, for example {folder}"
    elif above in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        fix = f"take {above} out of PYTHONPATH"
    else:
        fix = f"move the script out of {above}, or take that folder off the Python path"
    return f"Python takes the folder {folder} for the package {_NAME}, because it comes first on the path; {fix}"
