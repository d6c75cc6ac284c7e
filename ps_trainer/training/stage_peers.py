"""Those who compute stages of the model for one worker, seen from it."""

from __future__ import annotations

import time

from ps_trainer.cluster.groups import Group
from ps_trainer.config import TrainConfig
from ps_trainer.errors import PeerFailedError, PeerLostError, StartTimeoutError
from ps_trainer.runtime.run_record import Status
from ps_trainer.runtime.supervise import StopRequest

_POLL_SECS = 0.1


class StagePeers:
    """Asks the job to stop when one is gone: no step can be made without it. One that computes for others is no matter.

    Args:
        group: of this worker, which trains.
        config: the run.
        stop: see above.
    """

    def __init__(self, group: Group, config: TrainConfig, stop: StopRequest):
        self._names = dict(zip(group.members[1:], group.names[1:], strict=True))  # by worker index
        self._own_name = group.names[0]
        self._config = config
        self._stop = stop
        self._there: set[int] = set()

    def wait(self, limit_secs: float) -> None:
        """Waits until all have joined: from then on it is known when one is gone.

        Raises:
            StartTimeoutError: one did not in time.
        """
        began_at = time.monotonic()
        while missing := [name for index, name in self._names.items() if index not in self._there]:
            if time.monotonic() - began_at > limit_secs:
                raise StartTimeoutError(
                    f"{', '.join(missing)} did not join within {limit_secs:.0f} s, to compute stages for"
                    f" {self._own_name} (--placement={self._config.placement}); look at the log. A longer wait:"
                    " --start_timeout_secs, or --recover_timeout_secs for one that was lost"
                )
            self._stop.check()
            self._stop.wait(_POLL_SECS)

    def started(self, index: int) -> None:
        """A worker is ready."""
        self._there.add(index)

    def returned(self, index: int) -> None:
        """A worker was started again before anybody knew that it was gone: what it held for a session is lost."""
        if index in self._names:
            self._stop.request(PeerLostError(f"{self._names[index]}, which computes a stage, was started again"))

    def ended(self, index: int, status: Status) -> None:
        """A worker ended, or is lost; one that was lost before this worker began is waited for."""
        if index not in self._names or status == Status.DONE:
            return
        if status != Status.LOST or index in self._there:
            error = PeerLostError if status == Status.LOST else PeerFailedError
            self._stop.request(error(f"{self._names[index]} {status}, and {self._own_name} needs it for a stage"))
