"""CONTRIBUTING.md: its picture of the layers agrees with the imports; the files that it and the maps name exist."""

from __future__ import annotations

import functools
import pathlib
import re

import pytest

from tests.test_import_directions import all_modules, imports_of, part_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Above all layers: the program calls cli/, and the package offers the names of api/.
ABOVE = {"ps_trainer.__main__", "ps_trainer"}
WITHOUT_LAYER = {"models", "__pycache__"}  # reached by name only


def layers(text: str) -> dict[str, int]:
    """The layer of each part, 1 the lowest, as the picture draws it."""
    picture = re.search(r"<!-- layers: .*?```\n(.*?)```", text, flags=re.DOTALL)[1]
    found: dict[str, int] = {}
    for line in picture.splitlines():
        number, parts = re.match(r"(\d)  ((?:\w+/?  ?)+)", line).groups()
        for part in parts.split():
            assert part.rstrip("/") not in found, f"{part} is drawn twice"
            found[part.rstrip("/")] = int(number)
    return found


@functools.cache
def arrows() -> frozenset[tuple[str, str]]:
    """(importing part, imported part) of every import between two parts."""
    found = set()
    for name, path in all_modules():
        if not name.startswith("models") and name not in ABOVE:
            for imported in imports_of(path.read_text(encoding="utf-8"), name, path.name == "__init__.py"):
                if imported.module.startswith("ps_trainer"):
                    found.add((part_of(name), part_of(imported.module)))
    return frozenset((source, target) for source, target in found if source != target)


def not_downwards(layer: dict[str, int]) -> list[tuple[str, str]]:
    """The imports between parts that do not lead to a lower layer."""
    return sorted((source, target) for source, target in arrows() if layer[source] <= layer[target])


def test_picture_draws_each_folder_once():
    folders = {path.name for path in (ROOT / "ps_trainer").iterdir() if path.is_dir()} - WITHOUT_LAYER
    assert layers(TEXT).keys() == folders | {"core"}


def test_imports_lead_to_lower_layers():
    assert not_downwards(layers(TEXT)) == []


@pytest.mark.parametrize(("source", "target"), [("checkpoints", "store"), ("cli", "experiments")])
def test_an_import_that_does_not_lead_down_is_found(source, target):
    drawn = layers(TEXT)
    assert (source, target) in not_downwards({**drawn, target: drawn[source]})


def test_files_and_folders_that_are_named_exist():
    codes = re.findall(r"`([^`\n]+)`", TEXT)
    names = {name for code in codes for name in re.findall(r"[\w./]+\.(?:py|md|json)\b|\w[\w/]+/(?= |$)", code)}
    assert {"training/loop.py", "simulation/rules/", "tests/testing/script.py"} <= names
    package = ROOT / "ps_trainer"
    places = [
        ROOT,
        package,
        *package.iterdir(),
        package / "experiments/toolkit",
        package / "experiments/backup_workers",
        package / "experiments/linear_scaling",
    ]
    assert [name for name in sorted(names) if not any((place / name).exists() for place in places)] == []


def test_every_map_of_a_folder_is_linked():
    folders = {path.parent.name for path in (ROOT / "ps_trainer").glob("*/README.md")} - WITHOUT_LAYER
    maps = {f"ps_trainer/{folder}/README.md" for folder in folders}
    assert set(re.findall(r"\]\((ps_trainer/\w+/README\.md)\)", TEXT)) == maps


# A rule or transform of updates/ and gradients/ is in the reference instead.
@pytest.mark.parametrize("folder", ["checkpoints", "cli", "inference", "launch", "runtime", "tf1", "training"])
def test_map_names_each_file_of_its_folder_once(folder):
    path = ROOT / "ps_trainer" / folder
    named = re.findall(r"^\| .*", (path / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    linked = re.findall(r"\]\(([\w/]+\.py)\)", "\n".join(named))
    files = [str(file.relative_to(path)) for file in path.rglob("*.py") if file.name != "__init__.py"]
    assert sorted(linked) == sorted(files)
