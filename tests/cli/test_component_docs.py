"""The entry of every component in `list`: its summary is the docstring's, and its example is a run that can start."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex

import pytest

from benchmarks import models
from ps_trainer import component_tables
from ps_trainer.cli import component_docs, flags, local
from ps_trainer.config import TrainConfig
from ps_trainer.errors import DataError
from ps_trainer.options import key_of, parse
from ps_trainer.training import components as components_lib

EVERY = [(kind, name) for kind, table in component_tables.REGISTRIES.items() for name in table.names()]


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_summary_is_the_first_line_of_the_docstring(kind, name):
    table = component_tables.REGISTRIES[kind]
    assert component_docs.summary(table, name) == inspect.getdoc(table.load(name)).partition("\n")[0]


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_description_is_for_users(kind, name):
    lines = component_docs.description(component_tables.REGISTRIES[kind].load(name)).splitlines()
    assert lines and not any(line.startswith(("Args:", "Raises:", "Returns:", "Shape suffixes")) for line in lines)


def test_description_keeps_what_stands_around_the_left_out_sections():
    class Some:
        """Does it.

        Shape suffixes: B batch,
        D features.

        Formula:
            x = 1

        Args:
            a: One.

                More.
        Returns:
            Two.

        Source: somebody.
        """

    assert component_docs.description(Some) == "Does it.\n\nFormula:\n    x = 1\n\nSource: somebody."


def settings(kind: str, name: str) -> tuple[local.LocalFlags, TrainConfig]:
    """The flags of an example."""
    program, command, *args = shlex.split(component_docs.example(kind, name))
    assert (program, command) == ("ps_trainer", "local")
    return flags.parse(["local", *args], local.HELP, local.LocalFlags, TrainConfig).groups


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_example_uses_the_component_with_valid_flags_and_options(kind, name):
    _, config = settings(kind, name)
    config.check()
    values = getattr(config, component_tables.REGISTRIES[kind].flag)
    assert any(value.split(":")[0] == name for value in ([values] if isinstance(values, str) else values))
    component_tables.MODELS.create(config.model, config.model_option)
    component_tables.OPTIMIZERS.create(config.optimizer, config.optimizer_option)
    assert (config.data_dir == "DIR") == (config.dataset in component_tables.DATASETS_OF_FILES)


@pytest.mark.parametrize("kind", ["updates", "transforms", "optimizers", "schedules", "layouts", "delays"])
def test_run_of_an_example_can_start(kind):
    for name in component_tables.REGISTRIES[kind].names():
        cluster, config = settings(kind, name)
        if name not in ("trace", "hybrid"):  # trace needs a file, and hybrid a larger data set than a light test
            components_lib.load(config, cluster.num_workers)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_example_gives_an_option_another_value_than_its_default(kind, name):
    options = getattr(component_tables.REGISTRIES[kind].load(name), "Options", None)
    if kind in ("models", "datasets", "optimizers") or options is None or name == "trace":
        return
    example = component_docs.example(kind, name)
    fields = {key_of(field): field for field in dataclasses.fields(options)}
    given = re.findall(rf"(?:{name}:|_option=)(\w+)=(\S+)", example)
    assert given
    parsed = parse(options, [f"{key}={value}" for key, value in given], "example")
    assert all(getattr(parsed, fields[key].name) != fields[key].default for key, _ in given)


@pytest.mark.parametrize("name", component_tables.MODELS.names())
def test_a_model_is_trained_on_a_dataset_on_which_the_benchmark_trains_it(name):
    """Models without their own goal take the digits."""
    goals = [goal for key, goal in models.GOALS.items() if (goal.model or key) == name]
    datasets = [flag.partition("=")[2] for goal in goals for flag in goal.flags if flag.startswith("--dataset=")]
    assert settings("models", name)[1].dataset in (datasets or ["digits"])


@pytest.mark.parametrize("name", component_tables.DATASETS.names())
def test_a_generated_dataset_is_read_by_the_model_that_trains_on_it(name):
    _, config = settings("datasets", name)
    readers = [m for m in component_tables.MODELS.names() if settings("models", m)[1].dataset == name]
    of_files = component_tables.DATASETS_OF_FILES
    assert config.model in readers or name in of_files | {"digits", "synthetic", "topics", "text_windows"}


@pytest.mark.parametrize("name", sorted(component_tables.DATASETS_OF_FILES))
def test_a_dataset_of_files_asks_for_their_folder(name):
    needed = {"libsvm": ["train_files=a", "test_files=b"], "tfrecord": ["features=label:int64"]}
    with pytest.raises(DataError, match=f"--data_dir is not given; .*{name}.* needs --data_dir=<folder> with "):
        component_tables.DATASETS.create(name, needed.get(name, []), data_dir=None)
