"""`StagePeers`: the workers that compute stages of the model for one worker."""

from __future__ import annotations

import time

from ps_trainer.cluster.groups import Group
from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError, PeerLostError, StartTimeoutError
from ps_trainer.runtime.run_record import Status
from ps_trainer.runtime.supervise import StopRequest

_POLL_SECS = 0.1


class StagePeers:
    """Stops the job when a stage worker of this group is lost, since no step can be made without it.

    Ignores the stage workers of other groups.

    Args:
        group: Group of this worker, which trains.
        config: Settings of the run.
        stop: Request by which the job is stopped.
    """

    def __init__(self, group: Group, config: TrainConfig, stop: StopRequest):
        self._names = dict(zip(group.members[1:], group.names[1:], strict=True))  # by worker index
        self._own_name = group.names[0]
        self._config = config
        self._stop = stop
        self._ready: set[int] = set()

    def wait(self, limit_secs: float) -> None:
        """Waits until all have joined. Only the loss of a worker that has joined is noticed.

        Args:
            limit_secs: Longest time to wait.

        Raises:
            StartTimeoutError: One did not join in time.
        """
        began_at = time.monotonic()
        while missing := [name for index, name in self._names.items() if index not in self._ready]:
            if time.monotonic() - began_at > limit_secs:
                raise StartTimeoutError(
                    f"{', '.join(missing)} did not join within {limit_secs:.0f} s, to compute stages for"
                    f" {self._own_name} (--placement={self._config.placement}); look at the log. A longer wait:"
                    " --start_timeout_secs, or --recover_timeout_secs for one that was lost"
                )
            self._stop.check()
            self._stop.wait(_POLL_SECS)

    def started(self, index: int) -> None:
        """Notes that worker `index` is ready."""
        self._ready.add(index)

    def returned(self, index: int) -> None:
        """Stops the job if worker `index`, restarted before its loss was noticed, lost the state of this session."""
        if index in self._names:
            self._stop.request(PeerLostError(f"{self._names[index]}, which computes a stage, was restarted"))

    def ended(self, index: int, status: Status) -> None:
        """Stops the job if worker `index` is needed. One that was lost before it was ready here may come back."""
        if index not in self._names or status == Status.DONE:
            return
        if status != Status.LOST or index in self._ready:
            error = PeerLostError if status == Status.LOST else PeerFailedError
            self._stop.request(error(f"{self._names[index]} {status}, and {self._own_name} needs it for a stage"))
