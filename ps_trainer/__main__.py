"""`python -m ps_trainer`."""

from __future__ import annotations

from ps_trainer.cli.main import console

if __name__ == "__main__":
    console()
