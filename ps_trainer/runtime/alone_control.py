"""`AloneControl`: the control plane of a process that trains alone, in its own memory instead of on a ps task."""

from __future__ import annotations

import threading
import uuid

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.runtime import control
from ps_trainer.runtime.control import PsControl, PsState
from ps_trainer.runtime.run_record import Message, Roster, RunRecord, StatusMessage


class AloneControl(PsControl):
    """The control plane of this process, in place of ps task 0's. Every method succeeds at once.

    The records are new in each process, so a restarted process never finds a run that continues: it restores the newest
    checkpoint.

    Args:
        cluster: Configuration of a process that trains alone.
    """

    def __init__(self, cluster: ClusterConfig):
        super().__init__("this process", 0)
        self._lock = threading.Lock()
        self._state = PsState(hello=control.hello(cluster, 0, incarnation=uuid.uuid4().hex[:12]))

    def read(self, *, is_patient: bool = False) -> PsState:
        with self._lock:
            return self._state

    def write_run(self, run: RunRecord) -> None:
        with self._lock:
            self._state = self._state._replace(run=run)

    def send(self, message: Message) -> None:
        """Enters a report into the roster. A heartbeat has no effect, because nothing else watches this process."""
        if isinstance(message, StatusMessage):
            roster = Roster(run_id=message.run_id, workers={message.worker: message.entry})
            with self._lock:
                self._state = self._state._replace(roster=roster)

    def close(self) -> None:
        """Does nothing."""
