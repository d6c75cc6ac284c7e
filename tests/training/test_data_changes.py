"""A resumed run whose data have changed: it is refused if the parameters would get another meaning, else warned."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest

from ps_trainer.config import TrainConfig
from ps_trainer.data.formats import transcript_list
from ps_trainer.data.pipeline import dataset_record, recorded_words
from ps_trainer.errors import CheckpointError, UsageError
from tests.testing.cluster import config_of  # noqa: F401 - sets the environment of TensorFlow

import tensorflow.compat.v1 as tf  # isort: skip

from ps_trainer.training import components, data_changes, one_process, run_files  # isort: skip

ROWS = "1,Oslo,mid\n4,Lima,old\n2,Oslo,young\n"
TABLE = "x,{city},age\n" + ROWS * 20


def csv_config(tmp_path, **fields):
    return TrainConfig(
        model="mlp",
        dataset="csv",
        dataset_option=("label=age",),
        data_dir=str(tmp_path),
        logdir=str(tmp_path / "run"),
        batch_size=8,
        **fields,
    )


def load_dataset(config, file, text):
    file.write_text(text)
    return components.load(config, 1).dataset


def check_change(config, file, before, now, *, has_checkpoints=True):
    """Checks a run that continues with the text `now`, after a run with the text `before`."""
    dataset = load_dataset(config, file, before)
    run_files.write_dataset(config, dataset)
    run_files.write_vocabulary(config, dataset)
    if has_checkpoints:
        config.checkpoint_dir.mkdir()
        (config.checkpoint_dir / "model.ckpt-5.index").touch()
    data_changes.check(config, load_dataset(config, file, now))


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (TABLE.replace("mid", "zmid"), "class 0 was 'mid' and is 'old'"),
        (TABLE.replace("old", "young"), "class 1 was 'old' and is 'young'"),
        (TABLE.replace("young", "old"), "class 2 was 'young' and is missing"),
        (TABLE + "4,Lima,old\n" * 40, "column '{city}', word 0 was 'Oslo' and is 'Lima'"),
        (
            "{city},x,age\n" + "Oslo,1,mid\nLima,4,old\nOslo,2,young\n" * 20,
            "column 0 was 'x: number' and is '{city}: category'",
        ),
    ],
)
def test_another_class_word_or_column_at_a_trained_place_is_refused(tmp_path, now, found):
    config = csv_config(tmp_path)
    with pytest.raises(CheckpointError, match=f"{re.escape(found)}.*another --logdir.*--init_from"):
        check_change(config, tmp_path / "train.csv", TABLE, now)


def test_another_token_at_a_trained_place_is_refused(tmp_path):
    config = TrainConfig(model="gpt", dataset="text", data_dir=str(tmp_path), logdir=str(tmp_path / "run"))
    before = "abcabcabaaaa\n" * 200
    now = before.translate(str.maketrans("bc", "cb"))
    with pytest.raises(CheckpointError, match="vocabulary 'text', token 1 was 'b' and is 'c'"):
        check_change(config, tmp_path / "train.txt", before, now)


def text_config(tmp_path, *options, **fields):
    return TrainConfig(
        model="gpt",
        model_option=("dim=8", "num_heads=2", "num_layers=1"),
        dataset="text",
        dataset_option=("context_length=8", *options),
        data_dir=str(tmp_path),
        logdir=str(tmp_path / "run"),
        batch_size=4,
        **fields,
    )


@pytest.mark.parametrize(
    ("added", "refusal", "has_unknown"),
    [
        ("c" * 900, "vocabulary .text., token 1 was .b. and is .c.", False),
        ("d" * 900, "vocabulary .text., token 1 was .b. and is .d.", True),
    ],
)
def test_a_run_continues_on_more_text_with_its_own_vocabulary(tmp_path, added, refusal, has_unknown):
    file, keep = tmp_path / "train.txt", f"vocabulary_of={tmp_path}/run"
    file.write_text("abcabcabaaaa\n" * 200)
    one_process.train(text_config(tmp_path, max_steps=2))
    file.write_text(file.read_text() + added)
    with pytest.raises(UsageError, match=f"{refusal}.*--dataset_option={keep}, to which new ones are unknown"):
        one_process.train(text_config(tmp_path, max_steps=4))
    one_process.train(text_config(tmp_path, keep, max_steps=4))
    words = recorded_words.read(tmp_path / "run")["text"]
    assert words.tokens == ("a", "b", "c", "\n", "\ufffd")
    assert words.counts == tuple(map(file.read_text().count, "abc\nd"))
    lines = (tmp_path / "run/metrics/worker-0.jsonl").read_text()
    assert ("25.71% of the chars of the training text are not in the vocabulary of" in lines) == has_unknown
    assert "the data differ" not in lines


@pytest.mark.parametrize(
    ("added", "refusal"),
    [
        ("4,Lima,old\n" * 40, "column .{city}., word 0 was .Oslo. and is .Lima."),
        ("4,Rome,old\n", "has 5 ids of features, model .logistic_regression. only 4"),
    ],
)
def test_a_run_continues_on_more_rows_with_its_own_columns(tmp_path, added, refusal):
    file = tmp_path / "train.csv"
    file.write_text(TABLE.replace("young", "old"))
    kept = ("label=age", "form=sparse")
    config = dataclasses.replace(csv_config(tmp_path), model="logistic_regression", dataset_option=kept, max_steps=2)
    one_process.train(config)
    sizes = dataset_record.read_facts(tmp_path / "run", "csv")["columns"]["value"][1]
    file.write_text(file.read_text() + added * 5)
    more = dataclasses.replace(config, max_steps=4)
    keep = f"columns_of={tmp_path}/run"
    with pytest.raises(UsageError, match=f"{refusal}.*--dataset_option={keep}, to which new ones are unknown"):
        one_process.train(more)
    one_process.train(dataclasses.replace(more, dataset_option=(*kept, keep)))
    assert "the data differ" not in (tmp_path / "run/metrics/worker-0.jsonl").read_text()
    after = dataset_record.read_facts(tmp_path / "run", "csv")["columns"]["value"][1]
    assert {**after, "class_counts": 0} == {**sizes, "class_counts": 0}


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (0, "column 0 was 'x: number' and is 'size: number'"),
        (2, "column 2 was missing and is 'size: number'"),
        (3, "column 2 was missing and is 'size: number'"),
    ],
)
@pytest.mark.parametrize("num_features", ["", "num_features=50"])
def test_a_new_column_is_named_with_the_flag_that_leaves_it_out(tmp_path, place, found, num_features):
    file, options = tmp_path / "train.csv", ("label=age", "form=sparse")
    given = "columns=x:number" if num_features else "columns="
    file.write_text(TABLE.replace("young", "old"))
    config = dataclasses.replace(
        csv_config(tmp_path, max_steps=2),
        model="logistic_regression",
        model_option=(num_features,) if num_features else (),
        dataset_option=(*options, given),
    )
    one_process.train(config)
    rows = [line.split(",") for line in file.read_text().splitlines()]
    for at, row in enumerate(rows):
        row.insert(place, str(at) if at else "size")
    file.write_text("\n".join(map(",".join, rows)) + "\n")
    more = dataclasses.replace(config, max_steps=4)
    leave_out = "columns=x:number,size:ignore" if num_features else "columns=size:ignore"
    fix = f"leave out what is new by --dataset_option={leave_out}, or put"
    with pytest.raises(CheckpointError, match=f"{found}; {fix}"):
        one_process.train(more)
    one_process.train(dataclasses.replace(more, dataset_option=(*options, leave_out)))


def test_a_new_word_that_moves_the_ids_of_another_column_is_refused(tmp_path):
    config = dataclasses.replace(
        csv_config(tmp_path),
        model="logistic_regression",
        model_option=("num_features=50",),
        dataset_option=("label=age", "form=sparse", "columns=x:category"),
    )
    text = TABLE.replace("young", "old")  # x has the words 1, 2 and 4
    found = "feature 4 was '{city}: missing or unknown' and is 'x: 9'"
    keep = f"keep its words by --dataset_option=columns_of={tmp_path}/run, to which new ones are unknown; or put"
    with pytest.raises(CheckpointError, match=re.escape(f"{found}; {keep}")):
        check_change(config, tmp_path / "train.csv", text, text + "9,Oslo,old\n" * 5)


def test_a_new_class_and_word_at_the_end_change_no_trained_place(tmp_path):
    check_change(csv_config(tmp_path), tmp_path / "train.csv", TABLE, TABLE + "1,Rome,z\n" * 5)


def test_a_run_without_checkpoints_has_no_trained_place(tmp_path):
    check_change(
        csv_config(tmp_path), tmp_path / "train.csv", TABLE, TABLE.replace("mid", "zmid"), has_checkpoints=False
    )


def test_a_resumed_run_with_other_classes_leaves_the_files_of_the_run(tmp_path):
    config, file = csv_config(tmp_path, max_steps=2), tmp_path / "train.csv"
    file.write_text(TABLE)
    one_process.train(config)
    before = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.json")}
    assert len(before) == 3
    file.write_text(TABLE.replace("mid", "zmid"))
    with pytest.raises(CheckpointError, match="class 0 was 'mid' and is 'old'"):
        one_process.train(dataclasses.replace(config, max_steps=4))
    assert {path: path.read_bytes() for path in before} == before


def write_sounds(folder, rate=1000, num_sounds=4):
    folder.mkdir()
    noise = np.random.RandomState(0).randint(-9999, 9999, 200).astype(np.int16)
    transcript_list.write(folder, "train", [noise] * num_sounds, ["ab"] * num_sounds, rate)


def write_records(folder, rate=1000, num_sounds=4):
    folder.mkdir()
    label = tf.train.Feature(int64_list=tf.train.Int64List(value=[rate % 9]))
    example = tf.train.Example(features=tf.train.Features(feature={"label": label})).SerializeToString()
    with tf.io.TFRecordWriter(str(folder / "a.tfrecord")) as writer:
        for _ in range(num_sounds):
            writer.write(example)


@pytest.mark.parametrize(
    ("dataset", "write"),
    [(("wav",), write_sounds), (("tfrecord", "features=label:int64"), write_records)],
)
def test_files_that_were_moved_are_the_same_data_and_other_ones_are_not(tmp_path, dataset, write):
    name, *options = dataset
    here = TrainConfig(
        model="speech", dataset=name, dataset_option=tuple(options), data_dir=str(tmp_path / "here"),
        logdir=str(tmp_path / "run"),
    )  # fmt: skip
    write(tmp_path / "here")
    run_files.write_dataset(here, components._create_dataset(here))
    (tmp_path / "here").rename(tmp_path / "there")
    there = dataclasses.replace(here, data_dir=str(tmp_path / "there"))
    assert data_changes.warning(there, components._create_dataset(there)) == ""
    shutil.rmtree(tmp_path / "there")
    write(tmp_path / "there", num_sounds=5)
    assert data_changes.warning(there, components._create_dataset(there)) == ""
    shutil.rmtree(tmp_path / "there")
    write(tmp_path / "there", rate=2000)
    assert "the data differ" in data_changes.warning(there, components._create_dataset(there))


def test_other_numbers_give_a_warning_on_the_terminal(tmp_path):
    config, file = csv_config(tmp_path, max_steps=2), tmp_path / "train.csv"
    file.write_text(TABLE)
    one_process.train(config)
    file.write_text(TABLE + ROWS)
    one_process.train(dataclasses.replace(config, max_steps=4))
    lines = (tmp_path / "run/metrics/worker-0.jsonl").read_text().splitlines()
    states = [record["state"] for record in map(json.loads, lines) if "state" in record]
    # `local` prints the states that begin with "warning".
    (warning,) = [state for state in states if state.startswith("warning: ")]
    assert "the data differ from those that the run" in warning
