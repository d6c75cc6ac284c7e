"""The order of the test files of a session."""

from __future__ import annotations

import itertools
import pathlib
from collections import defaultdict
from collections.abc import Iterable

import pytest


def alternate_files(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Files with tests of processes and other files take turns; within either, files keep their order."""
    files: dict[pathlib.Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    waiting, computing = [], []
    for of_one in files.values():
        waits = any(item.get_closest_marker("process") for item in of_one)
        (waiting if waits else computing).append(of_one)
    turns = itertools.zip_longest(waiting, computing, fillvalue=())
    return [item for turn in turns for of_one in turn for item in of_one]
