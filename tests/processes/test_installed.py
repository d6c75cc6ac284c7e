"""ps_trainer from a wheel, an editable install and a clone, in a folder with a `models` that belongs to the user."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sysconfig
import venv

import pytest

from tests.testing.processes import ROOT, START_SECS
from tests.testing.repetitions import repetitions, representatives

INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--ignore-installed", "--no-index", "--no-deps")
FILES = ("setup.py", "pyproject.toml", "README.md", "LICENSE", "run_ps.py", "run_worker.py")
FOLDERS = ("ps_trainer", "models", "src")
OWN_MODEL = '''
"""The user's own models."""

import tensorflow.compat.v1 as tf

from ps_trainer.models import layers


class Mine:
    """A dense layer."""

    def build(self, batch, training):
        logits = layers.dense(layers.flatten(batch["image"]), 10, "mine")
        return layers.classifier_output(logits, batch["label"])
'''
# Prints the files of models, in one JSON list for each argument: a folder, and the models to be found from it. Each
# folder has its own process, forked after the import of TensorFlow, which takes seconds.
FIND = """
import inspect, json, os, sys
import tensorflow.compat.v1
for argument in sys.argv[1:]:
    folder, *models = json.loads(argument)
    if not (child := os.fork()):
        os.chdir(folder)
        from ps_trainer.component_tables import MODELS
        print(json.dumps([inspect.getfile(MODELS.load(name)) for name in models]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, folder
"""


class Installed:
    """One installed or cloned ps_trainer.

    Attributes:
        python: Interpreter that finds it.
        environ: Environment for that interpreter.
        sources: Folder of the clone.
        is_clone: Whether nothing is installed and the clone is on the path.
    """

    def __init__(self, folder: pathlib.Path, how: str):
        self.sources = folder / "clone"
        self.sources.mkdir(parents=True)
        for part in (*FILES, *FOLDERS):
            source, target = ROOT / part, self.sources / part
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        self.environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.python = folder / "venv" / "bin" / "python"
        venv.create(folder / "venv", symlinks=True, with_pip=False)
        # ps_trainer's dependencies come from the environment of the tests; Python does not read path files there.
        site_packages = subprocess.check_output(
            [self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        pathlib.Path(site_packages.strip(), "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.is_clone = how == "clone"
        if self.is_clone:
            self.environ["PYTHONPATH"] = str(self.sources)
        else:
            editable = ["--editable"] if how == "editable" else []
            pip = [str(self.python), "-m", "pip", *INSTALL, "--no-build-isolation", *editable, str(self.sources)]
            subprocess.run(pip, check=True, timeout=START_SECS, env=self.environ)

    def start(self, folder: pathlib.Path, *command: str) -> subprocess.CompletedProcess:
        """Runs `python *command` to its end in a folder."""
        return subprocess.run(
            [self.python, *command], cwd=folder, env=self.environ, capture_output=True, text=True, timeout=START_SECS
        )

    def run(self, folder: pathlib.Path, *command: str) -> str:
        """The output of `python *command`, which must succeed."""
        done = self.start(folder, *command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=["wheel", "editable", "clone"])
def installed(request, tmp_path_factory):
    return Installed(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture
def own_package(tmp_path):
    return write_package(tmp_path)


def write_package(folder, init=True):
    """Makes the user's package `models` in a folder, which it returns; without `__init__.py` unless `init`."""
    (folder / "models").mkdir(parents=True)
    if init:
        (folder / "models" / "__init__.py").touch()
    (folder / "models" / "mine.py").write_text(OWN_MODEL)
    return folder


# An editable install finds the files of the clone, and no folder `models` beside them, as from a wheel.
@pytest.mark.parametrize(
    "installed", representatives(["wheel", "editable", "clone"], ["wheel", "clone"]), indirect=True
)
def test_finds_the_users_models_and_the_projects_own(installed, tmp_path):
    package, bare = write_package(tmp_path / "package"), write_package(tmp_path / "bare", init=False)
    (module := tmp_path / "module").mkdir()
    (module / "models.py").write_text(OWN_MODEL)
    mine = {
        package: ("models.mine:Mine", "models/mine.py"),
        bare: ("models.mine:Mine", "models/mine.py"),
        module: ("models:Mine", "models.py"),
    }
    # "models.cnn:Cnn" is what files of earlier runs call the project's "cnn".
    asked = [json.dumps([str(folder), "cnn", "models.cnn:Cnn", name]) for folder, (name, _) in mine.items()]
    found = installed.run(tmp_path, "-c", FIND, *asked).splitlines()
    for (folder, (_, file)), line in zip(mine.items(), found, strict=True):
        shipped, recorded, users = (pathlib.Path(path) for path in json.loads(line))
        # In a clone, the user's folder without `__init__.py` leaves the name `models` to the clone's folder, to which
        # `ps_trainer.models` is a link.
        assert shipped.resolve() == recorded.resolve()
        assert shipped == recorded or folder == bare
        assert tmp_path not in shipped.parents
        assert users == folder / file


@pytest.mark.parametrize("installed", repetitions(["wheel", "editable", "clone"], every=3), indirect=True)
def test_trains_the_users_model_of_a_package_models(installed, own_package):
    flags = ("local", "--num_ps=1", "--num_workers=1", "--dataset=digits", "--max_steps=3", "--logdir=run", "--plain")
    installed.run(own_package, "-m", "ps_trainer", *flags, "--model=models.mine:Mine")
    assert (own_package / "run" / "summary.json").exists()


@pytest.mark.parametrize("installed", ["clone"], indirect=True)
def test_a_script_of_the_clone_finds_the_users_model_beside_its_own(installed, own_package, monkeypatch):
    monkeypatch.delitem(installed.environ, "PYTHONPATH")
    flags = ("--ps_hosts=127.0.0.1:1", "--worker_hosts=127.0.0.1:2", "--task_index=0", "--model=models.mine:Nobody")
    worker = installed.start(own_package, str(installed.sources / "run_worker.py"), *flags)
    assert worker.returncode == 2
    assert f"{own_package / 'models' / 'mine.py'} has no class 'Nobody'" in worker.stderr


def test_the_only_package_that_is_installed_is_ps_trainer(installed, tmp_path):
    code = "import importlib.util as u; print(*(n for n in ('models', 'tests', 'ps_trainer') if u.find_spec(n)))"
    assert installed.run(tmp_path, "-c", code).split()[-1:] == ["ps_trainer"]
    assert ("models" in installed.run(tmp_path, "-c", code)) == installed.is_clone


def test_a_folder_named_like_the_package_does_not_hide_it(installed, tmp_path):
    """Above a clone named `ps_trainer`, or in a script that lies there, Python also sees the clone's folder."""
    (tmp_path / "ps_trainer").mkdir()
    script = tmp_path / "script.py"
    script.write_text("import ps_trainer; print(ps_trainer.__version__)")
    version = installed.run(tmp_path.parent, "-c", "import ps_trainer; print(ps_trainer.__version__)")
    assert installed.run(tmp_path, "script.py") == version
    assert installed.run(tmp_path.parent, str(script)) == version
    assert installed.run(tmp_path, "-m", "ps_trainer", "--version") == f"ps_trainer {version}"


@pytest.mark.parametrize("installed", ["wheel"], indirect=True)
def test_the_description_of_the_package_has_no_relative_links(installed, tmp_path):
    code = "import importlib.metadata as m; print(m.metadata('ps_trainer').get_payload())"
    description = installed.run(tmp_path, "-c", code)
    assert description.lstrip().startswith("# ps_trainer")
    assert "](" not in description
