"""Shows a run to the user: a live table on a terminal, plain lines elsewhere, and reports at its end."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable
from types import TracebackType

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ps_trainer.launch.process import TaskProcess
from ps_trainer.launch.status import Board, ReportedEvaluation, TaskStatus
from ps_trainer.launch.supervisor import RunOutcome

REFRESH_SECS = 0.25
LINE_SECS = 5.0
NUM_LOG_LINES = 25
TABLE_WIDTH = 100
_UNKNOWN = "-"
# Header and minimum width; usual numbers fit, so that the columns do not move.
_NUMBER_COLUMNS = (
    ("global\nstep", 6),
    ("\nsteps/s", 7),
    ("examples\n/s", 8),
    ("\nloss", 6),
    ("stale-\nness", 6),
    ("\ntime", 6),
)


class View(abc.ABC):
    """The common part of both views: the times of refreshing, and the reports.

    A context manager that restores the terminal on leaving.

    Args:
        board: Status of the tasks.
        console: Console to print to.
        time_fn: Monotonic time in seconds.
    """

    def __init__(self, board: Board, console: Console, time_fn: Callable[[], float] = time.monotonic):
        self._board = board
        self._console = console
        self._time_fn = time_fn
        self._started_at = time_fn()
        self._refreshed_at = -float("inf")
        self._num_notes = 0

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def update(self) -> None:
        """Shows new reports, at most every `REFRESH_SECS`; more frequent calls cost little."""
        if self._time_fn() >= self._refreshed_at + REFRESH_SECS:
            self._refreshed_at = self._time_fn()
            self._board.refresh()
            self._show_notes()
            self._show()

    def on_event(self, task: TaskProcess, text: str) -> None:
        """Prints an event of a task at once."""
        self._print(f"{self._elapsed_secs():7.1f} s  {task.name:<11}  {text}", style="yellow")

    def on_failure(self, outcome: RunOutcome) -> None:
        """Prints the last lines of the culprit's log at once, because the other tasks may take seconds to end."""
        self._show_last()
        task = outcome.culprit
        if task is None:
            return
        lines = task.log_tail(NUM_LOG_LINES)
        self._print("")
        self._print(f"{task.name}: {outcome.problem}; last lines of {task.log_path}:", style="bold red")
        self._print("\n".join(f"  {line}" for line in lines) if lines else "  (the log is empty)")
        self._print("")

    def on_interrupt(self, signum: int) -> None:
        """Prints that the tasks are being ended."""
        self._print("interrupted: the tasks save and end (press Ctrl-C again to kill them)", style="yellow")

    def finish(self, outcome: RunOutcome, logdir: str | None) -> None:
        """Prints the result of the run after every task has ended.

        Args:
            outcome: How the run ended.
            logdir: Folder of the run; None if it is removed, as no step was made.
        """
        self._board.refresh()
        self._show_last()
        if outcome.culprit is not None:
            for task in self._board.tasks:
                if task.process is not outcome.culprit:
                    self._print(f"{task.process.name}: {task.state}, log in {task.process.log_path}")
        elif any(task.num_reports for task in self._board.workers):
            self._print("")
            for task in self._board.workers:
                self._print(_worker_summary(task))
        if self._board.last_evaluation is not None:
            self._print(_evaluation_text(self._board.last_evaluation))
        for task in self._board.tasks:
            for warning in task.warnings:
                self._print(f"{task.process.name}: {warning}", style="yellow")
        if restarted := [task.process for task in self._board.tasks if task.process.num_starts > 1]:
            self._print("restarts: " + ", ".join(f"{task.name} {task.num_starts - 1}" for task in restarted))
        ending = "failed" if outcome.culprit else "interrupted" if outcome.signum else "done"
        style = "bold green" if outcome.exit_code == 0 else "bold red"
        where = ", before the first step; its files are removed" if logdir is None else f"; files in {logdir}"
        self._print(f"{ending} after {duration(self._elapsed_secs())}{where}", style=style)

    def close(self) -> None:  # noqa: B027 - plain lines need no cleanup
        """Ends the display; may be called twice."""

    @abc.abstractmethod
    def _show(self) -> None:
        """Shows the current state."""

    def _show_notes(self) -> None:
        notes = [note for task in self._board.tasks for note in task.notes]
        for note in notes[self._num_notes :]:
            self._print(note)
        self._num_notes = len(notes)

    def _show_last(self) -> None:
        self._show_notes()
        self._show()
        self.close()

    def _elapsed_secs(self) -> float:
        return self._time_fn() - self._started_at

    def _print(self, text: str, style: str | None = None) -> None:
        # `Text`, because Rich reads brackets in a string as markup. `soft_wrap` keeps a long path in one line.
        self._console.print(Text(text, style=style or ""), soft_wrap=True)


class PlainView(View):
    """Lines for a log file: each change of a task's state, each evaluation, and progress every `LINE_SECS`."""

    def __init__(self, board: Board, console: Console, time_fn: Callable[[], float] = time.monotonic):
        super().__init__(board, console, time_fn)
        self._states: dict[TaskStatus, str] = {}
        # Time of the last shown report, and number of reports until then.
        self._reports: dict[TaskStatus, tuple[float, int]] = {}
        self._num_evaluations: dict[TaskStatus, int] = {}

    def on_event(self, task: TaskProcess, text: str) -> None:
        """Prints an event of a task at once, after the reports that the tasks wrote before it."""
        self._board.refresh()
        self._show()
        super().on_event(task, text)

    def _show(self) -> None:
        for task in self._board.tasks:
            has_ended = not task.process.is_running
            shown_at, num_shown = self._reports.get(task, (-LINE_SECS, 0))
            if task.num_reports > num_shown and (has_ended or self._time_fn() >= shown_at + LINE_SECS):
                self._reports[task] = (self._time_fn(), task.num_reports)
                self._line(task, self._progress(task))
            for evaluation in task.evaluations[self._num_evaluations.get(task, 0) :]:
                self._line(task, _evaluation_text(evaluation))
            self._num_evaluations[task] = len(task.evaluations)
            if task.state != self._states.get(task):
                self._states[task] = task.state
                self._line(task, task.state)

    def _line(self, task: TaskStatus, text: str) -> None:
        self._print(f"{self._elapsed_secs():7.1f} s  {task.process.name:<11}  {text}")

    def _progress(self, task: TaskStatus) -> str:
        of_max = f"/{self._board.max_steps:,}" if self._board.max_steps else ""
        parts = [f"step {_format_count(task.global_step)}{of_max}"]
        if task.steps_per_sec is not None:
            parts.append(f"{_format_rate(task.steps_per_sec)} steps/s")
        if task.examples_per_sec is not None:
            parts.append(f"{_format_rate(task.examples_per_sec)} examples/s")
        if task.loss is not None:
            parts.append(f"loss {_format_value(task.loss)}")
        if task.staleness is not None:
            parts.append(f"staleness {task.staleness:.2f}")
        if self._board.secs_left is not None and task.process.is_running:
            parts.append(f"{duration(self._board.secs_left)} left")
        return "  ".join(parts)


class LiveView(View):
    """A table that is redrawn in place: a row per task, and below it the progress of the whole run."""

    def __init__(self, board: Board, console: Console, time_fn: Callable[[], float] = time.monotonic):
        super().__init__(board, console, time_fn)
        # No refresh thread: only the supervising thread may read the state that is drawn.
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._is_closed = False

    def __enter__(self) -> View:
        self._live.start()
        return self

    def close(self) -> None:
        """Leaves the last table on the screen and shows the cursor again."""
        if not self._is_closed:
            self._is_closed = True
            self._live.stop()

    def _show(self) -> None:
        if not self._is_closed:
            self._live.update(self.render(), refresh=True)

    def render(self) -> Group:
        """Returns the table and the lines below it, as of the last refresh of the board."""
        width = min(self._console.width, TABLE_WIDTH)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, width=width)
        table.add_column("\ntask", no_wrap=True)
        table.add_column("\nstate", ratio=1)  # takes the rest of the width
        for header, min_width in _NUMBER_COLUMNS:
            table.add_column(header, justify="right", no_wrap=True, min_width=min_width)
        for task in self._board.tasks:
            table.add_row(
                task.process.name,
                Text(task.state, style=_style(task.process), no_wrap=True, overflow="ellipsis"),
                _format_count(task.global_step),
                _format_rate(task.steps_per_sec),
                _format_rate(task.examples_per_sec),
                _format_value(task.loss),
                _UNKNOWN if task.staleness is None else f"{task.staleness:.2f}",
                duration(task.process.elapsed_secs),
            )
        below = [Text(line) for line in (self._overall(), self._evaluation()) if line]
        return Group(table, *below)

    def _overall(self) -> str:
        board = self._board
        if board.global_step is None:
            return ""
        parts = [f"step {board.global_step:,}"]
        if board.max_steps:
            # Steps that other workers had begun before the last one may lead beyond max_steps.
            share = min(1.0, board.global_step / board.max_steps)
            parts = [f"[{'#' * round(20 * share):<20}] {board.global_step:,}/{board.max_steps:,} steps"]
        if board.global_steps_per_sec is not None:
            parts.append(f"{_format_rate(board.global_steps_per_sec)} steps/s")
        if board.examples_per_sec is not None:
            parts.append(f"{_format_rate(board.examples_per_sec)} examples/s")
        if board.secs_left is not None and any(task.process.is_running for task in board.workers):
            parts.append(f"{duration(board.secs_left)} left")
        return "  ".join(parts)

    def _evaluation(self) -> str:
        return _evaluation_text(self._board.last_evaluation) if self._board.last_evaluation else ""


def create_view(board: Board, console: Console, time_fn: Callable[[], float] = time.monotonic, *, plain: bool) -> View:
    """Creates a live table if the console is a terminal and `plain` is false, else plain lines."""
    # A dumb terminal cannot move its cursor, so a table would be printed again and again.
    if console.is_terminal and not console.is_dumb_terminal and not plain:
        return LiveView(board, console, time_fn)
    return PlainView(board, console, time_fn)


def duration(secs: float) -> str:
    """Returns a duration in readable form: `8.3 s`, `1:05`, `2:00:00`."""
    # 59.95 and more would be rounded to "60.0 s".
    if secs < 59.95:
        return f"{secs:.1f} s"
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _worker_summary(task: TaskStatus) -> str:
    totals = task.totals
    parts = [f"{task.process.name:<11}", f"{_format_count(totals.steps)} steps"]
    if totals.steps_per_sec is not None:
        parts.append(f"{_format_rate(totals.steps_per_sec)} steps/s")
    if totals.staleness is not None:
        parts.append(f"staleness {totals.staleness:.2f}")
    return "  ".join([*parts, task.state])


def _evaluation_text(evaluation: ReportedEvaluation) -> str:
    metrics = ", ".join(f"{name} {_format_value(value)}" for name, value in evaluation.metrics.items())
    return f"evaluation at step {evaluation.global_step:,}: {metrics or 'no metrics'}"


def _style(process: TaskProcess) -> str:
    if process.exit_code is None:
        return ""
    return "green" if process.exit_code == 0 else "yellow" if process.is_asked_to_end else "red"


def _format_count(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _format_rate(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def _format_value(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.4g}" if abs(value) < 0.1 else f"{value:.3f}"
