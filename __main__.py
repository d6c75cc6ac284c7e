"""Answers `python -m ps_trainer` in the folder above a clone, where Python takes the clone itself for the package."""

import pathlib
import sys

_CLONE = pathlib.Path(__file__).resolve().parent

print(
    f"error: Python takes the folder {_CLONE} for the package ps_trainer, because it comes first on the path;"
    f" start from another folder, for example {_CLONE}",
    file=sys.stderr,
)
sys.exit(2)
