"""The fixture that makes runs of real processes; all processes end with their test."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ps_trainer.launch.command import shared_server
from tests.testing.processes import ClusterRun


@pytest.fixture
def create_run(
    tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[..., ClusterRun]]:
    """Makes a `ClusterRun` with the given arguments; each call makes another run.

    Tasks are forked where the system allows it, except in modules with `FRESH_PROCESSES`, which test how processes
    start.
    """
    is_fresh = getattr(request.module, "FRESH_PROCESSES", False)
    server = None if is_fresh else shared_server(tmp_path_factory.getbasetemp())
    with ExitStack() as runs:

        def create(**kwargs: Any) -> ClusterRun:
            folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return runs.enter_context(ClusterRun(folder, server=server, **kwargs))

        yield create
