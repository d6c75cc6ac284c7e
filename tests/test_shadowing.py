"""A folder named `ps_trainer` in front of the package: one line and exit code 2, in every kind of start.

The package is found by a hook, as by an editable install, which Python asks only after all folders on the path.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from ps_trainer import shadowing

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What setuptools writes for an editable install of a package that lies beside other folders, without its comments.
HOOK = """
import importlib.machinery, importlib.util, os, sys
# An editable install of this very project puts the package itself on the path.
sys.path[:] = [folder for folder in sys.path if not os.path.isfile(os.path.join(folder, "ps_trainer", "__init__.py"))]
MAPPING = {"ps_trainer": PACKAGE}
class Finder:
    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        if fullname in MAPPING:
            init = MAPPING[fullname] + "/__init__.py"
            return importlib.util.spec_from_file_location(fullname, init)
        parent = fullname.rpartition(".")[0]
        if parent in MAPPING:
            return importlib.machinery.PathFinder.find_spec(fullname, path=[MAPPING[parent]])
# Behind the search of the path, and before the hook of an install of this very project.
sys.meta_path.insert(1 + sys.meta_path.index(importlib.machinery.PathFinder), Finder)
"""
DEADLINE_SECS = 60.0


@pytest.fixture
def start(tmp_path):
    """Runs Python in a folder above a folder `ps_trainer`, with the package behind a hook."""
    (tmp_path / "hook").mkdir()
    hook = HOOK.replace("PACKAGE", repr(str(ROOT / "ps_trainer")))
    (tmp_path / "hook" / "sitecustomize.py").write_text(hook)
    above = tmp_path / "above"
    (above / "ps_trainer").mkdir(parents=True)

    def run(*command, cwd=above, path=()):
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environ["PYTHONPATH"] = os.pathsep.join([*map(str, path), str(tmp_path / "hook")])
        return subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECS,
        )

    run.above, run.elsewhere = above, tmp_path
    return run


def assert_refused(done, folder, fix):
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    words = f"error: Python takes the folder {folder} for the package ps_trainer, because it comes first on the path; "
    assert done.stderr == f"{words}{fix}\n"


COMMANDS = {
    "local": ("-m", "ps_trainer", "local"),
    "task": ("-m", "ps_trainer", "task", "--job_name=ps"),
    "list": ("-m", "ps_trainer", "list"),
    "forkserver": ("-m", "ps_trainer.cli.forkserver_main", "0", "label"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_working_folder_hides_the_package_from_python_m(start, command):
    folder = start.above / "ps_trainer"
    assert_refused(start(*command), folder, f"start from another folder, for example {folder}")


@pytest.mark.parametrize("script", ["run_ps.py", "run_worker.py"])
def test_a_folder_of_pythonpath_hides_the_package_from_an_installed_script(start, script):
    # Beside an installed script lies no package. A script in a clone finds the package of its clone.
    (start.elsewhere / "bin").mkdir()
    installed = start.elsewhere / "bin" / script
    installed.write_text((ROOT / script).read_text())
    done = start(installed, "--ps_hosts=a:1", "--worker_hosts=b:1", cwd=start.elsewhere, path=[start.above])
    assert_refused(done, start.above / "ps_trainer", f"take {start.above} out of PYTHONPATH")


@pytest.mark.parametrize("line", ["from ps_trainer import config", "import ps_trainer.cluster.config"])
def test_a_script_beside_the_folder_ends_at_its_import_of_the_package(start, line):
    script = start.above / "train.py"
    script.write_text(f"{line}\nraise AssertionError('imported')\n")
    done = start(script, cwd=start.elsewhere)
    fix = f"move the script out of {start.above}, or take that folder off the Python path"
    assert_refused(done, start.above / "ps_trainer", fix)


def test_the_console_script_of_local_refuses_before_it_starts_its_children(start):
    code = "import sys; sys.path.pop(0); from ps_trainer.cli.main import console; sys.argv[0] = 'ps_trainer'; console()"
    done = start("-c", code, "local", "--logdir=run")
    folder = start.above / "ps_trainer"
    assert_refused(done, folder, f"start from another folder, for example {folder}")
    assert not (start.above / "run").exists()
    # A command without children works.
    assert start("-c", code, "--version").stdout.startswith("ps_trainer ")


def test_a_clone_that_is_not_installed_answers_from_the_folder_above(tmp_path):
    clone = tmp_path / "ps_trainer"
    clone.mkdir()
    (clone / "__main__.py").write_text((ROOT / "__main__.py").read_text())
    (clone / "ps_trainer").symlink_to(ROOT / "ps_trainer")
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-m", "ps_trainer", "local"],
        cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_SECS,
    )  # fmt: skip
    assert_refused(done, clone, f"start from another folder, for example {clone}")


def test_a_real_package_on_the_path_is_not_hidden_by_a_folder(tmp_path):
    (tmp_path / "ps_trainer").mkdir()
    assert shadowing.problem_of_children(str(tmp_path), [str(ROOT)]) is None
    assert shadowing.problem_of_children(str(ROOT), []) is None
    assert shadowing.problem_of_children(str(tmp_path / "ps_trainer"), []) is None
    assert f"the folder {tmp_path / 'ps_trainer'}" in shadowing.problem_of_children(str(tmp_path), [])
