"""The update rules that `benchmarks.chaos` disturbs, with their flags; each way of waiting has some."""

from __future__ import annotations

import dataclasses
from typing import Any

# Families of rules, by what their workers wait for: it decides what a lost task can hold up.
NO_BARRIER = "no barrier"
BARRIER = "barrier"
ROUNDS = "rounds"
COLLECTIVE = "collective"

# How `accounting.py` finds the updates in the workers' step logs.
BY_LINE = "line"  # each line is an update
BY_STEP = "step"  # each value of global_step is an update
UNSEEN = "unseen"  # some updates are in no line, because workers do not wait for each update


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChaosCase:
    """A rule with its options.

    Attributes:
        name: Name of the case, as `--updates` takes it.
        family: Kind of barrier that the rule's workers wait at.
        update: `--update`.
        options: Values of `--update_option`.
        books: `BY_LINE`, `BY_STEP` or `UNSEEN`.
        batches: Batches of one worker in a global step; divides the plan's `--max_steps`.
        model: `--model`; None = the plan's.
    """

    name: str
    family: str
    update: str
    options: tuple[str, ...] = ()
    books: str = BY_STEP
    batches: int = 1
    model: str | None = None

    def max_steps(self, planned: int) -> int:
        """Returns `--max_steps` for a plan of `planned` batches."""
        return max(1, planned // self.batches)

    @property
    def flags(self) -> list[str]:
        """The flags in which cases differ, without the model."""
        return [f"--update={self.update}", *(f"--update_option={option}" for option in self.options)]


def _case(name: str, family: str, *options: str, update: str | None = None, **others: Any) -> ChaosCase:
    return ChaosCase(name=name, family=family, update=update or name, options=options, **others)


# With 3 workers; a rule of the barrier family needs 2 of them unless its line says otherwise.
CASES = {
    case.name: case
    for case in (
        _case("async", NO_BARRIER, books=BY_LINE),
        _case("ssp", NO_BARRIER, "staleness=3", books=BY_LINE),
        _case("downpour", NO_BARRIER, "n_push=5", "n_fetch=5", batches=5),
        _case("easgd", NO_BARRIER, "period=5", batches=5),
        _case("sync", BARRIER),  # needs all 3
        _case("sync_min_workers", BARRIER, "min_workers=2", update="sync"),
        _case("backup", BARRIER, "backup_workers=1"),
        _case("k_sync", BARRIER, "k=2"),
        _case("k_batch_async", BARRIER, "k=2", books=UNSEEN),
        _case("softsync", BARRIER, "splits=1", books=UNSEEN),
        _case("local_sgd", ROUNDS, "period=5", batches=5),
        _case("model_averaging", ROUNDS, "period=5", batches=5),
        _case("all_reduce", COLLECTIVE),
        _case("hybrid", COLLECTIVE, model="benchmarks.digits_embedding_model:PixelTable"),
    )
}
