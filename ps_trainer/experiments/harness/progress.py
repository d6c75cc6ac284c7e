"""Display of progress while experiments run: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from ps_trainer.experiments.harness.runs import Run
from ps_trainer.launch.view import duration


class TimeLeft:
    """Estimates the time left from the actual and the expected durations of the finished runs.

    Some runs are much faster or slower than expected. So that the first does not decide about all others, the pace
    counts a tenth of the whole time as if it had taken as long as expected.
    """

    def __init__(self, expected_secs: float, time_fn: Callable[[], float] = time.monotonic):
        self._time_fn = time_fn
        self._left = expected_secs  # expected duration of the runs that have not ended
        self._done_expected = self._done_taken = 0.1 * expected_secs
        self._current: tuple[float, float] | None = None  # expected duration, start time

    def begin(self, expected_secs: float) -> None:
        """Notes that a run begins."""
        self._current = (expected_secs, self._time_fn())

    def end(self) -> None:
        """Notes that the current run has ended, with success or not."""
        if self._current is None:
            return
        expected, began_at = self._current
        self._left -= expected
        self._done_expected += expected
        self._done_taken += self._time_fn() - began_at
        self._current = None

    @property
    def secs(self) -> float:
        """Seconds left."""
        pace = self._done_taken / self._done_expected if self._done_expected else 1.0
        gone = 0.0
        if self._current is not None:
            gone = min(self._time_fn() - self._current[1], self._current[0] * pace)
        return max(0.0, self._left * pace - gone)


class Progress(abc.ABC):
    """Shows what happens, on a console. Use it as a context manager."""

    def __init__(self, console: Console, time_fn: Callable[[], float] = time.monotonic):
        self._console = console
        self._time_fn = time_fn
        self._time_left = TimeLeft(0.0, time_fn)
        self._num_runs = self._num_done = 0
        self._began_at = time_fn()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def plan(self, runs: Sequence[Run[Any]]) -> None:
        """Announces the planned runs of all experiments; called once."""
        self._num_runs = len(runs)
        self._time_left = TimeLeft(sum(run.expected_secs for run in runs), self._time_fn)
        self._on_plan()

    def begin(self, experiment: str, run: Run[Any]) -> None:
        """Shows that a run begins."""
        self._began_at = self._time_fn()
        self._time_left.begin(run.expected_secs)
        self._on_run_start(f"{experiment} {run.key}")

    def end(self, experiment: str, run: Run[Any], remark: str = "") -> None:
        """Shows that a run has ended; `remark` names anything unusual about it."""
        self._time_left.end()
        self._num_done += 1
        self._on_run_end(f"{experiment} {run.key}", self._time_fn() - self._began_at, remark)

    def note(self, text: str, style: str = "") -> None:
        """Prints a line, or several."""
        self._console.print(Text(text, style=style), soft_wrap=True)

    def close(self) -> None:  # noqa: B027 - plain lines need no ending
        """Ends the display."""

    @property
    def left(self) -> str:
        return f"{duration(self._time_left.secs)} left"

    @abc.abstractmethod
    def _on_plan(self) -> None: ...

    @abc.abstractmethod
    def _on_run_start(self, name: str) -> None: ...

    @abc.abstractmethod
    def _on_run_end(self, name: str, secs: float, remark: str) -> None: ...


class PlainProgress(Progress):
    """A line per run, for a log file."""

    def _on_plan(self) -> None:
        self.note(f"{self._num_runs} runs to do, about {duration(self._time_left.secs)}")

    def _on_run_start(self, name: str) -> None:
        pass

    def _on_run_end(self, name: str, secs: float, remark: str) -> None:
        tail = f"  {remark}" if remark else ""
        left = f"  {self.left}" if self._num_done < self._num_runs else ""
        self.note(f"[{self._num_done}/{self._num_runs}] {name}  {duration(secs)}{tail}{left}")


class LiveProgress(Progress):
    """A bar that is drawn again in place, with the run that is under way and the time left."""

    def __init__(self, console: Console, time_fn: Callable[[], float] = time.monotonic):
        super().__init__(console, time_fn)
        columns = (BarColumn(20), TextColumn("{task.completed:.0f}/{task.total:.0f} runs"), _LeftColumn(self))
        self._bar = Bar(*columns, TextColumn("{task.description}"), console=console, refresh_per_second=2)
        self._task = self._bar.add_task("", total=0)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def close(self) -> None:
        """Leaves the bar on the screen and gives the cursor back."""
        self._bar.stop()

    def _on_plan(self) -> None:
        self._bar.update(self._task, total=self._num_runs)

    def _on_run_start(self, name: str) -> None:
        self._bar.update(self._task, description=name)

    def _on_run_end(self, name: str, secs: float, remark: str) -> None:
        if remark:
            self.note(f"{name}  {duration(secs)}  {remark}")
        self._bar.update(self._task, completed=self._num_done, description="")


class _LeftColumn(ProgressColumn):
    """The time left by `TimeLeft`, because rich's own estimate assumes equally long runs."""

    def __init__(self, progress: Progress):
        self._progress = progress
        super().__init__()

    def render(self, task: Task) -> Text:
        return Text(self._progress.left)


def create_progress(console: Console, *, plain: bool) -> Progress:
    """Creates the bar if the console is a terminal and `plain` is false, else plain lines."""
    if console.is_terminal and not console.is_dumb_terminal and not plain:
        return LiveProgress(console)
    return PlainProgress(console)
