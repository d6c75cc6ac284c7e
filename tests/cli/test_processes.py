"""The entry points as processes: exit code, message, and that they do not import TensorFlow."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import ps_trainer
from tests.testing.repetitions import repetitions

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Runs a program with the arguments that follow; at its end prints the slow modules that it imported.
PROBE = """
import os, runpy, sys
program, sys.argv = sys.argv[1], sys.argv[1:]
leave = os._exit

def tell_and_leave(code):
    print("imported:", *sorted({"tensorflow", "rich", "numpy"} & set(sys.modules)), flush=True)
    leave(code)

os._exit = tell_and_leave
if program.endswith(".py"):
    runpy.run_path(program, run_name="__main__")
else:
    runpy.run_module(program, run_name="__main__", alter_sys=True)
"""


def run(*args, cwd=ROOT, program=(sys.executable, "-c", PROBE)):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    env.pop("TF_CONFIG", None)
    return subprocess.run([*program, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "args",
    [
        ["ps_trainer"],
        ["ps_trainer", "local", "--help"],
        ["ps_trainer", "local", "--helpfull"],
        ["ps_trainer", "list", "--help"],
        ["ps_trainer", "checkpoint", "--help"],
    ],
)
def test_help_answers_without_slow_imports(args):
    result = run(*args)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: ")
    assert result.stdout.splitlines()[-1] == "imported:"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["run_worker.py", "--ps_hosts=a:1", "--worker_hosts=b:1", "--task_index=1"], "--task_index=1 is out of range"),
        (["run_ps.py", "--ps_hosts=a", "--worker_hosts=b:1"], "--ps_hosts[0]='a': the port is missing"),
        (["run_worker.py", "--ps_hosts=a:1", "--worker_hosts=b:1", "--update=snyc"], "did you mean sync?"),
        (["ps_trainer", "local", "--batchsize=3"], "did you mean --batch_size?"),
        (["ps_trainer", "checkpoint", "vrify", "runs"], "did you mean verify?"),
    ],
)
def test_wrong_input_ends_with_2_and_one_line_before_tensorflow_is_imported(args, message):
    result = run(*args)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1
    assert message in result.stderr
    assert result.stdout.splitlines() == ["imported:"]


@pytest.mark.parametrize("script", ["run_ps.py", "run_worker.py"])
def test_scripts_start_from_another_folder(script, tmp_path):
    program = (sys.executable, "-E", str(ROOT / script))  # -E ignores the PYTHONPATH that helps the other tests
    result = run("--help", cwd=tmp_path, program=program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: python {script} --ps_hosts=")


def test_tells_its_version():
    result = run("--version", program=(sys.executable, "-m", "ps_trainer"))
    assert result.stdout == f"ps_trainer {ps_trainer.__version__}\n"


@pytest.mark.parametrize("num_lines", [1, 100_000])
def test_a_reader_that_closes_the_pipe_ends_the_command_without_a_traceback(num_lines):
    code = (
        "import sys; from ps_trainer.cli.command_wrapper import run_main\n"
        f"sys.stdin.read(); sys.exit(run_main(lambda: print('line\\n' * {num_lines}) or 0))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-1, text=True)
    process.stdout.close()
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (141, "")


@pytest.mark.parametrize(
    "args", repetitions([["predict", "--out=o.csv"], ["export", "--out=saved"], ["evaluate"]], every=3)
)
def test_commands_on_a_checkpoint_print_nothing_of_tensorflows_import(tmp_path, args):
    flags = [f"--checkpoint_dir={tmp_path}", "--model=softmax", "--dataset=digits"]
    ended = run(*args, *flags, cwd=tmp_path, program=(sys.executable, "-m", "ps_trainer"))
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path} holds no checkpoint; give ")
