"""Names of components, classes of the user's own, and the messages about wrong ones."""

from __future__ import annotations

import dataclasses
import sys
import textwrap

import pytest

from ps_trainer import component_tables
from ps_trainer.errors import OptionError, UnknownNameError, did_you_mean
from ps_trainer.options import option
from ps_trainer.registry import Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `WithOptions`."""

    size: int = option(1, "a size")


class WithOptions:
    """Takes options."""

    Options = Options

    def __init__(self, options, *, extra=None):
        self.options = options
        self.extra = extra


class WithoutOptions:
    """Takes none."""

    def __init__(self, *, extra=None):
        self.extra = extra


THINGS = Registry("thing", "thing", {"with": f"{__name__}:WithOptions", "without": f"{__name__}:WithoutOptions"})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on the Python path; the fixture removes modules imported from it afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_former_name_of_a_model_means_the_present_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "models", None)  # as in an installation of ps_trainer, which has no such package
    monkeypatch.delitem(sys.modules, "models.softmax", raising=False)
    assert component_tables.MODELS.load("models.softmax:Softmax") is component_tables.MODELS.load("softmax")


def test_a_model_of_the_users_comes_before_a_former_name(folder, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "models"]:
        monkeypatch.delitem(sys.modules, name)
    (folder / "models").mkdir()
    (folder / "models" / "softmax.py").write_text("class Softmax:\n    def build(self): pass\n")
    (folder / "models" / "__init__.py").touch()
    assert component_tables.MODELS.load("models.softmax:Softmax") is not component_tables.MODELS.load("softmax")


def test_an_unknown_models_module_is_named_as_it_was_given():
    with pytest.raises(UnknownNameError, match="no module named 'models.nothing'"):
        component_tables.MODELS.load("models.nothing:Nothing")


def test_creates_by_name_with_options():
    thing = THINGS.create("with", ["size=4"], extra="e")
    assert type(thing).__name__ == "WithOptions"
    assert (thing.options.size, thing.extra) == (4, "e")


def test_creates_by_name_without_options():
    assert THINGS.create("without", extra="e").extra == "e"


def test_options_for_a_class_without_any_are_rejected():
    with pytest.raises(OptionError, match="--thing_option size=4: thing 'without' takes no options"):
        THINGS.create("without", ["size=4"])


def test_wrong_options_name_the_flag():
    with pytest.raises(OptionError, match="--thing_option siez=4: unknown key 'siez'; did you mean size"):
        THINGS.create("with", ["siez=4"])


def test_an_unknown_name_lists_the_known_and_suggests_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        THINGS.check("wihtout")
    assert "--thing=wihtout: unknown thing; did you mean without?" in str(caught.value)
    assert "known: with, without" in str(caught.value)
    assert "package.module:Class" in str(caught.value)


def test_a_name_in_capitals_is_told_the_one_that_is_meant():
    assert did_you_mean("CNN", ["cnn", "lenet"]) == "did you mean cnn? "
    assert did_you_mean("fakeclass", ["FakeClass"]) == "did you mean FakeClass? "


def test_a_name_unlike_all_others_gets_no_suggestion():
    with pytest.raises(UnknownNameError) as caught:
        THINGS.check("qqq")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("name", ["", ":", "a:", ":A", "a.b", "a b:C", "a:b.c", "a..b:C", "1a:B"])
def test_a_text_that_is_neither_a_name_nor_a_class_is_rejected(name):
    with pytest.raises(UnknownNameError):
        THINGS.check(name)


def test_a_users_class_is_loaded_from_the_python_path(folder):
    (folder / "own_things").mkdir()
    (folder / "own_things" / "__init__.py").touch()
    (folder / "own_things" / "mine.py").write_text("class Mine:\n    size = 5\n")
    THINGS.check("own_things.mine:Mine")
    assert THINGS.create("own_things.mine:Mine").size == 5


def test_check_does_not_import(folder):
    (folder / "costly_thing.py").write_text("raise RuntimeError('imported')\n")
    THINGS.check("costly_thing:Thing")


@pytest.mark.parametrize("module", ["absent_thing", "absent_thing.inner"])
def test_a_missing_module_is_named_with_a_remedy(folder, module):
    with pytest.raises(UnknownNameError, match="no module named 'absent_thing' on the Python path.*PYTHONPATH"):
        THINGS.load(f"{module}:Thing")


def test_a_missing_module_inside_an_existing_package_is_named(folder):
    (folder / "own_package").mkdir()
    (folder / "own_package" / "__init__.py").touch()
    with pytest.raises(UnknownNameError, match="no module named 'own_package.absent'"):
        THINGS.load("own_package.absent:Thing")


def test_a_missing_class_names_the_file(folder):
    (folder / "empty_thing.py").touch()
    with pytest.raises(UnknownNameError, match="empty_thing.py has no class 'Thing'"):
        THINGS.load("empty_thing:Thing")


def test_a_misspelled_class_gets_the_nearest_one_and_the_classes_of_the_file(folder):
    (folder / "two_things.py").write_text("from json import JSONDecoder\nclass Mine: pass\nclass Other: pass\n")
    with pytest.raises(UnknownNameError, match=r"has no class .Min.; did you mean Mine\? it has Mine, Other$"):
        THINGS.load("two_things:Min")


def test_a_module_that_fails_in_its_own_imports_is_not_called_missing(folder):
    (folder / "broken_thing.py").write_text(
        textwrap.dedent(
            """
            import absent_dependency

            class Thing: ...
            """
        )
    )
    with pytest.raises(ModuleNotFoundError, match="absent_dependency"):
        THINGS.load("broken_thing:Thing")


@pytest.mark.parametrize("kind", component_tables.REGISTRIES)
def test_every_registered_name_loads_and_its_docstring_begins_with_one_sentence(kind):
    table = component_tables.REGISTRIES[kind]
    assert table.names()
    for name in table.names():
        assert table.load(name).__doc__.strip().splitlines()[0].rstrip().endswith((".", ":")), name


def test_changing_the_list_of_names_changes_no_table():
    THINGS.names().clear()
    assert THINGS.names() == ["with", "without"]


def test_an_instance_has_the_registered_name_of_its_class_or_the_name_in_python():
    registry = Registry("thing", "thing", {"one": f"{__name__}:WithoutOptions"})
    assert registry.name_of(WithoutOptions()) == "one"
    assert registry.name_of(WithOptions(Options())) == "WithOptions"
