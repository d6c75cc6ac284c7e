"""Makes the environment of a peer by pip, in `runs/peers/NAME`; `benchmarks.step_rate --peers` uses it from there.

    python -m benchmarks.peers.install torch
    python -m benchmarks.peers.install --force horovod

The peers pin other versions of NumPy and protobuf than TensorFlow, so each has its own environment.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "runs" / "peers"


class Peer(NamedTuple):
    """The packages that pip installs for a peer.

    Attributes:
        packages: Packages with versions. The builds of torch and paddlepaddle for CPUs are enough.
        sources: Package that is built from its sources afterwards; empty for none.
        note: A restriction that a reader must know; empty without one.
    """

    packages: Sequence[str]
    sources: str = ""
    note: str = ""


PEERS = {
    "torch": Peer(["torch==2.13.0", "numpy"]),
    # The latest one whose wheel for Linux has the parameter server: see `note`.
    "paddle": Peer(
        ["paddlepaddle==2.6.2", "numpy<2", "setuptools", "protobuf<5"],
        note="the wheels of 3.x lack the parameter server: `paddle.base.core` has no `DistFleetWrapper` there",
    ),
    "horovod": Peer(
        ["torch==2.13.0", "numpy", "setuptools<80", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml"],
        sources="horovod==0.28.1",
        note="0.28.1 asks for C++14, and PyTorch needs a later one; needs g++ and CMake, and about 5 minutes",
    ),
}

_HOROVOD_ENVIRONMENT = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # for the sources that it contains, which CMake 4 refuses
}


def main(argv: Sequence[str]) -> int:
    """Installs a peer; returns 0, or 1 if that failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers.install", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("name", choices=list(PEERS))
    parser.add_argument("--force", action="store_true", help="replace an environment that exists")
    flags = parser.parse_args(argv)
    folder = FOLDER / flags.name
    if python(flags.name).exists() and not flags.force:
        print(f"{folder} exists; --force replaces it")
        return 0
    try:
        _install(PEERS[flags.name], folder)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"error: {error}; {PEERS[flags.name].note or 'see the output of pip above'}", file=sys.stderr)
        return 1
    print(f"installed {flags.name} into {folder}")
    return 0


def python(name: str) -> pathlib.Path:
    """Returns the interpreter of a peer's environment, which may not exist."""
    return FOLDER / name / "bin" / "python"


def _install(peer: Peer, folder: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    pip: list[str | pathlib.Path] = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", *peer.packages], check=True)
    if not peer.sources:
        return
    no_build = ["--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, "download", "--quiet", *no_build, "--no-binary=:all:", "--dest", folder / "src", peer.sources],
        check=True,
    )
    (archive,) = (folder / "src").glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder / "src", filter="data")
    sources = archive.with_name(archive.name.removesuffix(".tar.gz"))
    for path in (sources / "CMakeLists.txt", sources / "horovod" / "torch" / "CMakeLists.txt"):
        path.write_text(re.sub(r"(CMAKE_CXX_STANDARD) 14", r"\1 17", path.read_text()))
    subprocess.run(
        [*pip, "install", "--quiet", *no_build, sources], check=True, env={**os.environ, **_HOROVOD_ENVIRONMENT}
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
