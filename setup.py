"""Packaging of ps_trainer: `pip install .` or `pip install -e .[dev]`."""

from __future__ import annotations

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).resolve().parent
# A folder that holds nothing but a link to `ps_trainer`. An editable install puts it on the Python path. Without it the
# package would be found by a hook that Python asks last, and a folder `ps_trainer` without `__init__.py`, such as the
# clone seen from the folder above it, would hide the package.
SOURCES = "src"


def read_version() -> str:
    """The package's version, read as text: importing it would need its dependencies."""
    text = (HERE / SOURCES / "ps_trainer" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE).group(1)


def read_description() -> str:
    """The README for a package index: without pictures and relative links, which would lead nowhere there."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^\[?!\[.*\n\n?", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", text)


PLOTS = ["matplotlib"]
PARQUET = ["pyarrow>=14"]
# With setuptools and wheel, which build this package in a test, pyyaml, which reads the Kubernetes manifest, and
# gensim, which reads word vectors.
TEST = [
    "pytest>=9",
    "pytest-xdist>=3.5",
    "pytest-rerunfailures>=15",
    "setuptools>=68",
    "wheel",
    "pyyaml",
    "gensim>=4.4",
    *PLOTS,
    *PARQUET,
]

setup(
    name="ps_trainer",
    version=read_version(),
    description="TF1-style parameter-server training on today's TensorFlow",
    long_description=read_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    install_requires=["tensorflow>=2.21,<2.23", "numpy>=1.26", "absl-py", "rich"],
    extras_require={
        "plots": PLOTS,
        "parquet": PARQUET,
        "tensorboard": ["tensorboard"],
        "docs": ["sphinx>=8", "myst-parser>=4", "furo"],
        "test": TEST,
        # A new minor version of these brings new rules: change the bounds and fix what it finds in one commit.
        "dev": [*TEST, "ruff>=0.17,<0.18", "mypy>=2.4,<2.5", "codespell[toml]>=2.4,<2.5"],
    },
    # `ps_trainer/models` is a link to `models`, so that no package of this general name is installed.
    package_dir={"": SOURCES},
    packages=find_packages(SOURCES, include=["ps_trainer", "ps_trainer.*"]),
    package_data={"ps_trainer": ["py.typed"], "ps_trainer.data": ["files/*"]},
    scripts=["run_ps.py", "run_worker.py"],
    entry_points={"console_scripts": ["ps_trainer = ps_trainer.cli.main:console"]},
)
