"""Figures of the saves of a run, for `benchmarks.saving`: steps and processor time during saves, and without them.

All times are in seconds since the epoch. `times` holds the ends of each worker's steps.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.step_rate_run import Window
from ps_trainer.experiments.harness.cpu import UNKNOWN_USE, CpuWatch

SLOW = 1.5
"""Steps that are longer than this many times the median count as slow."""


class StepFigures(NamedTuple):
    """Steps beside the saves; the fields have the meaning of those of `benchmarks.saving.SavingRow`."""

    step_ms: float
    longest_step: float
    longest_step_control: float
    slow_share: float
    slow_share_control: float
    lowest_rate: float
    lowest_rate_control: float


class CpuFigures(NamedTuple):
    """Processor time of the saves; the fields have the meaning of those of `benchmarks.saving.SavingRow`."""

    save_cpu_secs: float
    idle: float
    allowed_rate: float


def until_last_step(times: Sequence[np.ndarray], saves: Sequence[Window]) -> list[Window]:
    """Cuts off what follows the last step, since a save may outlast the steps."""
    last = min(worker[-1] for worker in times)
    return [Window(window.start, min(window.end, last)) for window in saves]


def step_figures(times: Sequence[np.ndarray], saves: Sequence[Window]) -> StepFigures:
    """Returns the figures of the steps; no save may outlast them."""
    controls = _controls(max(worker[0] for worker in times), saves)
    calm = [_steps_outside(worker, saves) for worker in times]
    step_secs = float(np.median(np.concatenate(calm)))

    def lowest_rate(windows: Sequence[Window]) -> float:
        return min(
            (
                _num_steps(worker, window) / window.secs * steps.mean()
                for worker, steps in zip(times, calm, strict=True)
                for window in windows
            ),
            default=math.nan,
        )

    def longest_and_slow(windows: Sequence[Window]) -> tuple[float, float]:
        """Returns the longest step of the windows ÷ the median, and the share of slow ones; NaN without windows."""
        if not windows:
            return math.nan, math.nan
        steps = np.concatenate([_steps_meeting(worker, window) for worker in times for window in windows]) / step_secs
        return float(steps.max()), float(np.mean(steps > SLOW))

    longest, slow = longest_and_slow(saves)
    longest_control, slow_control = longest_and_slow(controls)
    return StepFigures(
        step_ms=1000 * step_secs,
        longest_step=longest,
        longest_step_control=longest_control,
        slow_share=slow,
        slow_share_control=slow_control,
        lowest_rate=lowest_rate(saves),
        lowest_rate_control=lowest_rate(controls),
    )


def cpu_figures(cpu: CpuWatch, times: Sequence[np.ndarray], saves: Sequence[Window], begin: float) -> CpuFigures:
    """Returns the figures of processor time from `begin` on; no save may outlast the steps."""
    gaps = _gaps(begin, min(worker[-1] for worker in times), saves)
    gap_uses = [cpu.between(*gap) or UNKNOWN_USE for gap in gaps]
    save_uses = [cpu.between(*window) or UNKNOWN_USE for window in saves]
    busy_secs = sum(use.share * gap.secs for use, gap in zip(gap_uses, gaps, strict=True))
    busy = busy_secs / sum(gap.secs for gap in gaps)
    step_cpu = sum(use.tasks_secs for use in gap_uses) / sum(_num_steps(one, gap) for gap in gaps for one in times)
    save_cpus = [
        use.tasks_secs - step_cpu * sum(_num_steps(worker, window) for worker in times)
        for use, window in zip(save_uses, saves, strict=True)
    ]
    num_cores = os.cpu_count() or 1
    allowed = [
        (num_cores * window.secs - save_cpu) / (num_cores * window.secs * busy)
        for save_cpu, window in zip(save_cpus, saves, strict=True)
    ]
    return CpuFigures(save_cpu_secs=statistics.median(save_cpus), idle=1 - busy, allowed_rate=min(1.0, *allowed))


def _controls(begin: float, saves: Sequence[Window]) -> list[Window]:
    """Returns for each save a time shortly before it, as long as the save or as there is without a save."""
    free_from = [begin, *(window.end for window in saves)]
    controls = [
        Window(max(free, window.start - 1.2 * window.secs), window.start - 0.2 * window.secs)
        for free, window in zip(free_from, saves, strict=False)
    ]
    return [window for window in controls if window.secs > 0]


def _gaps(begin: float, end: float, saves: Sequence[Window]) -> list[Window]:
    """Returns the times between two limits in which no save is in progress."""
    starts = [begin, *(window.end for window in saves)]
    ends = [*(window.start for window in saves), end]
    return [Window(start, stop) for start, stop in zip(starts, ends, strict=True) if stop > start]


def _steps_outside(times: np.ndarray, windows: Sequence[Window]) -> np.ndarray:
    """Returns the lengths of the steps that meet no window."""
    starts, ends = times[:-1], times[1:]
    calm = np.all([(ends < window.start) | (starts > window.end) for window in windows], axis=0)
    return (ends - starts)[calm]


def _steps_meeting(times: np.ndarray, window: Window) -> np.ndarray:
    """Returns the lengths of the steps that meet a window."""
    starts, ends = times[:-1], times[1:]
    return (ends - starts)[(ends > window.start) & (starts < window.end)]


def _num_steps(times: np.ndarray, window: Window) -> float:
    """Returns the number of steps in a window; a step that lies in it in part counts in part."""
    starts, ends = times[:-1], times[1:]
    inside = np.clip(np.minimum(ends, window.end) - np.maximum(starts, window.start), 0, None)
    return float(np.sum(inside / (ends - starts)))
