"""A run of real processes per test, all ended with it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.testing.processes import ClusterRun


@pytest.fixture
def create_run(tmp_path: pathlib.Path) -> Iterator[Callable[..., ClusterRun]]:
    """Makes a `ClusterRun` with the given arguments; more than one call makes more than one run."""
    with ExitStack() as runs:

        def create(**kwargs: Any) -> ClusterRun:
            folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return runs.enter_context(ClusterRun(folder, **kwargs))

        yield create
