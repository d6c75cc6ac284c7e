"""The chief's part of a start: finds out whether its run continues, and writes the run record to ps 0."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.runtime.control import PsControl
from ps_trainer.runtime.run_record import RunRecord, RunStatus, Status, WorkerEntry


class FoundRun(NamedTuple):
    """Result of a chief's look at the ps tasks.

    Attributes:
        run: Record of the chief's run, as written to ps 0.
        is_alive: Whether this run continues: it has the same logdir and settings, no chief has ended it, and the ps
            tasks still hold its state. Other workers may be training in it.
        was_lost: Whether there was such a run, and a ps task has lost its part of the state.
    """

    run: RunRecord
    is_alive: bool
    was_lost: bool


def begin_run(
    controls: Sequence[PsControl],
    cluster: ClusterConfig,
    config: TrainConfig,
    *,
    may_attach: bool = True,
    num_holders: int | None = None,
) -> FoundRun:
    """Writes the chief's run record to ps 0, with status `starting` unless a run continues.

    Args:
        controls: Client of each ps task.
        cluster: Cluster, with the chief as this task.
        config: Settings of the run.
        may_attach: Whether the chief may continue with the state on the ps tasks. If not, that state counts as lost.
        num_holders: Number of ps tasks, from the first on, that hold the run's state; None = all.
    """
    old = controls[0].read(is_patient=True).run
    settings = agreement(cluster, config)
    run = RunRecord(
        run_id=uuid.uuid4().hex[:12],
        key=f"{config.logdir} {settings}",
        status=RunStatus.STARTING,
        agreement=settings,
        incarnations=incarnations(controls[:num_holders], is_patient=True),
        spans_hosts=cluster.spans_hosts,
    )
    # A run without a start was never ready, so it has no state to lose.
    if old is None or old.key != run.key or old.status is RunStatus.ENDED or old.start is None:
        found = FoundRun(run, is_alive=False, was_lost=False)
    elif may_attach and old.incarnations == run.incarnations and old.status is RunStatus.READY:
        # An evaluation that the previous chief called is over: this chief starts to count its parts at 0.
        found = FoundRun(old.replace(evaluation=None), is_alive=True, was_lost=False)
    else:
        # The start is kept: if this chief dies too before the run is ready, its successor must know of the loss.
        found = FoundRun(run.replace(start=old.start), is_alive=False, was_lost=True)
    controls[0].write_run(found.run)
    return found


def agreement(cluster: ClusterConfig, config: TrainConfig) -> dict[str, Any]:
    """Returns the settings that all workers of a job must share, by flag."""
    return config.agreement() | {"num_workers": cluster.num_workers}


def incarnations(controls: Sequence[PsControl], *, is_patient: bool = False) -> tuple[str, ...]:
    """Returns the incarnation of each ps task, by which a task that has lost its state is noticed."""
    return tuple(ps.read(is_patient=is_patient).incarnation for ps in controls)


def is_state_there(controls: Sequence[PsControl], run: RunRecord) -> bool:
    """Returns whether no ps task that holds the run's state was restarted since the run was set up."""
    return incarnations(controls[: len(run.incarnations)]) == run.incarnations


def last_reports_of_done(
    controls: Sequence[PsControl], run_id: str, *, is_colocated: bool = False
) -> dict[int, WorkerEntry]:
    """Returns the last reports of the workers that are done in a run, by index, as far as a ps task still has them.

    Args:
        controls: Client of each ps task.
        run_id: Name of the run; empty if a new process of the chief knows none.
        is_colocated: Whether the workers hold the parameters. Then a restarted chief has lost the run record, and takes
            the run from the other workers, whose processes serve this job only.
    """
    entries: dict[int, WorkerEntry] = {}
    # A ps task that was restarted has forgotten the reports, so all of them are asked.
    for ps in controls:
        state = ps.read(is_patient=True)
        own_run = state.roster.run_id if state.roster is not None else ""
        entries |= state.workers_of(own_run if is_colocated and not run_id else run_id)
    return {index: entry for index, entry in entries.items() if entry.status is Status.DONE}
