"""Predictions for lines as they arrive: rows of a table; errors name the line."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re

import numpy as np
import pytest

from ps_trainer.checkpoints import writer
from ps_trainer.cli import predict
from ps_trainer.config import TrainConfig
from ps_trainer.data.formats.csv_table import Csv
from ps_trainer.errors import DataError
from ps_trainer.inference import export, prediction, predictor
from ps_trainer.inference.line_prediction import predict_lines
from ps_trainer.inference.line_reader import LineReader
from ps_trainer.inference.prediction_names import PredictionNames
from ps_trainer.training import components as components_lib

PETS = {"weights": np.full([1, 1], 9, np.float32), "bias": np.zeros(1, np.float32), "global_step": np.int64(3)}


@pytest.fixture
def pets(tmp_path):
    """A table whose label is the sign of its only number, and flags for a model that knows."""
    rows = "".join(f"{x},{['cat', 'dog'][x > 0]}\n" for x in range(-9, 11))
    (tmp_path / "train.csv").write_text("x,kind\n" + rows)
    writer.write(tmp_path / "checkpoints", 3, PETS)
    options = {"dataset_option": ("label=kind", "form=sparse"), "data_dir": str(tmp_path)}
    return TrainConfig(model="logistic_regression", dataset="csv", **options)


def told_of_stdin(config, text):
    components = components_lib.load(config, num_workers=1)
    names = PredictionNames.known_to(components.dataset)
    parts = predict_lines(components, PETS, io.BufferedReader(io.BytesIO(text)))
    return [(one, names.meaning(one)) for part in parts for one in part.values]


def test_each_row_is_predicted_for_when_it_arrives(pets):
    reader, writing = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as sender:
        parts = predict_lines(components_lib.load(pets, num_workers=1), PETS, stream)
        sender.write(b"x\n-5\n")
        assert next(parts).values[0] < 0.5  # the stream is still open
        sender.write(b"8\n")
        assert next(parts).values[0] > 0.5
        sender.close()
        assert list(parts) == []


def test_a_wrong_row_is_named_by_its_line_on_stdin(pets):
    assert [name["class"] for _, name in told_of_stdin(pets, b"x,kind\n-5,?\n8,dog")] == ["cat", "dog"]
    with pytest.raises(DataError, match=r"^stdin: line 3 has 2 values, but there are 1 columns"):
        told_of_stdin(pets, b"x\n-5\n8,9\n")
    with pytest.raises(DataError, match=r"^stdin lacks columns of the training files: x; its columns: y"):
        told_of_stdin(pets, b"y\n-5\n")


class Arriving(io.RawIOBase):
    """A stream whose parts arrive one after the other."""

    def __init__(self, *parts):
        self._parts = list(parts)

    def readable(self):
        return True

    def readinto(self, buffer):
        part = self._parts.pop(0) if self._parts else b""
        buffer[: len(part)] = part
        return len(part)


def test_an_empty_line_gets_null_so_that_each_line_has_its_answer(pets, caplog):
    stream = io.BufferedReader(Arriving(b"\nx\n\n-5\n \r\n\n8\n", b"\n7\n8,9\n"))
    answers = []
    with pytest.raises(DataError, match=r"^stdin: line 10 has 2 values, but there are 1 columns"):
        for part in predict_lines(components_lib.load(pets, num_workers=1), PETS, stream):
            answers += [None if one is None else one > 0.5 for one in part.values]
    assert answers == [None, False, None, None, True, None]
    told = re.findall(r"stdin: lines? ([\d to]+) (?:is|are) empty, and (\w+)", caplog.text)
    assert told == [("1", "skipped"), ("3", "answered"), ("5 to 6", "answered"), ("8", "answered")]
    with pytest.raises(DataError, match=r"^stdin: the first line must have the names"):
        told_of_stdin(pets, b"x\n\n")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "npy"])
def test_a_file_has_null_for_an_empty_line_or_the_error_names_the_line(pets, tmp_path, suffix):
    stdin, out = io.BufferedReader(io.BytesIO(b"x\n-5\n\n8\n\n")), tmp_path / f"out.{suffix}"
    if suffix != "jsonl":
        with pytest.raises(DataError, match=r"^stdin: line 3 is empty; remove it, or write \.jsonl"):
            prediction.write(pets, tmp_path / "checkpoints", stdin, out)
        assert not out.exists()
        return
    assert ": 2 predictions for stdin" in prediction.write(pets, tmp_path / "checkpoints", stdin, out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row.get("class") for row in rows] == ["cat", None, "dog", None]
    assert rows[1] == rows[3] == {"prediction": None}


@pytest.mark.parametrize("dataset", ["libsvm", "parallel_text", "criteo"])
def test_lines_are_decoded_as_those_of_a_file(tmp_path, dataset):
    lines = {
        "libsvm": ["1 1:0.5 3:2", "0 2:1\r", "1 3:4 # rest", "2:7"],
        "parallel_text": ["a b a", "c\tb \u00e9\r", "a", "b a b a"],
        "criteo": ["\t".join(["1", *["3"] * 13, *["0000000a"] * 26]), "\t".join(["0", *[""] * 39])] * 2,
    }[dataset]
    text = "\n".join(lines) + "\n"
    for name in ("train", "train.en", "train.zh", "more", "train.txt"):
        (tmp_path / name).write_text(text if name != "train" else text.replace("\n2:7", "\n0 2:7"), newline="")
    options = {"parallel_text": ("test_files=", "max_length=3", "test_every=2")}.get(dataset, ("train_files=train",))
    config = TrainConfig(dataset=dataset, dataset_option=options, data_dir=str(tmp_path), model="softmax")
    source = components_lib._create_dataset(config)
    wanted = list(predictor.batches_of(source, tmp_path / "more", 10))
    reader = LineReader(source)
    for _ in range(2):
        found = list(reader.batches(tmp_path / "more", [line.encode() for line in lines]))
        assert [set(batch) for batch in found] == [set(batch) for batch in wanted]
        for name, values in wanted[0].items():
            np.testing.assert_array_equal(found[0][name], values)
    if dataset != "parallel_text":
        with pytest.raises(DataError, match=r"more: line 2: not "):
            list(reader.batches(tmp_path / "more", [lines[0].encode(), b"x y"]))
    assert len(source._files) == len(components_lib._create_dataset(config)._files)


class WithoutTest(Csv):
    """A table of which all rows are for training."""

    def test(self, *, batch_size):
        del batch_size


def test_a_dataset_without_test_examples_reads_lines_and_is_exported(pets, tmp_path):
    config = dataclasses.replace(pets, dataset=f"{__name__}:WithoutTest")
    assert [name["class"] for _, name in told_of_stdin(config, b"x\n-5\n8\n")] == ["cat", "dog"]
    assert "-> predictions float32 (None,)" in export.write(config, tmp_path / "checkpoints", tmp_path / "saved")


def test_a_dataset_without_lines_and_an_empty_stdin(pets):
    with pytest.raises(DataError, match="--input=-: dataset digits does not read lines; name a file: --input=FILE"):
        told_of_stdin(TrainConfig(model="softmax", dataset="digits"), b"1\n")
    assert told_of_stdin(pets, b"") == []


def test_a_prediction_that_is_nan_is_an_error(pets):
    values = PETS | {"weights": np.full([1, 1], np.nan, np.float32)}
    parts = predict_lines(components_lib.load(pets, num_workers=1), values, io.BufferedReader(io.BytesIO(b"x\n1\n")))
    with pytest.raises(DataError, match="stdin: line 2: the prediction is NaN or infinite; look for a number"):
        list(parts)


def test_a_row_in_place_of_the_names_is_shown_with_the_fix(pets):
    with pytest.raises(
        DataError,
        match=r"^stdin: the first line must have the names .*: -5; give the names in the first line, and a row",
    ):
        told_of_stdin(pets, b"-5\n")


def test_the_command_prints_lines_of_json(pets, tmp_path, capfd):
    (tmp_path / "new.csv").write_text("x\n-5\n8\n")
    flags = [f"--checkpoint_dir={tmp_path}/checkpoints", "--model=logistic_regression", "--dataset=csv"]
    flags += [f"--data_dir={tmp_path}", *(f"--dataset_option={one}" for one in pets.dataset_option)]
    assert predict.main_predict(["program", *flags, f"--input={tmp_path}/new.csv"]) == 0
    captured = capfd.readouterr()
    assert [json.loads(line)["class"] for line in captured.out.splitlines()] == ["cat", "dog"]
    assert f"2 predictions for {tmp_path}/new.csv, by" in captured.err
    with open(tmp_path / "new.csv", "rb") as lines:
        stdin = os.dup(0)
        os.dup2(lines.fileno(), 0)
        try:
            assert predict.main_predict(["program", *flags, "--input=-", "--out=-"]) == 0
        finally:
            os.dup2(stdin, 0)
            os.close(stdin)
    read = capfd.readouterr()
    assert (read.out, "2 predictions for stdin, by" in read.err) == (captured.out, True)
