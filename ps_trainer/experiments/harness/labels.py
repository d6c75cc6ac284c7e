"""`Label`: names that settings, tables and plots have in common; and `Level`, which tells how real a run is."""

from __future__ import annotations

import enum


class Label(str, enum.Enum):
    """A name of a fixed set, written as its value in JSON, in file names and in all texts."""

    __str__ = str.__str__  # under every version of Python


class Level(Label):
    """Real and emulated parts of a run; printed on every table and plot."""

    VIRTUAL = "L0 virtual time"  # gradients and updates are real, all time is emulated
    IN_PROCESS = "L1 in-process cluster"  # servers of one process: machines are emulated
    PROCESSES = "L2 processes on one machine"  # network interfaces are emulated
    SHAPED = "L3 shaped hosts"  # network namespaces with limited links: only the wire is emulated
