"""Lists a folder of checkpoints by file names alone; it opens only the state file.

    model.ckpt-1200.index, model.ckpt-1200.data-00000-of-00001     one checkpoint; the index is renamed last. Large
                                                                   tensors need several data files (`parts.py`)
    checkpoint                                                     TensorFlow's state file, which names the newest one
    writing-…                                                      files of a save that is under way or was killed

Other files (`worker-0-1200.npz`, a user's own) are ignored, except for checkpoints under other names. A folder that
holds only those is not empty, and a run must not begin at step 0 beside them.
"""

from __future__ import annotations

import os
import pathlib
import re
from typing import NamedTuple

from ps_trainer.errors import CheckpointError

STATE = "checkpoint"
TEMPORARY = "writing-"
DATA_SUFFIX = ".data-00000-of-00001"
"""Suffix of the data file of a checkpoint that has only one; large tensors, and a sharded `Saver`, need several."""

_NAME = re.compile(r"model\.ckpt-(\d+)$")
_FILE = re.compile(r"(?P<prefix>.+)\.(?P<end>index|data-(?P<shard>\d{5})-of-(?P<shards>\d{5}))")
# TensorFlow's SaveV2 op writes into `<file>.tempstate<number>` and then renames that file.
_TEMPORARY_FILE = re.compile(
    rf"{TEMPORARY}(?:{STATE}|model\.ckpt-\d+(?:\.part-\d+)?\.(?:index|data-\d{{5}}-of-\d{{5}})(?:\.tempstate\d+)?)"
)
_NEWEST = re.compile(r'^model_checkpoint_path: "((?:[^"\\]|\\.)+)"\s*$', re.MULTILINE)


class StateFile(NamedTuple):
    """The content of TensorFlow's state file.

    Attributes:
        newest: Path of the newest checkpoint as written in the file; "" if it names none.
        fault: Reason why the file cannot be used, such as "is empty"; "" if it can.
    """

    newest: str
    fault: str

    @property
    def name(self) -> str:
        """Last part of the path: "model.ckpt-1200"."""
        return pathlib.PurePosixPath(self.newest).name


class Folder(NamedTuple):
    """The names in a folder of checkpoints.

    Attributes:
        path: The folder.
        steps: Steps of the checkpoints that have an index, ascending.
        data: Names of the data files of each step, with or without an index.
        temporary: Names of files that interrupted saves have left, or that a running save is writing.
        others: Prefixes of checkpoints that are not called model.ckpt-<step>.
        state: Content of the state file.
    """

    path: pathlib.Path
    steps: list[int]
    data: dict[int, list[str]]
    temporary: list[str]
    others: list[str]
    state: StateFile

    @property
    def orphans(self) -> list[int]:
        """Steps that have data files but no index."""
        return sorted(set(self.data) - set(self.steps))

    @property
    def remains(self) -> list[str]:
        """Checkpoints and remains of checkpoints, in words; empty if a run may begin at step 0 in this folder."""
        words = [f"{prefix_of(self.path, step).name} without its .index" for step in self.orphans]
        words += [f"{name}, a checkpoint of another name" for name in self.others]
        if self.state.newest:
            words.append(f"a state file that names {self.state.newest}")
        elif self.state.fault and self.state.fault != MISSING:
            words.append(f"a state file that {self.state.fault}")
        return [prefix_of(self.path, step).name for step in self.steps] + words


MISSING = "is missing"


def read_folder(directory: pathlib.Path) -> Folder:
    """Lists `directory`; a directory that does not exist counts as empty.

    Raises:
        CheckpointError: It is not a folder, or it may not be read.
    """
    # Listing a dead link raises FileNotFoundError, as for a new folder, and the run would begin at step 0.
    if directory.is_symlink() and not directory.exists():
        raise CheckpointError(
            f"{directory} is a link to {os.readlink(directory)}, which does not exist; is its disk mounted?"
        )
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        names = []
    except NotADirectoryError as error:
        raise CheckpointError(
            f"{directory} is not a folder, so it cannot hold checkpoints; remove it, or use another --logdir"
        ) from error
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error.strerror}; change its owner or mode") from error
    steps: list[int] = []
    data: dict[int, list[str]] = {}
    others: list[str] = []
    for name in names:
        # The names of temporary files match the pattern of checkpoints, too.
        match = None if name.startswith(TEMPORARY) else _FILE.fullmatch(name)
        if match is None:
            continue
        step = step_of(match["prefix"]) if _NAME.fullmatch(match["prefix"]) else None
        if step is None:
            others.append(match["prefix"])
        elif match["end"] == "index":
            steps.append(step)
        else:
            data.setdefault(step, []).append(name)
    temporary = [name for name in names if _TEMPORARY_FILE.fullmatch(name)]
    return Folder(directory, sorted(steps), data, temporary, sorted(set(others)), read_state(directory))


def read_state(directory: pathlib.Path) -> StateFile:
    """Reads the state file of `directory`."""
    path = directory / STATE
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return StateFile("", MISSING)
    except UnicodeDecodeError:
        return StateFile("", "is not text")
    except OSError as error:
        return StateFile("", f"cannot be read ({error.strerror})")
    if not text.strip():
        return StateFile("", "is empty")
    match = _NEWEST.search(text)
    return StateFile(match[1], "") if match else StateFile("", "names no checkpoint")


def prefix_of(directory: pathlib.Path, step: int) -> pathlib.Path:
    """Returns the path of the checkpoint of `step`, without ".index"."""
    return directory / f"model.ckpt-{step}"


def part_prefix(prefix: str, number: int) -> str:
    """Returns the prefix of a part of an unfinished save, which becomes a data file of the checkpoint."""
    return f"{prefix}.part-{number}"


def step_of(prefix: str | os.PathLike[str]) -> int | None:
    """Returns the step in a checkpoint's name; None if it is not called model.ckpt-<step>."""
    match = _NAME.search(os.fspath(prefix))
    # ps_trainer never writes "007", so such a file comes from elsewhere; it may lie beside "7".
    return int(match[1]) if match and str(int(match[1])) == match[1] else None


def temporary_step(name: str) -> int | None:
    """Returns the step of a save's temporary index; None for any other name."""
    prefix = name.removesuffix(".index")
    return step_of(prefix) if name.startswith(TEMPORARY) and prefix != name else None
