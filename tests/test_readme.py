"""The README is true and short, links in every page resolve, and the reference names every component."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shlex

import pytest
import tensorflow.compat.v1 as tf

from ps_trainer import component_tables
from ps_trainer.cli import data as data_cli
from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import local as local_cli
from ps_trainer.cli import simulate as simulate_cli
from ps_trainer.cli import task as task_cli
from ps_trainer.cli.export import ExportFlags
from ps_trainer.cli.predict import PredictFlags
from ps_trainer.cluster.sources import ClusterFlags
from ps_trainer.config import TrainConfig

ROOT = pathlib.Path(__file__).parent.parent
PAGES = sorted(p for p in ROOT.rglob("*.md") if not {".venv", "runs", "build"} & set(p.relative_to(ROOT).parts))
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            there = linked.read_text(encoding="utf-8")
            headings = re.findall(r"^#+ (.+)$", there, re.MULTILINE)
            anchors = {heading.lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors | set(re.findall(r'<a id="([^"]+)">', there)), target


def test_the_page_of_benchmarks_lists_its_sections():
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    above, _, _ = page.partition("\n## ")
    for heading in re.findall(r"^## (.+)$", page, re.MULTILINE):
        assert f"[{heading}](#{heading.lower().replace(' ', '-')})" in above


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`?make (\w+)", README)) - {"it"}
    assert {"train", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"


def test_readme_fits_a_few_screens():
    assert len(README.splitlines()) <= 144


def test_flags_of_the_commands_are_known():
    hosts = re.search(r'^HOSTS="(.*)"', README, re.MULTILINE)[1]
    shell = [*re.findall(r"`(ps_trainer local [^`]+)`", README), *re.findall(r"^python run_.*$", README, re.MULTILINE)]
    commands = [shlex.split(line.replace("$HOSTS", hosts)) for line in shell]
    assert len(commands) >= 4
    for words in commands:
        groups = (
            (local_cli.LocalFlags, TrainConfig) if "local" in words else (ClusterFlags, task_cli.PsFlags, TrainConfig)
        )
        flags_lib.parse([words[0], *(word for word in words if word.startswith("-"))], "usage", *groups)


def test_the_model_of_the_readme_can_be_built():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    assert len(code.splitlines()) == 12
    names = {}
    exec(code, names)
    with tf.Graph().as_default():
        batch = {"image": tf.zeros([2, 8, 8, 1]), "label": tf.zeros([2], tf.int64)}
        assert names["MyModel"]().build(batch, training=True).loss.shape.rank == 0


def test_flags_in_the_text_exist():
    commands = (task_cli.PsFlags, local_cli.LocalFlags, simulate_cli.SimulateFlags, ExportFlags, PredictFlags)
    groups = (ClusterFlags, *commands, data_cli.InfoFlags, data_cli.GenerateDataFlags, TrainConfig)
    fields = [field for group in groups for field in dataclasses.fields(group)]
    known = {field.name for field in fields} | {f"no{field.name}" for field in fields if field.default in (True, False)}
    text = re.sub(r"^`python -m benchmarks.*$", "", README, flags=re.MULTILINE)  # these have their own flags
    assert set(re.findall(r"--([a-z][a-z_]+)", text)) - {"help"} <= known


def test_every_component_is_named_in_the_reference():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    for table in component_tables.REGISTRIES.values():
        for name in table.names():
            assert f"\n## {name}\n" in pages, f"--{table.flag}={name}"
