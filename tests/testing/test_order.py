"""The order of test files, with items that have only a path and a kind."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

from tests.testing.order import alternate_files


class Item(NamedTuple):
    path: pathlib.Path
    name: str
    kind: str

    def get_closest_marker(self, kind):
        return kind if kind == self.kind else None


def item(name, kind):
    return Item(pathlib.Path(name[0]), name, kind)


def test_files_of_processes_and_others_take_turns_and_tests_of_a_file_stay_together():
    items = [
        item("a1", "process"),
        item("a2", "light"),  # in a file with a test of processes
        item("b1", "process"),
        item("c1", "process"),
        item("d1", "cluster"),
        item("d2", "cluster"),
        item("e1", "light"),
    ]
    assert [one.name for one in alternate_files(items)] == ["a1", "a2", "d1", "d2", "b1", "e1", "c1"]


def test_files_without_a_partner_come_last_in_their_order():
    items = [item("a1", "light"), item("b1", "process"), item("c1", "cluster")]
    assert [one.name for one in alternate_files(items)] == ["b1", "a1", "c1"]
