"""`import ps_trainer` offers the API and imports neither TensorFlow nor NumPy for it."""

from __future__ import annotations

import inspect
import pathlib
import subprocess
import sys

import pytest

import ps_trainer

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_import_needs_no_tensorflow():
    code = "import ps_trainer, sys; dir(ps_trainer); print(sorted({'tensorflow', 'numpy', 'absl'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_name_exists_and_is_documented():
    for name in ps_trainer.API:
        assert name in dir(ps_trainer)
        assert inspect.getdoc(getattr(ps_trainer, name)), name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ps_trainer' has no attribute 'tarin'"):
        ps_trainer.tarin  # noqa: B018
