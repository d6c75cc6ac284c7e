from __future__ import annotations

from ps_trainer.launch import tail


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_returns_each_line_once(tmp_path):
    path = tmp_path / "a.jsonl"
    reader = tail.JsonLinesTail(path)
    append(path, '{"a": 1}\n{"a": 2}\n')
    assert reader.read() == [{"a": 1}, {"a": 2}]
    assert reader.read() == []
    append(path, '{"a": 3}\n')
    assert reader.read() == [{"a": 3}]


def test_file_and_folder_may_appear_late(tmp_path):
    path = tmp_path / "late" / "a.jsonl"
    reader = tail.JsonLinesTail(path)
    assert reader.read() == []
    path.parent.mkdir()
    append(path, '{"a": 1}\n')
    assert reader.read() == [{"a": 1}]


def test_half_written_line_waits_for_its_end(tmp_path):
    path = tmp_path / "a.jsonl"
    reader = tail.JsonLinesTail(path)
    append(path, '{"a": 1}\n{"a": ')
    assert reader.read() == [{"a": 1}]
    append(path, "2")
    assert reader.read() == []
    append(path, "}\n")
    assert reader.read() == [{"a": 2}]


def test_lines_of_an_earlier_run_do_not_count_even_without_line_end(tmp_path):
    path = tmp_path / "a.jsonl"
    append(path, '{"a": 1}\n{"a": ')
    reader = tail.JsonLinesTail(path)
    append(path, '{"a": 2}\n')
    assert reader.read() == [{"a": 2}]


def test_lines_that_are_not_objects_are_skipped(tmp_path):
    path = tmp_path / "a.jsonl"
    reader = tail.JsonLinesTail(path)
    path.write_bytes(b'rubbish\n[1]\n\n\xff\xfe\n{"a": 1}\n')
    assert reader.read() == [{"a": 1}]


def test_file_replaced_by_a_shorter_one_is_read_from_its_start(tmp_path):
    path = tmp_path / "a.jsonl"
    append(path, '{"a": 1}\n{"a": 2}\n')
    reader = tail.JsonLinesTail(path)
    path.write_text('{"a": 3}\n')
    assert reader.read() == [{"a": 3}]


def test_last_lines_gives_the_end_of_the_file(tmp_path):
    path = tmp_path / "log"
    append(path, "".join(f"line {i}\n" for i in range(100)) + "\n\n")
    assert tail.last_lines(path, 2) == ["line 98", "line 99"]


def test_last_lines_shows_nothing_before_the_start(tmp_path):
    path = tmp_path / "log"
    append(path, "old\n")
    start = tail.size_of(path)
    append(path, "new\n")
    assert tail.last_lines(path, 25, start=start) == ["new"]


def test_last_lines_reads_no_more_than_its_limit(tmp_path):
    path = tmp_path / "log"
    append(path, "x" * 1000 + "\nend\n")
    assert tail.last_lines(path, 25, max_bytes=8) == ["xxx", "end"]


def test_last_lines_survives_bytes_that_are_not_text(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\xff\n")
    assert tail.last_lines(path, 1) == ["a\\xff"]


def test_last_lines_of_a_missing_file_is_empty(tmp_path):
    assert tail.last_lines(tmp_path / "none", 3) == []
