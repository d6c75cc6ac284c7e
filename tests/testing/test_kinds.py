from __future__ import annotations

import pathlib
import sys
import types

import pytest

from tests.launch import test_forkserver
from tests.processes import test_signals
from tests.store import test_extents
from tests.testing.kinds import kind_of
from tests.updates import test_conformance, test_gate


def item(module, *, mark=None, fixtures=(), folder="updates"):
    return types.SimpleNamespace(
        module=module,
        fixturenames=fixtures,
        path=pathlib.Path("tests", folder, "test_x.py"),
        get_closest_marker={"process": mark}.get,
    )


@pytest.mark.parametrize(
    ("test", "kind"),
    [
        (item(test_extents), "light"),
        (item(test_gate), "cluster"),
        (item(test_conformance), "cluster"),  # through a helper
        (item(test_signals, folder="processes"), "process"),
        (item(test_extents, fixtures=("create_run",)), "process"),
        (item(test_forkserver, folder="launch"), "process"),  # imports ForkServer
        (item(test_gate, mark=pytest.mark.process), "process"),
    ],
)
def test_the_kind_follows_from_what_a_test_uses(test, kind):
    assert kind_of(test) == kind


def test_every_test_is_marked_with_its_kind(request):
    assert [mark.name for mark in request.node.iter_markers()] == ["cluster"]  # this file imports such tests


def test_modules_that_import_each_other_and_their_package_are_light(monkeypatch):
    names = ("tests.a", "tests.a.one", "tests.a.other")
    package, one, other = (types.ModuleType(name) for name in names)
    package.__path__ = []
    for module in (package, one, other):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        module.package, module.one, module.other = package, one, other
    assert kind_of(item(one)) == "light"
    third = types.ModuleType("tests.a.third")
    third.package, package.gate = package, test_gate  # another module has imported test_gate
    assert kind_of(item(third)) == "light"
    third = types.ModuleType("tests.a.third")
    third.other, other.gate = other, test_gate
    assert kind_of(item(third)) == "cluster"
