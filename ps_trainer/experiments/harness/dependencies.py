"""The code on which a run's figures depend: when it changes, the run is done again.

The code has two parts, because imports reveal only one:

* The experiment's own: the files of its parts, which plan and execute the runs, and of their base classes, and the
  modules that these import, directly or not. Only modules of the experiments count, or of the package of a user's own
  experiment. A text that names a module, as `--model=package.module:Class` does, is an import, too. Code that only
  presents finished runs is left out: the harness; the experiment's file where none of its parts is; and the modules
  `PRESENTING` where a part's file imports them.
* The core: components are loaded by name and tasks are started by command lines. Imports do not reveal them, so whole
  folders count. `_FOLDERS` says which runs execute a folder; a folder that is not in it is an error. Runs in virtual
  time execute only the simulation. So code that starts, connects or recovers tasks does not affect them, except for
  files that the simulation imports.

Comments, docstrings and layout do not count.
"""

from __future__ import annotations

import ast
import enum
import functools
import hashlib
import inspect
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator

from ps_trainer.experiments.harness.labels import Level

PRESENTING = ("claims", "plots", "tables", "texts")

_PACKAGE = pathlib.Path(__file__).resolve().parents[2]
_EXPERIMENTS = "ps_trainer.experiments"
_HARNESS = f"{_EXPERIMENTS}.harness"
_CPU_WATCH = "cpu.py"  # file of the harness that decides which runs were contended


class _Runs(enum.Enum):
    """Runs that execute the code of a folder."""

    ALL = "all runs"
    CLUSTERS = "runs of clusters"
    NONE = "no run"


# Folders of the package; "" stands for the files beside them.
_FOLDERS = {
    "": _Runs.ALL,
    "simulation": _Runs.ALL,
    "models": _Runs.ALL,
    "data": _Runs.ALL,
    "optimizers": _Runs.ALL,
    "store": _Runs.ALL,
    "gradients": _Runs.CLUSTERS,
    "updates": _Runs.CLUSTERS,
    "checkpoints": _Runs.CLUSTERS,
    "disturbances": _Runs.CLUSTERS,
    "metrics": _Runs.CLUSTERS,
    "cluster": _Runs.CLUSTERS,
    "runtime": _Runs.CLUSTERS,
    "training": _Runs.CLUSTERS,
    "launch": _Runs.CLUSTERS,
    # Parses flags into the settings that a run's own part holds.
    "cli": _Runs.NONE,
    "comparison": _Runs.NONE,
    # Uses of a trained model, after the run.
    "inference": _Runs.NONE,
    # Ways to start a run from Python, which no experiment uses.
    "api": _Runs.NONE,
    "tf1": _Runs.NONE,
    # The experiment's own part says which of these files count.
    "experiments": _Runs.NONE,
}
_TABLES = "component_tables"
_NAMED = re.compile(r"([A-Za-z_]\w*(?:\.\w+)+)(?::\w+)?")


def code_version(experiment_type: type, level: Level) -> str:
    """Returns a digest of the code on which an experiment's runs of a level depend."""
    digest = hashlib.sha256()
    # An editable install imports the experiments through a link, which must not change the order.
    own = {path.resolve() for path in own_files(experiment_type)}
    for path in (*sorted(_core_files(level)), *sorted(own)):
        digest.update(f"{path.name}\0{_code_of(_read(path))}\0".encode())
    return digest.hexdigest()[:12]


def own_files(experiment_type: type) -> set[pathlib.Path]:
    """Returns the files of the experiment's own part, found without importing anything."""
    own_classes = [cls for cls in _executing_classes(experiment_type) if _is_own(cls)]
    roots = {_package_of(cls.__module__): _root_of(cls) for cls in own_classes}
    left_out = {f"{cls.__module__.rpartition('.')[0]}.{name}" for cls in own_classes for name in PRESENTING}
    found = {pathlib.Path(inspect.getfile(cls)) for cls in own_classes}
    todo = [module for path in found for module in imports_of(path) - left_out]
    while todo:
        module = todo.pop()
        root = roots.get(_package_of(module))
        path = _file_of(module, root) if root is not None and not f"{module}.".startswith(f"{_HARNESS}.") else None
        if path is not None and path not in found:
            found.add(path)
            todo += imports_of(path) - left_out
    return found


def imports_of(path: pathlib.Path) -> frozenset[str]:
    """Returns the modules that a file imports anywhere or names in a text, dotted, and perhaps names in them."""
    return _imports_in(_read(path), path)


@functools.cache
def _imports_in(source: str, path: pathlib.Path, *, has_texts: bool = True) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, path)
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif has_texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = _NAMED.fullmatch(node.value)
            found |= {named[1]} if named else set()
    return frozenset(found)


@functools.cache
def _loaded_by_name(source: str) -> frozenset[str]:
    """Returns the modules of the tables that a file uses as `component_tables.NAME`."""
    used = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == _TABLES
    }
    return frozenset().union(*(modules for name, modules in _component_tables().items() if name in used))


@functools.cache
def _component_tables() -> dict[str, frozenset[str]]:
    """Returns the modules in each table of `component_tables.py`, by the table's name."""
    path = _PACKAGE / f"{_TABLES}.py"
    return {
        target.id: _imports_in(ast.unparse(node.value), path)
        for node in ast.parse(_read(path)).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


@functools.cache
def _core_files(level: Level) -> frozenset[pathlib.Path]:
    executed = {_Runs.ALL} if level is Level.VIRTUAL else {_Runs.ALL, _Runs.CLUSTERS}
    files = {path for path, folder in _package_files() if _FOLDERS[folder] in executed}
    if level is Level.VIRTUAL:
        files = _imported_by(files)
    return frozenset({*files, _PACKAGE / "experiments" / "harness" / _CPU_WATCH})


def _package_files() -> Iterator[tuple[pathlib.Path, str]]:
    """Returns every file of the package, with its folder in the package."""
    # `models` is a link in a clone, which `rglob` does not follow.
    for path in (*_PACKAGE.rglob("*.py"), *(_PACKAGE / "models").rglob("*.py")):
        folder, *rest = path.relative_to(_PACKAGE).parts
        # `__main__.py` only calls the commands.
        yield path, folder if rest else "cli" if folder == "__main__.py" else ""


def _imported_by(files: Iterable[pathlib.Path]) -> set[pathlib.Path]:
    """Returns the files, and the files that these import or load by a table of `component_tables`, directly or not."""
    # The files beside the folders name the components of all runs, so what they load decides nothing.
    found, todo = set(files), [file for file in files if file.parent != _PACKAGE]
    while todo:
        path = todo.pop()
        source = _read(path)
        modules = _imports_in(source, path, has_texts=False) | _loaded_by_name(source)
        imported = {file for module in modules if (file := _file_of(module, _PACKAGE.parent)) is not None}
        new = {file for file in imported if file.is_relative_to(_PACKAGE)} - found
        found |= new
        todo += new
    return found


@functools.cache
def _code_of(source: str) -> str:
    """Returns the code without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


def _read(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8")


def _absolute(node: ast.ImportFrom, path: pathlib.Path) -> str:
    """Returns the module that `from … import` names, with a relative one made absolute."""
    if not node.level:
        return node.module or ""
    above = path.resolve().parents[node.level - 1]
    parts = [above.name]
    while (above.parent / "__init__.py").exists():
        above = above.parent
        parts.insert(0, above.name)
    return ".".join([*parts, *([node.module] if node.module else [])])


def _executing_classes(experiment_type: type) -> list[type]:
    """Returns the classes of the parts and their base classes; those of the experiment itself if it has no parts."""
    parts = [type(part) for part in getattr(experiment_type, "parts", ())]
    return [cls for one in parts or [experiment_type] for cls in one.__mro__]


def _package_of(module: str) -> str:
    """Returns the package of an experiment's own code: the experiments, or the top package of a user's module."""
    return _EXPERIMENTS if f"{module}.".startswith(f"{_EXPERIMENTS}.") else module.partition(".")[0]


def _root_of(cls: type) -> pathlib.Path:
    """Returns the folder from which the module of a class is imported."""
    return pathlib.Path(inspect.getfile(cls)).parents[cls.__module__.count(".")]


def _file_of(module: str, root: pathlib.Path) -> pathlib.Path | None:
    """Returns the module's file; None where the name is not a module, as in `from module import name`."""
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def _is_own(cls: type) -> bool:
    """Returns whether a class is an experiment's own code: neither Python's nor the harness's."""
    top = cls.__module__.partition(".")[0]
    return top not in sys.stdlib_module_names and not cls.__module__.startswith(f"{_HARNESS}.")
