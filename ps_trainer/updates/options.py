"""Options of every update rule: names, types, defaults, ranges, and the sizes of cluster that they fit.

A rule in `updates/` and its schedule in `simulation/rules/` use the same class of this file as `Options`. So a cluster,
`simulate` and `Replay` reject the same values with the same message. The simulation runs without TensorFlow, so this
file imports only the core.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ps_trainer.errors import OptionError
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleOptions:
    """Options of an update rule; `check_cluster` relates them to the size of a cluster."""

    def check_cluster(self, num_workers: int) -> None:
        """Checks the options against the size of a cluster.

        Raises:
            OptionError: The options do not fit a cluster of `num_workers` workers.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncOptions(RuleOptions):
    """Options of `sync`."""

    replicas_to_aggregate: int = option(0, "gradients per update; 0 = all workers; fewer = backup workers", least=0)
    min_workers: int = option(
        0, "smallest number of workers that train; 0 = as many as an update needs gradients", least=0
    )

    def check_cluster(self, num_workers: int) -> None:
        """Checks the options against the size of a cluster.

        Raises:
            OptionError: An option exceeds the number of workers.
        """
        for name in ("min_workers", "replicas_to_aggregate"):
            if getattr(self, name) > num_workers:
                raise OptionError(
                    f"{name}={getattr(self, name)} exceeds num_workers={num_workers};"
                    f" lower --update_option {name} or start more workers"
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SyncReplicasOptions(RuleOptions):
    """Options of `sync_replicas`."""

    replicas_to_aggregate: int = option(0, "gradients per update; 0 = all workers; fewer = backup workers", least=0)

    def check_cluster(self, num_workers: int) -> None:
        """Checks the options against the size of a cluster.

        Raises:
            OptionError: `replicas_to_aggregate` exceeds the number of workers.
        """
        SyncOptions(replicas_to_aggregate=self.replicas_to_aggregate).check_cluster(num_workers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccumulateOptions(RuleOptions):
    """Options of `accumulate`."""

    steps: int = option(4, "gradients that a worker sums before it pushes; 1 = push every gradient", least=1)
    rule: str = option("async", "update rule for the sums", choices=("async", "sync"))
    average: bool = option(False, "push the average of a worker's gradients in place of their sum")
    replicas_to_aggregate: int = option(0, "with rule=sync: sums per update; 0 = one of each worker", least=0)

    def __post_init__(self) -> None:
        if self.replicas_to_aggregate and self.rule != "sync":
            raise OptionError(
                f"replicas_to_aggregate={self.replicas_to_aggregate} is only for rule=sync, not for rule={self.rule};"
                " leave it out or set rule=sync"
            )

    @property
    def of_sync(self) -> SyncOptions:
        """The options of the wrapped `sync`."""
        return SyncOptions(replicas_to_aggregate=self.replicas_to_aggregate)

    def check_cluster(self, num_workers: int) -> None:
        """Checks the wrapped rule's options against the size of a cluster.

        Raises:
            OptionError: The wrapped rule does not fit the cluster.
        """
        self.of_sync.check_cluster(num_workers)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllReduceOptions(RuleOptions):
    """Options of `all_reduce` and `hybrid`."""

    fusion_bytes: int = option(64 * 2**20, "largest vector in which gradients are reduced together", least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackupOptions(RuleOptions):
    """Options of `backup`."""

    backup_workers: int = option(1, "b: workers that an update does not wait for", least=0)

    def check_cluster(self, num_workers: int) -> None:
        """Checks the options against the size of a cluster.

        Raises:
            OptionError: All workers would be backup workers.
        """
        if self.backup_workers >= num_workers:
            raise OptionError(
                f"backup_workers={self.backup_workers} leaves none of num_workers={num_workers} to wait"
                f" for; give at most {num_workers - 1}, start more workers, or use --update=async"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoftSyncOptions(RuleOptions):
    """Options of `softsync`."""

    splits: int = option(1, "the paper's n: number of updates into which one gradient per worker is split", least=1)

    def check_cluster(self, num_workers: int) -> None:
        """Checks the options against the size of a cluster.

        Raises:
            OptionError: An update would have less than one gradient.
        """
        if self.splits > num_workers:
            raise OptionError(
                f"splits={self.splits} exceeds num_workers={num_workers}, but an update needs at least one gradient;"
                f" give splits={num_workers} or fewer, or use --update=async"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class KBatchOptions(RuleOptions):
    """Options of `k_batch_sync` and `k_batch_async`."""

    k: int = option(1, "gradients per update at the start", least=1)
    grow_every: int = option(0, "number of updates after which k grows each time; 0 = k is constant", least=0)
    grow_by: int = option(1, "amount by which k grows each time", least=1)
    max_k: int = option(0, "largest k; 0 = the number of workers", least=0)

    def __post_init__(self) -> None:
        if self.max_k and (not self.grow_every or self.max_k < self.k):
            raise OptionError(
                f"max_k={self.max_k}, k={self.k}, grow_every={self.grow_every}: max_k is the bound of a growing k;"
                " give grow_every >= 1 and max_k >= k, or leave max_k out"
            )

    def largest_k(self, num_workers: int) -> int:
        """Returns the largest k in a cluster of `num_workers` workers."""
        # A k above the number of workers stays, because here k counts batches, not workers.
        return max(self.max_k or num_workers, self.k) if self.grow_every else self.k


class _KWorkersOptions(KBatchOptions):
    """Options of `k_sync` and `k_async`: an update takes one gradient per worker, so k is at most their number."""

    _name: ClassVar[str]
    _batch_form: ClassVar[str]

    def check_cluster(self, num_workers: int) -> None:
        """Checks the options against the size of a cluster.

        Raises:
            OptionError: `k` or `max_k` exceeds the number of workers.
        """
        for name in ("k", "max_k"):
            if getattr(self, name) > num_workers:
                raise OptionError(
                    f"--update={self._name}: {name}={getattr(self, name)} exceeds num_workers={num_workers}, but each"
                    " update takes one gradient per worker; lower it, start more workers, or use"
                    f" --update={self._batch_form}, which counts batches of any workers"
                )


class KSyncOptions(_KWorkersOptions):
    """Options of `k_sync`."""

    _name, _batch_form = "k_sync", "k_batch_sync"


class KAsyncOptions(_KWorkersOptions):
    """Options of `k_async`."""

    _name, _batch_form = "k_async", "k_batch_async"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DropStaleOptions(RuleOptions):
    """Options of `drop_stale`."""

    staleness: int = option(1, "largest staleness of a gradient that is applied; 0 = only fresh gradients", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SspOptions(RuleOptions):
    """Options of `ssp`."""

    staleness: int = option(3, "s: steps that a worker may be ahead of the slowest when it begins a step", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DcAsgdOptions(RuleOptions):
    """Options of `dc_asgd`."""

    lambda_: float | None = option(
        None, "strength of the correction; 0 = no correction; none = 0.04, or 2 with adaptive", least=0
    )
    adaptive: bool = option(False, "divide lambda by the root of a moving average of squared gradients")

    @property
    def strength(self) -> float:
        """The λ, or λ₀ with `adaptive`, that the rule uses."""
        if self.lambda_ is not None:
            return self.lambda_
        return 2.0 if self.adaptive else 0.04


@dataclasses.dataclass(frozen=True, kw_only=True)
class DownpourOptions(RuleOptions):
    """Options of `downpour`."""

    n_push: int = option(1, "steps whose gradients are summed for one push", least=1)
    n_fetch: int = option(1, "steps between two fetches of the parameters", least=1)
    warm_start_steps: int = option(0, "global steps that the chief makes alone before the other workers begin", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EasgdOptions(RuleOptions):
    """Options of `easgd`."""

    period: int = option(10, "steps of a worker between two exchanges with the centre (τ)", least=1)
    alpha: float | None = option(
        None, "share of the difference by which replica and centre move; or give beta", least=0, most=1
    )
    beta: float | None = option(None, "alpha times the number of workers; 0.9 if neither is given", least=0)
    momentum: float = option(0.0, "Nesterov momentum of the local steps; more than 0 is EAMSGD (δ)", least=0, below=1)

    _USUAL_BETA: ClassVar[float] = 0.9

    def __post_init__(self) -> None:
        if self.alpha is not None and self.beta is not None:
            raise OptionError(
                f"alpha={self.alpha} and beta={self.beta}: give one of them; alpha is beta / number of workers"
            )

    def alpha_of(self, num_workers: int) -> float:
        """Returns the share per exchange in a cluster of `num_workers` workers."""
        if self.alpha is not None:
            return self.alpha
        return (self._USUAL_BETA if self.beta is None else self.beta) / num_workers

    def check_cluster(self, num_workers: int) -> None:
        """Checks the options against the size of a cluster.

        Raises:
            OptionError: A replica would overshoot the centre.
        """
        if self.alpha_of(num_workers) > 1:
            raise OptionError(
                f"beta={self.beta} exceeds num_workers={num_workers}, so a replica would overshoot the"
                " centre; give a beta of at most the number of workers; 0.9 is usual"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSgdOptions(RuleOptions):
    """Options of `local_sgd`."""

    period: int = option(8, "local steps between two averages (H)", least=1)
    switch_step: int = option(0, "global step up to which workers average after each step (post-local SGD)", least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelAveragingOptions(RuleOptions):
    """Options of `model_averaging`."""

    period: int = option(100, "local steps between two averages (interval_steps)", least=1)
