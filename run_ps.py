#!/usr/bin/env python3
"""Runs a parameter server task: `python run_ps.py --help`."""

from __future__ import annotations

import sys

from ps_trainer.cli.command_wrapper import leave
from ps_trainer.cli.task import main_ps

if __name__ == "__main__":
    leave(main_ps(sys.argv))
