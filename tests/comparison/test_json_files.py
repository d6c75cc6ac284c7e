"""Damaged and unfinished JSON files of a run."""

from __future__ import annotations

import pytest

from ps_trainer.comparison import json_files
from ps_trainer.errors import RunError


def test_an_unfinished_last_line_is_left_out(tmp_path):
    path = tmp_path / "worker-0.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": ')
    assert json_files.read_lines(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}')
    assert json_files.read_lines(path) == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": ', r"is not JSON \(Expecting value"),
        (b"[1]", "is not a JSON object"),
        (b'{"a": "\xff"}', r"is not JSON \('utf-8' codec can't decode"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, problem):
    path = tmp_path / "worker-0.jsonl"
    path.write_bytes(b'{"a": 1}\n' + line + b'\n{"a": 3}\n')
    with pytest.raises(RunError, match=rf"worker-0\.jsonl, line 2 {problem}.*; restore the file or remove the line"):
        json_files.read_lines(path)


def test_a_file_that_is_missing_is_empty_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "summary.json"
    assert json_files.read_object(path) == {}
    path.write_text('{"status": ')
    with pytest.raises(RunError, match=r"summary\.json is not JSON .*; restore it or remove it"):
        json_files.read_object(path)
    path.write_text("[1]")
    with pytest.raises(RunError, match=r"summary\.json is not a JSON object; restore it or remove it"):
        json_files.read_object(path)
