"""While the disk is full, whole lines are lost and no error is raised."""

from __future__ import annotations

import errno
import json

import pytest

from ps_trainer.metrics.line_file import LineFile
from tests.testing.logs import log_lines


class Full:
    """A file that takes 10 bytes of each line and then reports a full disk, in the two ways of operating systems."""

    def __init__(self, real):
        self._real = real
        self._is_short = True
        self.name, self.fileno, self.truncate = real.name, real.fileno, real.truncate

    def write(self, line):
        self._real.write(line[:10])
        self._is_short = not self._is_short
        if self._is_short:
            return 10
        raise OSError(errno.ENOSPC, "No space left on device")


def steps(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_line_can_be_read_at_once_and_a_file_is_continued(tmp_path):
    path = tmp_path / "folder" / "file"
    for step in (1, 2):
        file = LineFile(path)
        file.write({"step": step})
        assert steps(path)[-1] == step
        file.close()
    assert steps(path) == [1, 2]


def test_whole_lines_are_lost_with_one_warning_and_written_again_with_free_space(tmp_path, monkeypatch):
    file = LineFile(tmp_path / "file")
    file.write({"step": 1})
    with monkeypatch.context() as patch, log_lines() as logged:
        patch.setattr(file, "_file", Full(file._file))
        for step in (2, 3, 4):
            file.write({"step": step})
    file.write({"step": 5})
    file.close()
    assert logged == [f"lines of {tmp_path / 'file'} are lost: [Errno 28] No space left on device"]
    assert steps(tmp_path / "file") == [1, 5]


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError):
        LineFile(tmp_path / "file")
