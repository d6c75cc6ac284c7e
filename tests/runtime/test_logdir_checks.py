"""Findings about the folder of a run."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from ps_trainer.cluster.findings import FAIL, OK, WARNING
from ps_trainer.runtime import logdir_checks

PLENTY = 2**50


@pytest.fixture
def free(monkeypatch):
    """Sets the number of free bytes on a disk."""

    def set_free(num_bytes, files=10**6):
        status = SimpleNamespace(f_bavail=num_bytes, f_frsize=1, f_files=files and 10**6, f_favail=files)
        monkeypatch.setattr(logdir_checks.os, "statvfs", lambda _: status)

    set_free(PLENTY)
    return set_free


def only(logdir):
    (finding,) = logdir_checks.findings(str(logdir))
    return finding


@pytest.mark.parametrize("below", ["", "new", "new/deep"])
def test_a_folder_that_exists_or_can_be_made(tmp_path, free, below):
    finding = only(tmp_path / below)
    assert finding.level == OK and "can be written; 1024 TiB are free" in finding.text
    assert os.listdir(tmp_path) == []


def test_a_relative_folder_that_does_not_exist_yet(tmp_path, free, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert f"--logdir=runs/x, to be created in {tmp_path}, can be" in only("runs/x").text


def test_a_file_in_the_place_of_a_folder(tmp_path, free):
    (tmp_path / "file").write_text("")
    finding = only(tmp_path / "file" / "logs")
    assert (finding.level, finding.topic) == (FAIL, logdir_checks.FOLDER)
    assert f"{tmp_path / 'file'} is not a folder" in finding.text


@pytest.mark.parametrize(
    ("code", "topic", "fix"),
    [
        (errno.EROFS, logdir_checks.FOLDER, "change its permissions"),
        (errno.ENOSPC, logdir_checks.ROOM, "free some space"),
    ],
)
def test_a_folder_that_cannot_be_written(tmp_path, free, monkeypatch, code, topic, fix):
    def refuse(**_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(logdir_checks.tempfile, "TemporaryFile", refuse)
    finding = only(tmp_path)
    assert (finding.level, finding.topic) == (FAIL, topic)
    assert os.strerror(code) in finding.text and finding.fix.startswith(fix)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_noticed_by_writing(tmp_path, free, monkeypatch):
    with open("/dev/full", "wb") as full:
        monkeypatch.setattr(logdir_checks.tempfile, "TemporaryFile", lambda dir: full)
        assert only(tmp_path).topic == logdir_checks.ROOM


@pytest.mark.parametrize(
    ("num_bytes", "level", "words"),
    [
        (2999, FAIL, "the newest checkpoint has 2.93 KiB: the next one will not fit"),
        (3000, WARNING, "the newest checkpoint has 2.93 KiB"),
        (2**30 - 1, WARNING, "1024 MiB are free"),
        (2**30, OK, "1 GiB are free"),
    ],
)
def test_free_space_is_compared_with_the_newest_checkpoint(tmp_path, free, num_bytes, level, words):
    free(num_bytes)
    (tmp_path / "checkpoints").mkdir()
    for step, size in ((9, 10**6), (10, 3000)):
        (tmp_path / "checkpoints" / f"model.ckpt-{step}.data-00000-of-00001").write_bytes(b"0" * size)
    finding = only(tmp_path)
    assert finding.level == level and words in finding.text


def test_few_free_inodes_are_a_warning(tmp_path, free):
    free(PLENTY, files=7)
    assert "only for 7 more files" in only(tmp_path).text
