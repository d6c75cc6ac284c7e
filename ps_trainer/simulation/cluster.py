"""`ClusterModel`: durations of computation and transfers in virtual time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ps_trainer import options
from ps_trainer.disturbances import delays
from ps_trainer.disturbances.delays import DelaySpec
from ps_trainer.errors import OptionError
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterModel:
    """A cluster of workers and ps tasks, each on a separate host unless they are colocated.

    A *transfer* brings all parameters to a worker (pull) or its gradient to the ps tasks (push). It has `model_bytes`
    bytes, and every ps task handles an equal share. So the links of the ps tasks act as one link with num_ps times the
    bandwidth. Simultaneous transfers share it evenly, as TCP connections do, and none is faster than a worker's own
    link. Pulls and pushes do not slow each other down (full duplex). If n workers begin a transfer together, it takes
    max(M / B_worker, n M / (num_ps B_ps)), the closed form of the literature.

    Colocated ps tasks share the links of their workers' hosts (`host_links.py`). A worker's share on its own host
    passes no link. Pushes of other workers arrive by the same direction of a host's link as the worker's own pull, so
    they slow it down.

    Attributes:
        num_workers: Number of workers, including the chief.
        num_ps: Number of ps tasks.
        compute: Distributions of the time that a worker computes per step; `delays.spec_for` chooses the worker's.
        colocated: Whether ps task i is on the host of worker i.
        model_bytes: Size of a transfer in bytes.
        worker_bytes_per_sec: Bandwidth of a worker's link, each way; inf = transfers take no time on it.
        ps_bytes_per_sec: Bandwidth of a ps task's link, each way; inf = transfers take no time on it.
        latency_secs: Seconds that are added to every transfer.
        ps_secs: Seconds that one ps task alone would need to process a push. Pushes are processed one after the other,
            in the order of arrival, and num_ps tasks share the work.
        start_secs: Seconds in which the workers begin, one after the other at even distances; 0 = all at once. Workers
            that begin at once and compute for nearly the same time stay in step: all pull, or all push.
        seed: Seed of the compute times.
    """

    num_workers: int = option(dataclasses.MISSING, "", least=1)
    num_ps: int = option(1, "", least=1)
    compute: Sequence[DelaySpec]
    colocated: bool = False
    model_bytes: int = option(0, "", least=0)
    worker_bytes_per_sec: float = option(math.inf, "", above=0, most=math.inf)
    ps_bytes_per_sec: float = option(math.inf, "", above=0, most=math.inf)
    latency_secs: float = option(0.0, "", least=0)
    ps_secs: float = option(0.0, "", least=0)
    start_secs: float = option(0.0, "", least=0)
    seed: int = option(0, "", least=0)

    def __post_init__(self) -> None:
        options.check(self)
        if self.colocated and self.num_ps > self.num_workers:
            raise OptionError(
                f"--colocated with num_ps={self.num_ps}: ps task i is on the host of worker i, so num_ps must be at"
                f" most num_workers={self.num_workers}"
            )
        if self.colocated and not math.isinf(self.ps_bytes_per_sec):
            raise OptionError(
                f"--colocated with ps_bytes_per_sec={self.ps_bytes_per_sec:g}: the ps tasks have the links of the"
                " workers' hosts; give only worker_bytes_per_sec"
            )
        delays.check_workers(self.compute, self.num_workers, "--compute")
        # A worker without a distribution is rejected here, not in its first step.
        for worker in range(self.num_workers):
            self.compute_of(worker)

    def compute_of(self, worker: int) -> DelaySpec:
        """Returns the distribution of a worker's compute times.

        Raises:
            OptionError: No distribution is given for the worker.
        """
        spec = delays.spec_for(self.compute, worker)
        if spec is not None:
            return spec
        given = ", ".join(spec.text for spec in self.compute) or "nothing"
        raise OptionError(
            f"--compute ({given}) has no delay for worker {worker}; give one without worker=… first, for all others"
        )

    @property
    def ps_link_bytes_per_sec(self) -> float:
        """Bandwidth of all ps tasks together, each way."""
        return self.num_ps * self.ps_bytes_per_sec

    @property
    def has_shared_link(self) -> bool:
        """Whether simultaneous transfers of different workers can slow each other down."""
        if self.colocated:
            return self.model_bytes > 0 and not math.isinf(self.worker_bytes_per_sec)
        return self.model_bytes > 0 and self.ps_link_bytes_per_sec < self.num_workers * self.worker_bytes_per_sec

    @property
    def transfer_secs(self) -> float:
        """Duration in seconds of a transfer that has the ps tasks' links for itself."""
        fastest = min(self.worker_bytes_per_sec, self.ps_link_bytes_per_sec)
        return self.latency_secs + self.model_bytes / fastest

    @property
    def push_work_secs(self) -> float:
        """Seconds that the ps tasks need to process one push."""
        return self.ps_secs / self.num_ps
