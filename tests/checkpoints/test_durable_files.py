"""Files are replaced in one piece, and a failure leaves no temporary file."""

from __future__ import annotations

import errno

import pytest

from ps_trainer.checkpoints import durable_files


def test_the_content_is_replaced(tmp_path):
    path = tmp_path / "file"
    for text in ("old", "new ö"):
        durable_files.replace_text(path, text)
    assert path.read_text(encoding="utf-8") == "new ö"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_content_and_no_temporary_file(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    durable_files.replace_text(tmp_path / "file", "old", tmp_path / "temporary")
    monkeypatch.setattr(durable_files.os, call, fail)
    with pytest.raises(OSError, match="Input/output error"):
        durable_files.replace_text(tmp_path / "file", "new", tmp_path / "temporary")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("file", "old")]


def test_folders_are_made_with_their_parents(tmp_path):
    for _ in range(2):
        durable_files.make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_folder_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(OSError):
        durable_files.make_folder(tmp_path / "a" / "b")


def test_folders_that_are_made_for_a_failing_body_end_with_it(tmp_path):
    (tmp_path / "a").mkdir()
    with durable_files.new_folder(tmp_path / "a" / "b" / "c"):
        (tmp_path / "a" / "b" / "file").touch()
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), durable_files.new_folder(tmp_path / "a" / "b" / "d" / "e"):
            assert (tmp_path / "a" / "b" / "d" / "e").is_dir()
            raise error
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "a/b", "a/b/c", "a/b/file"]
