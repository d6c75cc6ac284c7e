"""The components in examples/ train, as its README says."""

from __future__ import annotations

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.testing.processes import ROOT, START_SECS
from tests.testing.repetitions import IS_FULL

README = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
COMMAND = shlex.split(re.search(r"`ps_trainer local ([^`]+)`", README)[1])
ADDED = [shlex.split(flags) for flags in re.findall(r"the same, with `([^`]+)`", README)]


def test_readme_names_every_example():
    files = {path.name for path in pathlib.Path(ROOT, "examples").glob("*.py")} - {"__init__.py"}
    assert files == set(re.findall(r"\]\((\w+\.py)\)", README))


OF_OLD_JOB = next(flags for flags in ADDED if any("examples.old_job" in flag for flag in flags))
# The flags of the README's other lines go together, so one run has all of their components.
TOGETHER = [flag for flags in ADDED if flags is not OF_OLD_JOB for flag in flags]


@pytest.mark.parametrize("added", [TOGETHER, OF_OLD_JOB, *(ADDED if IS_FULL else [])], ids=" ".join)
def test_command_of_the_readme_trains(create_run, added):
    run = create_run(step_ms=0)
    training = [
        "--learning_rate=0.05",
        "--optimizer=momentum",
    ]  # the commands show the components, not the best training
    launcher = run.start_local(*COMMAND, *training, *added)
    assert launcher.wait(START_SECS) == 0, launcher.log
    assert run.summary()["metrics"]["accuracy"] > 0.9
    if "--hook=examples.slow_steps:SlowSteps" in added:
        chief_log = (run.logdir / "logs" / "worker-0.log").read_text()
        steps = run.summary()["workers"]["0"]["local_steps"]
        assert f"slow steps: watched {steps} steps" in chief_log


def test_the_example_from_python_stops_when_its_callback_says_so():
    (module,) = re.findall(r"`python -m (\S+)`", README)
    done = subprocess.run(
        [sys.executable, "-m", module], cwd=ROOT, capture_output=True, text=True, timeout=START_SECS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert re.search(r"^step \d+: loss [\d.]+, accuracy (1|0\.9\d*); mean staleness", done.stdout, re.MULTILINE)
    assert re.search(r"^stopped: the mean loss is 0\.(0\d+|100) at step \d+$", done.stdout, re.MULTILINE)
