"""The fixture that makes runs of real processes; all processes end with their test."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from ps_trainer.launch.command import shared_server
from tests.testing.processes import ClusterRun


@pytest.fixture
def create_run(tmp_path: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ClusterRun]]:
    """Makes a `ClusterRun` with the given arguments; each call makes another run.

    Arguments of a call, beside those of `ClusterRun`:
        is_fresh: Whether each task is a fresh process that imports TensorFlow itself, for tests of how
            processes start. Otherwise tasks are forked where the system allows it.
        step_ms: Delay of each step in milliseconds. Training that only waits for an event then leaves the cores to
            other tasks. A `--straggler` in `flags` overrides it; 0 = none.
    """
    with ExitStack() as runs:

        def create(
            *, is_fresh: bool = False, step_ms: float = 100.0, flags: Sequence[str] = (), **kwargs: Any
        ) -> ClusterRun:
            folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            slow = [f"--straggler=det:mean_ms={step_ms:g}"] if step_ms else []
            server = None if is_fresh else shared_server(tmp_path_factory.getbasetemp())
            return runs.enter_context(ClusterRun(folder, flags=[*slow, *flags], server=server, **kwargs))

        yield create
