"""Real commands with a wrong flag: one line says what is wrong, nothing is made, TensorFlow is not imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from benchmarks.contenders import REPOSITORY


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["benchmarks.anatomy", "--paths=all_reduce/packed/table"], "all_reduce cannot train the embedding table of"),
        (["benchmarks.anatomy.summary", "none.csv"], "none.csv: No such file or directory"),
        (["benchmarks.overlap", "--rates=foo"], "--rates='foo' is not a rate; write a number with bit, kbit, mbit"),
        (["benchmarks.peer_table", "none.csv"], "none.csv: No such file or directory"),
        (["benchmarks.peers.check", "--contenders=nobody"], "unknown 'nobody'; known: torch_ddp, "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_wrong_flag_ends_with_its_line(command, message, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert (ended.stdout, ended.stderr.partition(" ")[0]) == ("", "usage:")  # no line of TensorFlow is before it
    assert message in ended.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_the_anatomy_imports_tensorflow_only_to_train():
    code = "import sys\nfrom benchmarks.anatomy import __main__, summary\nsys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, timeout=60)
