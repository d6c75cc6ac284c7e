"""Predictions against NumPy, in each form, of the test examples and of files."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import time
from typing import ClassVar

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.layers import ModelOutput
from models.matrix_factorization import MatrixFactorization
from ps_trainer.checkpoints import writer
from ps_trainer.config import TrainConfig
from ps_trainer.data.generators.number_words import Numbers
from ps_trainer.data.generators.telephone_tones import Tones
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.errors import DataError, UsageError
from ps_trainer.inference import prediction, predictor
from ps_trainer.inference.line_prediction import predict_lines
from ps_trainer.inference.prediction_names import PredictionNames
from ps_trainer.training import batch_slices
from ps_trainer.training import components as components_lib
from tests.testing import components as small
from tests.testing.cluster import config_of
from tests.testing.repetitions import representatives

NUM_EXAMPLES = 256 + 44  # the last batch is a smaller one
CONFIG = config_of("Dense", "Rows", [f"num_examples={NUM_EXAMPLES}", "has_test=true"])
LINES = TrainConfig(
    model="logistic_regression", dataset="libsvm", dataset_option=("train_files=a.txt", "test_every=3"), data_dir=None
)


class Said:
    """Predictions of a chosen kind: one number, a text, or one number for each row of the batch."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        kind: str = "number"

    def __init__(self, options):
        self.options = options

    def build(self, batch, training):
        scale = tf.get_variable("scale", [], initializer=tf.ones_initializer())
        number_B = scale * tf.cast(batch["label"], tf.float32)
        size = tf.shape(number_B)[0]
        kinds = {
            "number": number_B,
            "text": tf.strings.join(["label ", tf.as_string(batch["label"]), ", ä"]),
            "ragged": tf.zeros([size, size]),
        }
        return ModelOutput(tf.reduce_mean(number_B), kinds[self.options.kind], {})


def said(kind, tmp_path, out):
    config = dataclasses.replace(CONFIG, model=f"{__name__}:Said", model_option=(f"kind={kind}",))
    folder = tmp_path / "checkpoints"
    writer.write(folder, 3, {"scale": np.float32(0.1), "global_step": np.int64(3)})
    return prediction.write(config, folder, None, tmp_path / out)


LABELS = small.Rows(small.RowOptions(num_examples=NUM_EXAMPLES)).arrays["label"]


@pytest.fixture
def dense(tmp_path):
    """Folder of a checkpoint of `Dense`, and its predictions for all rows."""
    random = np.random.RandomState(0)
    shapes = {"hidden/kernel": [6, 5], "hidden/bias": [5], "logits/kernel": [5, 4], "logits/bias": [4]}
    values = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    writer.write(tmp_path / "checkpoints", 3, values | {"global_step": np.int64(3)})
    x = small.Rows(small.RowOptions(num_examples=NUM_EXAMPLES)).arrays["x"]
    hidden = np.tanh(x @ values["hidden/kernel"] + values["hidden/bias"])
    return tmp_path / "checkpoints", hidden @ values["logits/kernel"] + values["logits/bias"]


def test_the_forms_hold_the_same_predictions_in_order(dense, tmp_path):
    folder, wanted = dense
    for suffix in prediction.WRITERS:
        told = prediction.write(CONFIG, folder, None, tmp_path / f"out{suffix}")
        assert f"out{suffix}: {NUM_EXAMPLES} predictions for the test examples of" in told
    array = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)
    header, *rows = csv.reader((tmp_path / "out.csv").read_text().splitlines())
    assert header == ["prediction_0", "prediction_1", "prediction_2", "prediction_3"]
    np.testing.assert_array_equal(np.array(rows, np.float32), array)
    lines = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    np.testing.assert_array_equal(np.array(lines, np.float32), array)


def test_one_number_or_text_per_example(tmp_path):
    said("number", tmp_path, "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[:2] == ["prediction", str(np.float32(0.1) * LABELS[0])]
    for out in ("a.jsonl", "a.npy"):
        said("text", tmp_path, out)
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[1]) == {"prediction": f"label {LABELS[1]}, ä"}
    assert np.load(tmp_path / "a.npy")[-1] == f"label {LABELS[-1]}, ä"


class SlowRows:
    """A model whose time is proportional to the size of a batch: it predicts each label, and fails for label 5."""

    sizes: ClassVar[list[int]] = []

    def build(self, batch, training):
        scale = tf.get_variable("scale", [], initializer=tf.ones_initializer())
        number_B = tf.numpy_function(self._wait, [batch["label"]], tf.float32)
        number_B.set_shape([None])
        number_B = tf.where_v2(tf.equal(batch["label"], 5), np.float32(np.nan), scale * number_B)
        return ModelOutput(tf.reduce_mean(number_B), number_B, {})

    def _wait(self, label):
        self.sizes.append(len(label))
        time.sleep(0.002 * len(label))
        return label.astype(np.float32)


def test_a_slow_model_predicts_in_slices_so_that_ctrl_c_acts_soon(monkeypatch):
    monkeypatch.setattr(batch_slices, "MAX_SECS", 0.08)
    monkeypatch.setattr(SlowRows, "sizes", [])
    loaded = components_lib.load(dataclasses.replace(CONFIG, model=f"{__name__}:SlowRows"), 1)
    parts = [part.values for part in prediction.predict(loaded, {"scale": np.float32(1)}, None)]
    np.testing.assert_array_equal(np.concatenate(parts), LABELS)
    assert max(SlowRows.sizes) <= 16  # 16 examples take more than a quarter of the limit
    loaded.dataset.arrays["label"][[270, 280]] = 5
    with pytest.raises(DataError, match="^test example 271: the prediction is NaN or infinite"):
        list(prediction.predict(loaded, {"scale": np.float32(1)}, None))


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_predictions_of_several_shapes_need_json_lines_and_replace_nothing(tmp_path, suffix):
    (tmp_path / f"a{suffix}").write_text("before")
    with pytest.raises(UsageError, match="256.*44.*write .jsonl"):
        said("ragged", tmp_path, f"a{suffix}")
    assert (tmp_path / f"a{suffix}").read_text() == "before"
    said("ragged", tmp_path, "a.jsonl")
    lengths = [len(json.loads(line)["prediction"]) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert lengths == [256] * 256 + [44] * 44
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", f"a{suffix}", "a.jsonl"}


def test_a_file_of_lines_is_read_whole_and_a_broken_line_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("1 1:1\n-1 2:1\n1 1:2\n")
    (tmp_path / "more.txt").write_text("1 2:1\n1 1:1 2:2\n0 3:1\n")
    (tmp_path / "broken.txt").write_text("1 2:1\n1 two:1\n")
    weights = np.array([0, 1, -1, 0.5], np.float32)[:, np.newaxis]
    state = {"weights": weights, "bias": np.array([0.25], np.float32), "global_step": np.int64(1)}
    writer.write(tmp_path / "checkpoints", 1, state)
    config = dataclasses.replace(LINES, data_dir=str(tmp_path), model_option=("num_features=4",))
    prediction.write(config, tmp_path / "checkpoints", tmp_path / "more.txt", tmp_path / "out.npy")
    logits = np.array([-1, 1 - 2, 0.5]) + 0.25
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), 1 / (1 + np.exp(-logits)), rtol=1e-6)
    with pytest.raises(DataError, match=r"broken.txt: line 2: not <label> .*: 1 two:1"):
        prediction.write(config, tmp_path / "checkpoints", tmp_path / "broken.txt", tmp_path / "none.npy")
    assert not (tmp_path / "none.npy").exists()


def test_lines_of_libsvm_need_no_label(tmp_path):
    (tmp_path / "a.txt").write_text("1 1:1\n-1 2:1\n1 1:2\n")
    (tmp_path / "unlabelled.txt").write_text("2:1\n  1:1 2:2 # a comment\n0 3:1\n")
    weights = np.array([0, 1, -1, 0.5], np.float32)[:, np.newaxis]
    state = {"weights": weights, "bias": np.array([0.25], np.float32), "global_step": np.int64(1)}
    writer.write(tmp_path / "checkpoints", 1, state)
    config = dataclasses.replace(LINES, data_dir=str(tmp_path), model_option=("num_features=4",))
    prediction.write(config, tmp_path / "checkpoints", tmp_path / "unlabelled.txt", tmp_path / "out.npy")
    logits = np.array([-1, 1 - 2, 0.5]) + 0.25
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), 1 / (1 + np.exp(-logits)), rtol=1e-6)


@pytest.mark.parametrize("head", ["", "userId,movieId,rating,timestamp\n"])
def test_a_line_of_movielens_needs_no_rating_and_no_time(tmp_path, head):
    separator, name = (",", "ratings.csv") if head else ("\t", "u.data")

    def rows(*texts):
        return (head + "".join(f"{text}\n" for text in texts)).replace(",", separator)

    (tmp_path / name).write_text(rows("1,1,3,0", "2,2,4,0", "1,2,5,0"))
    state = {"users": np.array([[0, 1], [0, 2], [0, 3]], np.float32), "items": np.ones([3, 2], np.float32)}
    writer.write(tmp_path / "checkpoints", 1, state | {"global_step": np.int64(1)})
    options = ("dim=1", "mean_rating=0", "rating_scale=1")
    config = TrainConfig(
        model="matrix_factorization", dataset="movielens", data_dir=str(tmp_path), model_option=options
    )

    def predict(text):
        (tmp_path / "ask").write_text(text)
        prediction.write(config, tmp_path / "checkpoints", tmp_path / "ask", tmp_path / "out.npy")
        return list(np.load(tmp_path / "out.npy"))

    asked = rows("1,2", "2,1,", "1,2,,", "2,2,4", "1,1,4.5,", "2,1,,99", "1,1,5,99")
    assert predict(asked) == [3, 4, 3, 4, 3, 4, 3]
    components = components_lib.load(config, 1)
    (part,) = predict_lines(components, state, io.BufferedReader(io.BytesIO(asked.encode())))
    assert list(part.values) == [3, 4, 3, 4, 3, 4, 3]
    (batch,) = predictor.batches_of(components.dataset, tmp_path / "ask", 9)
    assert list(batch["rating"]) == [0, 0, 0, 4, 4.5, 0, 5]
    form = f"user and item, perhaps followed by rating and seconds, separated by {'commas' if head else 'tabs'}: "
    with pytest.raises(DataError, match=f"ask: line {3 if head else 2}: not {form}"):
        predict(rows("1,2", "1"))
    if head:
        with pytest.raises(
            DataError, match="ask: line 1 should hold the names .*, but is 1,2; put .*, for example user"
        ):
            predict("1,2\n2,1\n")


def test_an_id_that_the_model_does_not_know_is_named_with_its_line_and_no_flag(tmp_path):
    head = "userId,movieId,rating,timestamp\n"
    (tmp_path / "ratings.csv").write_text(head + "1,1,3,0\n1,2,4,0\n2,2,5,0\n")
    (tmp_path / "ask").write_text(head + "1,7,3,0\n" * 300 + "4,8,3,0\n1,8,3,0\n")
    state = {"users": np.zeros([3, 2], np.float32), "items": np.zeros([9, 2], np.float32)}
    writer.write(tmp_path / "checkpoints", 1, state | {"global_step": np.int64(1)})
    sizes = ("dim=1", "num_items=9")
    config = TrainConfig(model="matrix_factorization", dataset="movielens", data_dir=str(tmp_path), model_option=sizes)
    config = dataclasses.replace(config, dataset_option=("test_every=2",))
    problem = "line 302: 'user' has the id 4, and the trained model knows only the ids 0 to 2; correct the id, or leave"
    with pytest.raises(DataError, match=f"^{tmp_path}/ask: {problem} it out$"):
        prediction.write(config, tmp_path / "checkpoints", tmp_path / "ask", tmp_path / "out.npy")
    components = components_lib.load(config, 1)
    with open(tmp_path / "ask", "rb") as lines, pytest.raises(DataError, match=f"^stdin: {problem}"):
        list(predict_lines(components, state, lines))
    too_small = MatrixFactorization(MatrixFactorization.Options(num_users=2, num_items=9, dim=1))
    state["users"] = state["users"][:2]
    with pytest.raises(DataError, match=r"^test example 2: 'user' has the id 2, and the trained model .* 0 to 1;"):
        list(prediction.predict(components._replace(model=too_small), state, None))


def test_a_new_folder_is_made_for_the_file_and_ends_with_an_input_that_is_wrong(dense, tmp_path):
    wanted = {}
    for _ in range(2):  # the second time the file is replaced
        prediction.write(CONFIG, dense[0], None, tmp_path / "new" / "folder" / "out.csv")
        wanted[(tmp_path / "new" / "folder" / "out.csv").read_text()] = True
    assert len(wanted) == 1
    with pytest.raises(DataError, match="does not read single files"):
        prediction.write(CONFIG, dense[0], tmp_path / "rows.bin", tmp_path / "other" / "folder" / "out.csv")
    assert not (tmp_path / "other").exists()


def test_a_dataset_that_cannot_read_single_files_is_an_error(dense, tmp_path):
    with pytest.raises(DataError, match=r"rows.bin: this dataset does not read single files; put it where --data_dir"):
        prediction.write(CONFIG, dense[0], tmp_path / "rows.bin", tmp_path / "out.npy")


def test_a_dataset_without_test_examples_needs_a_file(dense, tmp_path):
    config = dataclasses.replace(CONFIG, dataset_option=())
    with pytest.raises(DataError, match=r"^dataset Rows has no test examples; give a file by --input$"):
        prediction.write(config, dense[0], None, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


class Next:
    """For each place of a text the symbol there plus one, or one number for the whole text."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        per_place: bool = True

    def __init__(self, options):
        self.options = options

    def build(self, batch, training):
        ids_BT = batch["ids"][:, :-1]
        bias = tf.get_variable("bias", [], tf.float32, initializer=tf.ones_initializer())
        told_BT = ids_BT + tf.cast(bias, tf.int64)
        predictions = told_BT if self.options.per_place else tf.reduce_sum(told_BT, axis=1)
        return ModelOutput(bias, predictions, {})


TEXT = "abcd" * 40


def told_of(tmp_path, prompt, out, **options):
    """The predictions of `Next` for a prompt, with a context of 8 characters."""
    (tmp_path / "train.txt").write_text(TEXT)
    (tmp_path / "prompt.txt").write_text(prompt)
    state = {"bias": np.float32(1), "global_step": np.int64(3)}
    writer.write(tmp_path / "checkpoints", 3, state)
    config = TrainConfig(
        model=f"{__name__}:Next",
        model_option=tuple(f"{name}={value}" for name, value in options.items()),
        dataset="text",
        dataset_option=("context_length=8", "max_vocab=10"),
        data_dir=str(tmp_path),
    )
    return prediction.write(config, tmp_path / "checkpoints", tmp_path / "prompt.txt", tmp_path / out)


# Less than a window of 8, a whole one, and two and a part.
@pytest.mark.parametrize("length", representatives([1, 3, 7, 8, 9, 16, 21], [3, 8, 21]))
def test_each_character_of_a_prompt_has_a_prediction_whatever_its_length(tmp_path, length):
    prompt = TEXT[:length]
    said = told_of(tmp_path, prompt, "out.jsonl")
    lines = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(line) for line in lines] == [8] * (length // 8) + [length % 8] * (length % 8 > 0)
    told = [symbol for line in lines for symbol in line]
    ids = {told[i + 1] - 1 for i in range(len(told) - 1) if prompt[i] == "a"}
    assert len(told) == length and len(ids) <= 1  # all "a" have the same next symbol
    assert f"{len(lines)} predictions for {tmp_path / 'prompt.txt'}" in said
    assert (f"the last prediction covers {length % 8} places" in said) == bool(length % 8)
    told_of(tmp_path, prompt, "out.csv")
    header, *rows = csv.reader((tmp_path / "out.csv").open(newline=""))
    assert header[-1] == "text" and [[int(cell) for cell in row[:-1] if cell] for row in rows] == lines


def test_the_ids_of_a_text_are_given_as_text_too(tmp_path):
    told_of(tmp_path, TEXT[:9], "out.jsonl")
    first, last = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    # The vocabulary is a, b, c, d, the newline, unknown; the window begins with the newline, and `Next` adds 1.
    following = {"\n": "\ufffd", "a": "b", "b": "c", "c": "d", "d": "\n"}
    assert first["text"] == "".join(following[symbol] for symbol in "\n" + TEXT[:7])
    assert last["text"] == following[TEXT[7]]


def test_one_warning_tells_what_a_text_has_and_the_vocabulary_lacks(tmp_path, caplog):
    told_of(tmp_path, "abxx" * 9 + "yz", "out.jsonl")
    (warning,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    wanted = "chars that the vocabulary lacks, read as unknown: 20 of 38 ('x', 'y', 'z')"
    assert warning == f"input unlike the training data: {wanted}"
    caplog.clear()
    told_of(tmp_path, TEXT, "out.jsonl")
    assert "unlike" not in caplog.text


def test_a_translation_is_given_in_words():
    words = recorded_words.vocabularies_of(Numbers(Numbers.Options(num_train=50, num_test=5)))["target"]
    ids = [words.id_of("二"), words.id_of("十"), 2, 0, 0]
    names = PredictionNames((), words)
    assert names.meaning(np.array(ids)) == {"text": "二十"}
    assert names.meaning(np.array(ids, np.float32)) == names.meaning(np.array([ids])) == {}
    assert names.meaning(np.int64(3)) == {"text": "\ufffd"}


def test_a_transcript_ends_at_its_padding_and_a_class_has_its_name():
    words = recorded_words.vocabularies_of(Tones)["transcript"]
    names = PredictionNames(("no", "yes"), words)
    assert names.meaning(np.array([1, 1, 0, -1, -1])) == {"text": "110"}
    assert prediction.row_of(np.array([1, 1, 0, -1, -1]), names) == {"prediction": [1, 1, 0], "text": "110"}
    assert prediction.row_of(np.array([1, -1]), PredictionNames()) == {"prediction": [1, -1]}
    assert names.meaning(np.array([0.2, 0.7, 0.1], np.float32)) == {"class": "yes"}
    assert names.meaning(np.float32(0.4)) == {"class": "no"}
    assert names.meaning(np.array([0.1, 0.2, 0.7], np.float32)) == {"class": ""}


@pytest.mark.parametrize(
    ("classes", "values", "columns"),
    [
        (("no", "yes"), [0.25, 0.75], ["prediction_yes"]),
        (("a", "b", "c"), [[0.5, 0.25, 0.25]] * 2, ["prediction_a", "prediction_b", "prediction_c"]),
        (("a", "b"), [[0.5, 0.25, 0.25]] * 2, ["prediction_a", "prediction_b", "prediction_2"]),
        (("a", "b", "c"), [0.5, 0.5], None),
        ((), [[0.5, 0.5]], None),
    ],
)
def test_a_file_names_the_class_of_each_number(classes, values, columns):
    def written(write):
        part, file = predictor.Predicted(np.array(values, np.float32)), io.BytesIO()
        write(file, prediction._Counted(iter([part]), PredictionNames(classes)))
        return file.getvalue().decode().splitlines()

    header, *rows = written(prediction._write_csv)
    lines = [json.loads(line) for line in written(prediction._write_jsonl)]
    assert len(rows) == len(lines) == len(values)
    if columns is None:
        assert "class" not in header and not any("class" in str(line) for line in lines)
    else:
        assert header == ",".join([*columns, "class"])
        assert [line["classes"] for line in lines] == [list(classes)] * len(values)


def test_a_table_of_numpy_needs_whole_windows(tmp_path):
    with pytest.raises(UsageError, match="do not fit into one array; write .jsonl"):
        told_of(tmp_path, TEXT[:9], "out.npy")
    told_of(tmp_path, TEXT[:16], "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (2, 8)


def test_where_a_model_needs_whole_windows_the_left_out_part_is_reported(tmp_path):
    said = told_of(tmp_path, TEXT[:21], "out.jsonl", per_place=False)
    assert "2 predictions for" in said
    assert "the end of the input has no prediction, as it does not fill 8 places" in said
    with pytest.raises(DataError, match=r"prompt.txt: too short for a prediction: .* 8 characters or words"):
        told_of(tmp_path, TEXT[:7], "none.jsonl", per_place=False)
    assert not (tmp_path / "none.jsonl").exists()


def test_lines_that_are_cut_are_counted():
    parts = [prediction.Predicted(np.zeros([3, 2]), num_cut=2), prediction.Predicted(np.zeros([1, 2]), num_cut=1)]
    counted = prediction._Counted(iter(parts))
    assert len(list(counted)) == 2
    assert (counted.num_examples, counted.notes(None)) == (4, "; 3 inputs were too long and were cut")


def test_each_line_of_a_stream_is_a_text_of_its_own(tmp_path):
    (tmp_path / "train.txt").write_text(TEXT)
    options = ("context_length=8", "max_vocab=10")
    config = TrainConfig(model=f"{__name__}:Next", dataset="text", dataset_option=options, data_dir=str(tmp_path))
    components = components_lib.load(config, num_workers=1)
    names = PredictionNames.known_to(components.dataset)
    # Three characters and the line end; more than a window; the line end only.
    stream = io.BufferedReader(io.BytesIO(b"abc\nabcdabcdab\n\n"))
    found = [one for part in predict_lines(components, {"bias": np.float32(1)}, stream) for one in part.values]
    assert [len(one) for one in found] == [4, 11, 1]
    assert list(found[1][:3]) == list(found[0][:3])  # after the start and the same characters
    assert list(found[1][5:]) == list(found[1][1:7])
    assert names.meaning(found[0]) == {"text": names.words.text_of(found[0].tolist())}
