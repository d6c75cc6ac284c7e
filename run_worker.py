#!/usr/bin/env python3
"""Runs a worker, chief or evaluator task: `python run_worker.py --help`."""

from __future__ import annotations

import sys

from ps_trainer.cli.command_wrapper import leave
from ps_trainer.cli.task import main_worker

if __name__ == "__main__":
    leave(main_worker(sys.argv))
