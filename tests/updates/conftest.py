"""The cluster on which a module's rule is scripted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testing.cluster import InProcessCluster


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[InProcessCluster]:
    """Two ps tasks, which a rule must keep in agreement, and the number of workers in the module's `NUM_WORKERS`."""
    with InProcessCluster(2, request.module.NUM_WORKERS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def one_worker() -> Iterator[InProcessCluster]:
    """One ps task and one worker."""
    with InProcessCluster(1, 1) as cluster:
        yield cluster
