"""`Fault`: the faults that `--fault` requests, as data. Imports no TensorFlow.

    kind:role:index@step=N,key=value        chaos:key=value,…

`kill:worker:1@step=200` happens once, when the first worker has reached that `global_step`. `@after_secs=30` instead
counts from the start of the tasks. Kinds:

    kill       SIGKILL: the task dies without any report
    term       SIGTERM, like a machine that is withdrawn: the task saves its state and leaves
    freeze     SIGSTOP, and SIGCONT `secs` later
    raise      a worker's own step raises an error, after the step in which it has reached `step`
    cut        the link of the task's host carries nothing for `secs`; needs a link for each task
    slow_ps    a ps task alternately stops and runs for `ms` each, for `secs` or to the end: half of its speed,
               and answers up to `ms` late
    chaos      kills `kills` tasks of `roles`, `together` at a time, at steps spread over the run or every
               `every_secs`

Roles are ps, worker, chief (worker 0, which needs no index) and evaluator. In `roles` of `chaos`, worker means every
worker except the chief. The same seed and cluster give the same kills.

The launcher injects every kind except `raise` (`launch/injector.py`), which the worker itself raises
(`training/worker_faults.py`).
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence

from ps_trainer import options as options_lib
from ps_trainer.errors import OptionError, UnknownNameError, did_you_mean
from ps_trainer.options import option

# The kills of chaos lie between these shares of max_steps.
CHAOS_FROM, CHAOS_TO = 0.05, 0.9

_ALL_JOBS = ("ps", "worker", "chief", "evaluator")
_ROLES = {
    "kill": _ALL_JOBS,
    "term": _ALL_JOBS,
    "freeze": _ALL_JOBS,
    "raise": ("worker", "chief"),
    "cut": ("ps", "worker", "chief"),
    "slow_ps": ("ps",),
}
_CHAOS_ROLES = ("ps", "worker", "chief")
_ALL_CHAOS_ROLES = "+".join(_CHAOS_ROLES)
_FLAG = "--fault"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterShape:
    """The cluster against which faults are checked.

    Attributes:
        num_ps: Number of ps tasks.
        num_workers: Number of worker tasks, including the chief.
        num_evaluators: Number of evaluators.
        max_steps: Value of `global_step` at which training ends, or None.
        has_links: True if each task has its own network link.
    """

    num_ps: int
    num_workers: int
    num_evaluators: int = 0
    max_steps: int | None = None
    has_links: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One event, at a step or at a time.

    Attributes:
        text: Fault as the user gave it, or as chaos drew it.
        kind: Kind: "kill", "term", "freeze", "raise", "cut" or "slow_ps".
        task: Name of the task, for example "worker-1".
        step: Value of `global_step` from which on the fault is due, or None.
        after_secs: Seconds after the start of the tasks, or None.
        secs: Duration in seconds; None = no duration, or until the end of the run.
        ms: For `slow_ps`, the milliseconds that the task stops and then runs.
    """

    text: str
    kind: str
    task: str
    step: int | None = None
    after_secs: float | None = None
    secs: float | None = None
    ms: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FaultTime:
    """Keys of every fault except chaos."""

    step: int | None = option(None, "global_step", least=1)
    after_secs: float | None = option(None, "seconds after the start of the tasks", least=0)

    def __post_init__(self) -> None:
        if (self.step is None) == (self.after_secs is None):
            raise OptionError("give exactly one of @step=N and @after_secs=N")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TimedFault(_FaultTime):
    """Keys of faults with a duration."""

    secs: float = option(10.0, "duration in seconds", above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SlowFault(_FaultTime):
    """Keys of `slow_ps`."""

    secs: float | None = option(None, "duration in seconds; none = until the end", above=0)
    ms: float = option(100.0, "milliseconds that the task stops and then runs", least=10)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Chaos:
    """Keys of `chaos`."""

    kills: int = option(10, "number of kills", least=1)
    roles: str = option(_ALL_CHAOS_ROLES, "roles of the tasks to kill, joined by +")
    seed: int = option(0, "seed of the random choice")
    together: int = option(1, "tasks killed at the same time, like the tasks of one machine", least=1)
    every_secs: float | None = option(None, "seconds between kills; none = at steps spread over the run", above=0)

    def __post_init__(self) -> None:
        if self.kills % self.together:
            raise OptionError(f"kills={self.kills} must be a multiple of together={self.together}")


_OPTIONS: dict[str, type[_FaultTime]] = {"freeze": _TimedFault, "cut": _TimedFault, "slow_ps": _SlowFault}


def parse_all(texts: Sequence[str], cluster: ClusterShape) -> list[Fault]:
    """Returns the faults that a repeatable flag requests, with the drawn kills of chaos.

    Raises:
        UnknownNameError: A kind or role is unknown.
        OptionError: The cluster lacks a task, a key or value is wrong, or a fault could never happen.
    """
    return [fault for text in texts for fault in _parse(text, cluster)]


def num_chaos_kills(faults: Sequence[Fault]) -> int:
    """Returns the number of kills that chaos has drawn."""
    return sum("chaos:" in fault.text for fault in faults)


def milestones(faults: Sequence[Fault]) -> list[int]:
    """Returns the different steps at which a fault is due, ascending."""
    return sorted({fault.step for fault in faults if fault.step is not None})


def _parse(text: str, cluster: ClusterShape) -> list[Fault]:
    where = f"{_FLAG} {text}"
    kind = text.partition(":")[0]
    if kind == "chaos":
        return _draw_chaos(text, where, cluster)
    if kind not in _ROLES:
        known = [*_ROLES, "chaos"]
        raise UnknownNameError(f"{where}: unknown kind {kind!r}; {did_you_mean(kind, known)}known: {', '.join(known)}")
    target, at, tail = text.partition(":")[2].partition("@")
    task = _parse_task(kind, target, where, cluster)
    keys: _FaultTime = options_lib.parse(_OPTIONS.get(kind, _FaultTime), _strings(tail, where) if at else [], where)
    fault = Fault(text=text, kind=kind, task=task, **{f.name: getattr(keys, f.name) for f in dataclasses.fields(keys)})
    if kind == "raise" and fault.step is None:
        raise OptionError(f"{where}: `raise` happens in a step; give @step=N")
    if kind == "cut" and not cluster.has_links:
        raise OptionError(f"{where}: needs a link for each task; add --hosts=netns")
    if fault.step is not None and cluster.max_steps is not None and fault.step >= cluster.max_steps:
        raise OptionError(
            f"{where}: training ends at --max_steps={cluster.max_steps}, so the fault would never happen;"
            " give a smaller step"
        )
    return [fault]


def _parse_task(kind: str, target: str, where: str, cluster: ClusterShape) -> str:
    role, colon, index_text = target.partition(":")
    if kind == "slow_ps" and not colon:
        role, index_text = "ps", role  # slow_ps:0
    if role not in _ROLES[kind]:
        nearest = did_you_mean(role, _ROLES[kind])
        hint = f"write {kind}:ROLE:INDEX@step=N; {kind} is for {', '.join(_ROLES[kind])}"
        error = UnknownNameError if role not in _ALL_JOBS else OptionError
        raise error(f"{where}: unknown role {role!r}; {nearest}{hint}")
    if role == "chief" and index_text in ("", "0"):
        return "worker-0"
    if not (index_text.isascii() and index_text.isdigit()):
        raise OptionError(f"{where}: {index_text!r} is not an index; write {kind}:{role}:INDEX@step=N")
    count = {"ps": cluster.num_ps, "worker": cluster.num_workers, "chief": 1, "evaluator": cluster.num_evaluators}[role]
    if int(index_text) >= count:
        has = f"the {role} tasks of this cluster are 0 to {count - 1}" if count else f"this cluster has no {role}"
        if role == "ps" and not count and cluster.num_workers > 1:
            has += "; its workers hold the parameters, so write worker in place of ps"
        raise OptionError(f"{where}: {role} {int(index_text)} does not exist; {has}")
    return f"{'worker' if role == 'chief' else role}-{int(index_text)}"


def _strings(tail: str, where: str) -> list[str]:
    strings = tail.split(",")
    if not all(strings):
        raise OptionError(f"{where}: an empty key=value; write @step=N,key=value")
    return strings


def _draw_chaos(text: str, where: str, cluster: ClusterShape) -> list[Fault]:
    tail = text.partition(":")[2]
    keys = options_lib.parse(_Chaos, _strings(tail, where) if tail else [], where)
    tasks = _chaos_tasks(keys.roles, where, cluster)
    # `random` hashes a text in the same way in each process, whatever PYTHONHASHSEED says.
    source = random.Random(f"chaos {keys.seed}")
    num_moments = keys.kills // keys.together
    faults: list[Fault] = []
    for moment in range(num_moments):
        together = _draw_tasks(source, tasks, keys.together, where)
        # Drawn even if `every_secs` does not use it: so the tasks are the same for both kinds of moments.
        within = source.random()
        after_secs, step = None, None
        if keys.every_secs is not None:
            after_secs = keys.every_secs * (moment + 1)
        elif cluster.max_steps is not None:
            share = CHAOS_FROM + (CHAOS_TO - CHAOS_FROM) * (moment + within) / num_moments
            step = max(1, int(share * cluster.max_steps))
        else:
            raise OptionError(
                f"{where}: without --max_steps the kills cannot be spread over the run; give every_secs=N"
            )
        for task in together:
            name = f"{text} ({len(faults) + 1} of {keys.kills})"
            faults.append(Fault(text=name, kind="kill", task=task, step=step, after_secs=after_secs))
    return faults


def _draw_tasks(source: random.Random, tasks: Mapping[str, list[str]], count: int, where: str) -> list[str]:
    """Draws `count` different tasks: first a role with tasks left, then one of its tasks."""
    # By role first. Otherwise many workers would make the loss of a ps task or of the chief rare.
    left = {role: list(names) for role, names in tasks.items()}
    drawn: list[str] = []
    while len(drawn) < count:
        roles = [role for role, names in left.items() if names]
        if not roles:
            raise OptionError(f"{where}: together={count} exceeds the {len(drawn)} tasks of these roles; lower it")
        names = left[source.choice(roles)]
        drawn.append(names.pop(names.index(source.choice(names))))
    return drawn


def _chaos_tasks(roles: str, where: str, cluster: ClusterShape) -> Mapping[str, list[str]]:
    asked = list(dict.fromkeys(roles.split("+")))
    if roles == _ALL_CHAOS_ROLES and not cluster.num_ps and cluster.num_workers > 1:
        asked.remove("ps")  # its workers hold the parameters, and each of them may be killed
    known: dict[str, Callable[[], list[str]]] = {
        "ps": lambda: [f"ps-{index}" for index in range(cluster.num_ps)],
        "worker": lambda: [f"worker-{index}" for index in range(1, cluster.num_workers)],
        "chief": lambda: ["worker-0"],
    }
    for role in asked:
        if role not in known:
            nearest = did_you_mean(role, known)
            raise UnknownNameError(f"{where}: unknown role {role!r}; {nearest}join some of {', '.join(known)} by +")
        if not known[role]():
            of_ps = "this cluster has no ps task" if cluster.num_workers > 1 else "one process has no ps task"
            reason = of_ps if role == "ps" else "the chief is the only worker"
            raise OptionError(f"{where}: {reason}; remove {role} from roles")
    return {role: known[role]() for role in asked}
