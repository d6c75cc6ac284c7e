"""Findings about the running tasks of a job: their identity, and whether they agree and reach each other.

The doctor asks the tasks' own servers, with a deadline for each question. It does not disturb a run: each question has
its own session, on a container that no run uses.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

from ps_trainer import shared_settings
from ps_trainer.cluster.checks import TaskAddress
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.findings import FAIL, OK, UNKNOWN, WARNING, ClusterFinding
from ps_trainer.errors import list_names
from ps_trainer.runtime import preflight, reachability, task_fingerprint
from ps_trainer.runtime.control import PsClient, PsState
from ps_trainer.runtime.run_record import Status, TaskFingerprint, WorkerEntry

_MAX_CALLS = 16  # at the same time, since a task that does not answer costs seconds
_SKEW_SECS = 1.0


class _Live(NamedTuple):
    """A running task that is the expected one: its address, and the answer of its server."""

    address: TaskAddress
    answer: reachability.ServerAnswer


def examine(
    cluster: ClusterConfig, addresses: Sequence[TaskAddress], settings: Mapping[str, Any]
) -> Iterator[ClusterFinding]:
    """Returns the findings about the tasks that answer.

    Args:
        cluster: Cluster as it was given to this command.
        addresses: Address of every task, from `checks.probe`.
        settings: Training flags as they were given to this command, as JSON values.
    """
    answering = [address for address in addresses if address.answers]
    with ThreadPoolExecutor(max_workers=_MAX_CALLS) as pool:
        findings, live = _identities(answering, list(pool.map(_ask_server, answering)))
        yield from findings
        indices = {task: ps for ps, task in enumerate(cluster.ps_tasks)}
        ps_addresses = {indices[t.address.task]: t.address for t in live if t.address.task in indices}
        states = dict(zip(ps_addresses, pool.map(_read, ps_addresses.values(), ps_addresses), strict=True))
        yield from _ps_findings(cluster, ps_addresses, states)
        ps_0 = states.get(0)
        if ps_0 is not None:
            yield from _job_findings(cluster, ps_0, settings)
        yield from _clock_findings(live)
        yield from _reach_findings(pool, cluster, addresses, [task.address for task in live], ps_0)


def _ask_server(address: TaskAddress) -> reachability.ServerAnswer | str:
    try:
        return reachability.ask(address.address)
    except tf.errors.OpError as error:
        return reachability.first_line(error)


def _read(address: TaskAddress, ps: int) -> PsState | None:
    client = PsClient(address.address, ps)
    try:
        return client.read()
    except tf.errors.OpError:
        return None
    finally:
        client.close()


def _identities(
    addresses: Sequence[TaskAddress], answers: Sequence[reachability.ServerAnswer | str]
) -> tuple[list[ClusterFinding], list[_Live]]:
    """Returns the findings about the task that answers at each address; and the tasks that are the expected ones."""
    findings, live = [], []
    for address, answer in zip(addresses, answers, strict=True):
        if isinstance(answer, str):
            findings.append(
                ClusterFinding(
                    FAIL,
                    "tasks",
                    f"{address.name}: something listens there, but no TensorFlow server answers: {answer}",
                    "if it is a task of this job it is frozen or cut off by a proxy; else choose another port",
                )
            )
        elif answer.device != address.device:
            findings.append(
                ClusterFinding(
                    FAIL,
                    "tasks",
                    f"{address.name}: the server there is {answer.device}, not {address.device}",
                    "give every task the same addresses in the same order, or stop the job that has this port",
                )
            )
        else:
            live.append(_Live(address, answer))
    if live:
        findings.append(ClusterFinding(OK, "tasks", f"running: {list_names(task.address.name for task in live)}"))
    return findings, live


def _ps_findings(
    cluster: ClusterConfig, addresses: Mapping[int, TaskAddress], states: Mapping[int, PsState | None]
) -> Iterator[ClusterFinding]:
    """Yields findings on whether the tasks with parameters belong to this cluster, and have the same TensorFlow."""
    own_fingerprint, agreeing = task_fingerprint.of(cluster), []
    for ps, state in states.items():
        address = addresses[ps]
        if state is None or state.hello is None:
            yield ClusterFinding(
                WARNING,
                "cluster",
                f"{address.name} is starting, or is not a task of ps_trainer that holds parameters",
                "run this again in a moment, or look at what was started there",
            )
            continue
        strange = preflight.stranger_finding(state.hello, cluster, ps, "this command")
        found = [strange] if strange is not None else []
        found += task_fingerprint.differences(own_fingerprint, state.hello.fingerprint, address.name)
        yield from found
        if not found:
            agreeing.append(address.name)
        if state.notice is not None:
            yield ClusterFinding(WARNING, "job", f"{address.name} ends the job: {state.notice.reason}")
    if agreeing:
        same = f"same addresses (hash {own_fingerprint.cluster}), TensorFlow {own_fingerprint.tensorflow}"
        yield ClusterFinding(OK, "cluster", f"{same}: {list_names(agreeing)}")


def _job_findings(cluster: ClusterConfig, state: PsState, settings: Mapping[str, Any]) -> Iterator[ClusterFinding]:
    """Returns the state of the run and its workers, as ps 0 reports it."""
    run = state.run
    if run is None:
        yield ClusterFinding(
            UNKNOWN,
            "job",
            f"no run has begun on {cluster.ps_names[0]}; the workers' settings are not known before that",
        )
        return
    names = ["-".join(map(str, task)) for task in cluster.worker_tasks]
    # The ps task may belong to a cluster with more workers than this command was given.
    workers = {index: entry for index, entry in state.workers_of(run.run_id).items() if index < len(names)}
    worker_states = [f"{name} {workers[i].status if i in workers else 'not joined'}" for i, name in enumerate(names)]
    yield ClusterFinding(OK, "job", f"run {run.run_id} is {run.status}: {list_names(worker_states)}")
    for index, entry in workers.items():
        if entry.status not in (Status.JOINED, Status.TRAINING, Status.DONE):
            yield ClusterFinding(
                WARNING,
                "job",
                f"worker {index} {entry.status}: {entry.reason or 'it gave no reason'}",
                "look at its log; start it again with the same command if the job is to continue with it",
            )
    differing = shared_settings.differences(run.agreement, settings, "this command")
    if differing:
        text = f"the chief would reject a worker with these flags: {'; '.join(differing)}"
        yield ClusterFinding(FAIL, "settings", text, "give every worker the chief's flags")
    yield from _worker_findings(cluster, names, workers)


def _worker_findings(
    cluster: ClusterConfig, names: Sequence[str], workers: Mapping[int, WorkerEntry]
) -> Iterator[ClusterFinding]:
    """Yields findings on whether the workers have the same addresses, TensorFlow and model."""
    own_fingerprint = task_fingerprint.of(cluster)
    model = workers[0].fingerprint.of_model() if 0 in workers else TaskFingerprint()
    agreeing = []
    for index, entry in workers.items():
        theirs, name = entry.fingerprint, names[index]
        found = [
            *task_fingerprint.differences(own_fingerprint, theirs, name),
            *task_fingerprint.differences(model, theirs, name, "on the chief"),
        ]
        yield from found
        # An entry without a fingerprint was written by a ps task in place of a lost worker, so it agrees with nothing.
        if theirs != TaskFingerprint() and not found:
            agreeing.append(name)
    if agreeing:
        text = f"and model (hash {model.graph}): " if model.graph is not None else "(no model yet): "
        yield ClusterFinding(OK, "workers", f"same addresses, TensorFlow {text}{list_names(agreeing)}")


def _clock_findings(live: Sequence[_Live]) -> Iterator[ClusterFinding]:
    """Yields findings on whether the clocks of the tasks agree with the clock of this machine."""
    off = [task for task in live if abs(task.answer.ahead_secs) > _SKEW_SECS + task.answer.uncertain_secs]
    for address, answer in off:
        side = "ahead of" if answer.ahead_secs > 0 else "behind"
        yield ClusterFinding(
            WARNING,
            "clocks",
            f"{address.name}: its clock is {abs(answer.ahead_secs):.1f} s {side} this machine's, so times in logs and"
            " metrics of several tasks do not fit together; training is not affected",
            "set the clocks by NTP",
        )
    if live and not off:
        most = max(abs(task.answer.ahead_secs) for task in live)
        yield ClusterFinding(
            OK, "clocks", f"within {most:.3f} s of this machine's" if most >= 0.001 else "within 0.001 s"
        )


def _reach_findings(
    pool: ThreadPoolExecutor,
    cluster: ClusterConfig,
    addresses: Sequence[TaskAddress],
    running: Sequence[TaskAddress],
    ps_0: PsState | None,
) -> Iterator[ClusterFinding]:
    """Yields findings on whether the running tasks reach each other; asks the tasks themselves."""
    address_of = {(address.job_name, address.task_index): address for address in running}
    workers = {index: address_of[task] for index, task in enumerate(cluster.worker_tasks) if task in address_of}
    partners = [
        pair
        for circle in (ps_0.run.partners if ps_0 is not None and ps_0.run is not None else ())
        for pair in itertools.permutations([workers[index] for index in circle if index in workers], 2)
    ]
    ps_tasks = [address_of[task] for task in cluster.ps_tasks if task in address_of]
    # Between ps tasks and workers in both directions, because each fetches tensors from the other.
    both = [*itertools.product(ps_tasks, workers.values()), *itertools.product(workers.values(), ps_tasks), *partners]
    asked = [(source, target) for source, target in dict.fromkeys(both) if source != target]
    faults = list(pool.map(lambda pair: reachability.fault_between(pair[0].address, pair[1].device), asked))
    for (source, target), fault in zip(asked, faults, strict=True):
        if fault:
            are_workers = not {source.task, target.task} & set(cluster.ps_tasks)
            yield preflight.unreached_finding(source.name, target.name, fault, are_workers=are_workers)
    if faults and not any(faults):
        text = f"in both directions, asked on the tasks themselves: {len(faults)} connections"
        yield ClusterFinding(OK, "reach", f"{text}, workers to workers among them" if partners else text)
    absent = [address.name for address in addresses if address not in running]
    if absent:
        yield ClusterFinding(
            UNKNOWN,
            "reach",
            f"between other tasks and {list_names(absent)}: only a running task knows what it reaches",
            "run this again when it waits for the others; each worker's start tests it, too",
        )
