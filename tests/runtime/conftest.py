"""The fixture that serves ps tasks in this process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.runtime.served_ps import Served

from ps_trainer.errors import Interrupted  # isort: skip - after the cluster's environment
from ps_trainer.runtime import liveness, ps


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Served]]:
    """Starts ps tasks whose waits are short; at the end it stops those that still run."""
    monkeypatch.setattr(ps, "LINGER_SECS", 0.0)
    monkeypatch.setattr(ps, "NOTICE_SECS", 0.3)
    monkeypatch.setattr(liveness, "INTERVAL_SECS", 0.05)
    monkeypatch.setattr(liveness, "fault_of", lambda address: "")  # no worker has a server here
    served = []
    with ThreadPoolExecutor() as pool:

        def start(**arguments):
            served.append(Served(pool, **arguments))
            return served[-1]

        yield start
        for task in served:
            task.stop.request(Interrupted(signal.SIGTERM))
            task.control.close()
    for task in served:
        task.leave()
