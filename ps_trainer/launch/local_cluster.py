"""`LocalClusterSpec`: describes a whole cluster on one machine. Imports no slow package, so that help is quick."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from ps_trainer import options
from ps_trainer.cluster import one_process
from ps_trainer.config import COLOCATED, TrainConfig
from ps_trainer.disturbances import faults as faults_lib
from ps_trainer.errors import OptionError
from ps_trainer.launch.forkserver import ForkServer
from ps_trainer.launch.supervisor import ShutdownDeadlines
from ps_trainer.launch.task_factory import TASK_COMMAND
from ps_trainer.options import option

_MAX_TASKS = 50_000  # each task listens on a separate port, and one machine has about this many


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalClusterSpec:
    """A cluster of child processes on this machine: its training run and its numbers of tasks.

    Attributes:
        config: Settings of the training run, already checked.
        train_args: Flags passed to every task unchanged, with the same settings as `config`.
        num_ps: Number of ps tasks; 0 = the workers hold the parameters, or one process that trains alone.
        num_workers: Number of worker tasks.
        num_evaluators: Number of evaluators, 0 or 1.
        faults: Faults that the launcher injects, as `ps_trainer/disturbances/faults.py` reads them.
        max_restarts: Number of times that each task is restarted; None = the number of kills that `chaos` asks for.
        preload: True imports TensorFlow once and forks the tasks (`forkserver.py`), where the system supports it.
        plain: True prints plain lines even on a terminal.
        deadlines: Deadlines; None = the defaults, with `config.stall_timeout_secs` for the evaluator.
        task_command: Program and first arguments of a task; its flags follow.
    """

    config: TrainConfig
    train_args: Sequence[str] = ()
    num_ps: int = option(
        1,
        "ps tasks; 0: the workers hold the parameters (--placement=colocated); with --num_workers=1 one process trains"
        " alone, without server and port",
        least=0,
        most=_MAX_TASKS,
    )
    num_workers: int = option(2, "worker tasks, including the chief", least=1, most=_MAX_TASKS)
    num_evaluators: int = option(0, "1 = evaluate every checkpoint in a separate task", choices=(0, 1))
    faults: Sequence[str] = ()
    max_restarts: int | None = option(
        None, "number of restarts of each task; none = 0, or the number of kills of --fault=chaos", least=0
    )
    preload: bool = False
    plain: bool = False
    deadlines: ShutdownDeadlines | None = None
    task_command: Sequence[str] = TASK_COMMAND

    def check(self) -> None:
        """Checks the counts of tasks, and the delays, which name workers.

        Raises:
            UsageError: A count is out of range, or a delay is not valid for these workers.
        """
        options.check(self)
        if self.is_alone:
            self._check_alone()
        elif self.is_colocated and self.num_ps:
            raise OptionError(
                f"--placement=colocated --num_ps={self.num_ps}: the workers hold the parameters, so there are no ps"
                " tasks; give --num_ps=0, or another --placement"
            )
        elif not self.is_colocated and not self.num_ps:
            raise OptionError(
                f"--num_ps=0 --num_workers={self.num_workers} --placement={self.config.placement}: without ps tasks the"
                " workers hold the parameters; give --placement=colocated, --num_workers=1 for one process, or"
                " --num_ps=1"
            )
        if self.config.straggler:
            # Imported here because it takes NumPy along, which a launcher without delays does not need.
            from ps_trainer.disturbances import delays

            delays.parse_all(self.config.straggler, self.num_workers)

    def _check_alone(self) -> None:
        if self.num_evaluators:
            raise OptionError(
                "--num_ps=0 --num_evaluators=1: an evaluator finds its run through a ps task; leave the evaluator out"
                " and use --target_metric or `ps_trainer evaluate`, or give --num_ps=1"
            )
        one_process.check(self.config)

    @property
    def is_colocated(self) -> bool:
        """Whether the workers hold the parameters."""
        return self.config.placement == COLOCATED

    @property
    def is_alone(self) -> bool:
        """Whether the cluster is one process, without server."""
        return not self.num_ps and self.num_workers == 1 and not self.is_colocated

    @property
    def is_forked(self) -> bool:
        """Whether the tasks are forked from a process that has imported TensorFlow."""
        return self.preload and ForkServer.is_available()

    def planned_faults(self, *, has_links: bool) -> list[faults_lib.Fault]:
        """Returns the faults to inject, by the time or step at which they are due.

        Args:
            has_links: Whether each task has its own network link that can be cut.

        Raises:
            UsageError: A fault is malformed, or names a task that does not exist.
        """
        shape = faults_lib.ClusterShape(
            num_ps=self.num_ps,
            num_workers=self.num_workers,
            num_evaluators=self.num_evaluators,
            max_steps=self.config.max_steps,
            has_links=has_links,
        )
        return faults_lib.parse_all(self.faults, shape)

    @property
    def task_ids(self) -> list[tuple[str, int]]:
        """Job name and task index of every task, ps tasks first."""
        counts = {"ps": self.num_ps, "worker": self.num_workers, "evaluator": self.num_evaluators}
        return [(job_name, index) for job_name, count in counts.items() for index in range(count)]

    @property
    def summary(self) -> str:
        """The numbers of tasks in words."""
        if self.is_alone:
            return "one process"
        evaluators = f", {self.num_evaluators} evaluator" if self.num_evaluators else ""
        if self.is_colocated:
            return f"{self.num_workers} workers, which hold the parameters{evaluators}"
        return f"{self.num_ps} ps, {self.num_workers} workers{evaluators}"


def resolved_placement(
    config: TrainConfig, num_ps: int, num_workers: int, given: Collection[str]
) -> tuple[TrainConfig, int]:
    """Returns the settings and number of ps tasks, where one of `--placement=colocated` and `--num_ps=0` implies both.

    Args:
        config: Settings of the training run.
        num_ps: Number of ps tasks.
        num_workers: Number of workers.
        given: Names of the settings that the user gave.
    """
    if config.placement == COLOCATED and "num_ps" not in given:
        return config, 0
    if not num_ps and num_workers > 1 and "placement" not in given:
        return dataclasses.replace(config, placement=COLOCATED), 0
    return config, num_ps
