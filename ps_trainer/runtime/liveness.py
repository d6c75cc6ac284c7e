"""Notices, on a ps task, that the process of a worker is gone.

A killed worker cannot report that it ended, but from then on the kernel refuses connections to its port. So each ps
task opens and closes a TCP connection to every worker that has joined and not ended. A slow step of the worker does
not matter, because its kernel accepts the connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from ps_trainer.cluster.network import fault_of

INTERVAL_SECS = 1.0
MISSES = 3  # in a row; a single one may be a short fault of the network


class Liveness:
    """A thread that probes workers, and reports each loss of one once.

    Args:
        addresses: "host:port" of each worker, by index.
        on_lost: Callback with index and reason, called in the thread.
    """

    def __init__(self, addresses: Mapping[int, str], on_lost: Callable[[int, str], None]):
        self._addresses = dict(addresses)
        self._on_lost = on_lost
        self._watched: frozenset[int] = frozenset()
        self._misses: dict[int, int] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._probe_until_closed, name="liveness", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def watch(self, workers: Collection[int]) -> None:
        """Sets the workers that are expected to run from now on."""
        # Replaced as a whole: the thread of the probes may iterate over the old set at this moment.
        self._watched = frozenset(workers)

    def close(self) -> None:
        """Ends the thread; does not wait for a probe in progress."""
        self._closing.set()

    def _probe_until_closed(self) -> None:
        while not self._closing.wait(INTERVAL_SECS):
            for index in sorted(self._watched):
                fault = fault_of(self._addresses[index])
                self._misses[index] = self._misses.get(index, 0) + 1 if fault else 0
                # Not `>=`, which would report the same loss again each second. A probe may take seconds, so the worker
                # may have reported its end since it began.
                if self._misses[index] == MISSES and index in self._watched and not self._closing.is_set():
                    address = self._addresses[index]
                    self._on_lost(index, f"{address} does not answer ({fault}): it was killed, or is cut off")
