"""What lies in a folder of checkpoints, by name alone: nothing is opened but the state file.

    model.ckpt-1200.index, model.ckpt-1200.data-00000-of-00001     one checkpoint; the index is put there last
    checkpoint                                                     TensorFlow's state file: which one is the newest
    writing-…                                                      what a save is writing, or has left, killed

Other files (`worker-0-1200.npz`, a user's own) are nobody's business here, except for checkpoints under other names:
a folder that holds only those is not empty, and a run must not begin at step 0 beside them.
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
"""Of the checkpoints that are written here; those of a sharded `tf.train.Saver` have several data files."""

_NAME = re.compile(r"model\.ckpt-(\d+)$")
_FILE = re.compile(r"(?P<prefix>.+)\.(?P<end>index|data-(?P<shard>\d{5})-of-(?P<shards>\d{5}))")
# SaveV2 itself writes into `<file>.tempstate<number>` and renames.
_TEMPORARY_FILE = re.compile(
    rf"{TEMPORARY}(?:{STATE}|model\.ckpt-\d+\.(?:index|data-\d{{5}}-of-\d{{5}})(?:\.tempstate\d+)?)"
)
_NEWEST = re.compile(r'^model_checkpoint_path: "((?:[^"\\]|\\.)+)"\s*$', re.MULTILINE)


class StateFile(NamedTuple):
    """What TensorFlow's state file says.

    Attributes:
        newest: the path in it, as written; "" where it names none.
        fault: why it cannot be used, in words; "" if it can.
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
        path: the folder.
        steps: of the checkpoints that have an index, ascending.
        data: step -> names of the data files of that checkpoint, with or without an index.
        temporary: names of what interrupted saves have left, or a running one is writing.
        others: prefixes of checkpoints that are not called model.ckpt-<step>.
        state: of the state file.
    """

    path: pathlib.Path
    steps: list[int]
    data: dict[int, list[str]]
    temporary: list[str]
    others: list[str]
    state: StateFile

    @property
    def orphans(self) -> list[int]:
        """Steps of which there is data without an index."""
        return sorted(set(self.data) - set(self.steps))

    @property
    def remains(self) -> list[str]:
        """What of checkpoints there is, in words; empty in a folder in which a run may begin at step 0."""
        words = [f"{prefix_of(self.path, step).name} without its .index" for step in self.orphans]
        words += [f"{name}, a checkpoint of another name" for name in self.others]
        if self.state.newest:
            words.append(f"a state file that names {self.state.newest}")
        elif self.state.fault and self.state.fault != MISSING:
            words.append(f"a state file that {self.state.fault}")
        return [prefix_of(self.path, step).name for step in self.steps] + words


MISSING = "is missing"


def look(directory: pathlib.Path) -> Folder:
    """Reads the names in `directory`; one that does not exist holds nothing.

    Raises:
        CheckpointError: it is no folder, or may not be read.
    """
    if directory.is_symlink() and not directory.exists():
        raise CheckpointError(
            f"{directory} is a link to {os.readlink(directory)}, which is not there; is its disk mounted?"
        )
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        names = []
    except NotADirectoryError as error:
        raise CheckpointError(
            f"{directory} is no folder, so it can hold no checkpoints; remove it, or use another --logdir"
        ) from error
    except OSError as error:
        raise CheckpointError(f"{directory} cannot be read: {error.strerror}; change its owner or mode") from error
    steps: list[int] = []
    data: dict[int, list[str]] = {}
    others: list[str] = []
    for name in names:
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
    """What the state file of `directory` says."""
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
    """Path of the checkpoint of `step`, without ".index"."""
    return directory / f"model.ckpt-{step}"


def step_of(prefix: str | os.PathLike[str]) -> int | None:
    """The step in a checkpoint's name; None where it is not called model.ckpt-<step>."""
    match = _NAME.search(os.fspath(prefix))
    # "007" would be written "7": a name that is not ours, and two of which may be there.
    return int(match[1]) if match and str(int(match[1])) == match[1] else None


def temporary_step(name: str) -> int | None:
    """The step of a save's temporary index; None for any other name."""
    prefix = name.removesuffix(".index")
    return step_of(prefix) if name.startswith(TEMPORARY) and prefix != name else None
