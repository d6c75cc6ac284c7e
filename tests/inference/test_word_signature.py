"""The signature `words` of a SavedModel takes texts and gives words, the same as `ps_trainer predict` does."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import writer
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline.recorded_words import RESERVED, RecordedWords
from ps_trainer.inference import export, word_signature
from ps_trainer.inference.prediction_names import PredictionNames
from ps_trainer.inference.predictor import Predictor, batches_of, build_graph
from ps_trainer.training import components as components_lib

VOCABULARIES = {
    "words": RecordedWords("word", ("the", "<eos>", "cat", "<unk>", "sat")),
    "characters": RecordedWords("char", ("a", "\n", "b", "\ufffd", " ")),
    "sentences of words": RecordedWords("word", (*RESERVED, "the", "cat", "sat")),
    "sentences of characters": RecordedWords("char", (*RESERVED, "ä", "b", " ")),
}
TABLE = "age,hours per week,job,income\n" + "".join(
    f"{20 + row % 50},{'?' if row % 7 == 0 else 10 + row % 41},{('cook', 'nurse', 'clerk')[row % 3]},"
    f"{('high', 'low', 'none')[row % 5 % 3]}\n"
    for row in range(60)
)
SENTENCES = ["a cat sat", "the cat ran", "a dog sat", "the dog ran home"] * 5


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_text_in_the_graph_equals_text_in_python(kind):
    words = VOCABULARIES[kind]
    ids = np.random.RandomState(0).randint(-1, len(words.tokens) + 2, [300, 6])
    ids[:150] = np.where(ids[:150] < 3, 4, ids[:150])  # texts that no end cuts
    with tf.Graph().as_default(), tf.Session() as session:
        got = session.run(word_signature.text_of(words, tf.constant(ids)))
    assert [text.decode() for text in got] == [words.text_of(row) for row in ids.tolist()]


@pytest.mark.parametrize(
    ("classes", "predictions", "expected"),
    [
        (("no", "yes"), [0.4, 0.6, 0.5], ["no", "yes", "no"]),
        (("a", "b"), [[0.1, 0.9, 0.0], [0.2, 0.1, 0.7]], ["b", ""]),  # the third class occurs in no example
        (("a", "b", "c"), [[0.1, 0.2, 0.7]], ["c"]),
        (("a", "b", "c"), [[0.1, 0.9]], None),  # not of these classes
        ((), [[0.1, 0.9]], None),
    ],
)
def test_classes_in_the_graph_equal_classes_in_python(classes, predictions, expected):
    with tf.Graph().as_default(), tf.Session() as session:
        found = word_signature.outputs(PredictionNames(classes), tf.constant(predictions), None)
        got = session.run(found)
    in_python = [PredictionNames(classes).meaning(one) for one in np.float32(predictions)]
    if expected is None:
        assert got == {}
        assert in_python == [{}] * len(predictions)
    else:
        assert [name.decode() for name in got["class"]] == expected == [one["class"] for one in in_python]


def exported(folder, config):
    """Exports random values of a model; returns its dataset, a predictor with the values, and what the export tells."""
    components = components_lib.load(config, 1)
    graph = build_graph(components)
    random_values = np.random.RandomState(3)
    values = {
        variable.op.name: random_values.standard_normal(variable.shape.as_list()).astype(np.float32)
        for variable in graph.variables
    }
    writer.write(folder / "run" / "checkpoints", 5, values | {"global_step": np.int64(5)})
    told = export.write(config, folder / "run" / "checkpoints", folder / "out")
    return components.dataset, Predictor(graph, values), told


@contextlib.contextmanager
def serving(folder):
    """Loads the SavedModel in plain TensorFlow; gives a call of its signature `words`, which decodes strings."""
    with tf.Graph().as_default(), tf.Session() as session:
        signature = tf.saved_model.load(session, [tf.saved_model.SERVING], str(folder)).signature_def["words"]
        fetches = {name: info.name for name, info in signature.outputs.items()}

        def call(texts):
            assert set(signature.inputs) == set(texts)
            got = session.run(fetches, {info.name: texts[name] for name, info in signature.inputs.items()})
            texts_of = lambda value: [one.decode() for one in value]  # noqa: E731
            return {name: texts_of(value) if value.dtype == object else value for name, value in got.items()}

        yield call


def served(folder, texts):
    """One call of the signature `words`."""
    with serving(folder) as call:
        return call(texts)


def table_config(folder, **settings):
    (folder / "train.csv").write_text(TABLE)
    options = ("label=income", "missing=?", *settings.pop("dataset_option", ()))
    return TrainConfig(
        model=settings.pop("model", "mlp"), dataset="csv", data_dir=str(folder), dataset_option=options, **settings
    )


COLUMNS = {"age": ["50", " 20 "], "hours per week": ["?", "40"], "job": ["nurse", "pilot"]}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("mlp", ()),
        ("deepfm", ("form=columns", "positive=high")),
        ("logistic_regression", ("form=sparse", "positive=low")),
    ],
)
def test_rows_of_a_table_give_the_classes_that_predict_gives(tmp_path, model, options):
    config = table_config(tmp_path, model=model, dataset_option=options)
    dataset, predictor, told = exported(tmp_path, config)
    got = served(tmp_path / "out", COLUMNS)
    rows = tmp_path / "rows.csv"
    rows.write_text("age,hours per week,job\n50,?,nurse\n20,40,pilot\n")
    (batch,) = batches_of(dataset, rows, 10)
    expected = predictor.predict(batch)
    np.testing.assert_array_equal(got["predictions"], expected)
    assert got["class"] == [PredictionNames.known_to(dataset).meaning(one)["class"] for one in expected]
    assert told.endswith("; with words: age, hours per week, job -> predictions, class")


def test_booleans_in_the_graph_equal_booleans_in_python(tmp_path):
    rows = "".join(f"{member},{('high', 'low')[at % 5 % 2]}\n" for at, member in enumerate(["True", "False"] * 15))
    (tmp_path / "train.csv").write_text(f"member,income\n{rows}")
    config = TrainConfig(model="mlp", dataset="csv", data_dir=str(tmp_path), dataset_option=("label=income",))
    dataset, predictor, _ = exported(tmp_path, config)
    words = ["true", "True", "TRUE", "false", "False", "FALSE", "tRuE", ""]
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join(["member", *(f'"{word}"' for word in words)]))
    (batch,) = batches_of(dataset, rows, 10)
    got = served(tmp_path / "out", {"member": words})["predictions"]
    np.testing.assert_array_equal(got, predictor.predict(batch))
    assert len(np.unique(got[:6], axis=0)) == 2 and len(np.unique(got, axis=0)) == 3


@pytest.mark.parametrize("options", [(), ("columns=job:hash",)])
def test_line_ends_in_texts_are_read_as_in_files(tmp_path, options):
    jobs = ['"cook\nor nurse"', '"cook\r\nor clerk"', '"nurse\n\nor none"', '"no\rne"']
    rows = "".join(f"{job},{('high', 'low', 'none')[at % 5 % 3]}\n" for at, job in enumerate(jobs * 6))
    (tmp_path / "train.csv").write_text(f"job,income\n{rows}", newline="")
    config = TrainConfig(model="mlp", dataset="csv", data_dir=str(tmp_path), dataset_option=("label=income", *options))
    dataset, predictor, _ = exported(tmp_path, config)
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join(["job", *jobs, '"cook or nurse"', '""']), newline="")
    (batch,) = batches_of(dataset, rows, 10)
    texts = [*(job.strip('"') for job in jobs), "cook or nurse", ""]
    got = served(tmp_path / "out", {"job": texts})["predictions"]
    np.testing.assert_array_equal(got, predictor.predict(batch))
    np.testing.assert_array_equal(got[0], got[4])
    assert len(np.unique(got, axis=0)) == 5 and not dataset.unfamiliar.take()


def test_texts_that_make_no_table_are_named(tmp_path):
    exported(tmp_path, table_config(tmp_path))
    with serving(tmp_path / "out") as call:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)column .*'hours per week.*not a number.*forty"):
            call(COLUMNS | {"hours per week": ["?", "forty"]})
        for column in COLUMNS:
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"different numbers of texts \(age, hours per week, job\)"
            ):
                call(COLUMNS | {column: ["1"]})


def test_columns_whose_names_python_cannot_take_are_loaded_by_tensorflow_2(tmp_path):
    names = ["class", "a b", "a_b", "A-B", "self", "1st"]
    row = dict(zip(names, ["1", "2", "3", "4", "5", "6"], strict=True))
    table = "\n".join([",".join([*names, "kind"]), *(",".join([*row.values(), kind]) for kind in ("x", "y") * 10), ""])
    (tmp_path / "train.csv").write_text(table)
    config = TrainConfig(model="mlp", dataset="csv", data_dir=str(tmp_path), dataset_option=("label=kind",))
    exported(tmp_path, config)
    inputs = ["class_", "a b", "a_b_", "A-B__", "self_", "1st"]
    assert word_signature.input_names(names) == inputs
    with tf.Graph().as_default():
        signature = tf.compat.v2.saved_model.load(str(tmp_path / "out")).signatures["words"]
    assert len(signature.structured_input_signature[1]) == len(names)
    assert served(tmp_path / "out", {name: [str(at)] for at, name in enumerate(inputs)})["class"][0] in ("x", "y")


@pytest.mark.parametrize("unit", ["char", "word"])
def test_a_text_gives_what_follows_it(tmp_path, unit):
    words = random.Random(1).choices(["the", "cat", "sat", "on", "a", "mat"], k=600)
    (tmp_path / "train.txt").write_text(" ".join(words) + "\n")
    options = (f"unit={unit}", "context_length=6")
    config = TrainConfig(model="lstm_lm", dataset="text", data_dir=str(tmp_path), dataset_option=options)
    dataset, predictor, _ = exported(tmp_path, config)
    texts = ["the cat", "", "the cat sat on a mat the cat sat", "a wolf\nsat"]
    got = served(tmp_path / "out", {"text": texts})
    vocabulary = dataset.vocabulary
    begun = [f"\n{text}" for text in texts]
    separated = [list(text) if unit == "char" else text.replace("\n", " <eos> ").split() for text in begun]
    for text, following in zip(separated, got["next"], strict=True):
        ids = [vocabulary.tokens.index(one) if one in vocabulary.tokens else vocabulary.unknown for one in text][-6:]
        padded = np.array([(ids + [vocabulary.line_end] * 7)[:7]])
        places = predictor.predict({"ids": padded})[0]
        assert following == PredictionNames.known_to(dataset).meaning(places[len(ids) - 1])["text"]


def test_a_sentence_gives_its_translation(tmp_path):
    (tmp_path / "train.en").write_text("".join(f"{one}\n" for one in SENTENCES))
    (tmp_path / "train.zh").write_text("".join(f"{one[::-1]}\n" for one in SENTENCES))
    options = ("test_files=", "max_length=5", "test_every=5")
    sizes = ("num_layers=1", "dim=8", "num_heads=2", "hidden=8")
    config = TrainConfig(
        model="transformer", dataset="parallel_text", data_dir=str(tmp_path), dataset_option=options, model_option=sizes
    )
    dataset, predictor, _ = exported(tmp_path, config)
    (tmp_path / "lines").write_text("".join(f"{one}\n" for one in SENTENCES[:4]))
    (batch,) = batches_of(dataset, tmp_path / "lines", 10)
    expected = predictor.predict(batch)
    with serving(tmp_path / "out") as call:
        got = call({"line": SENTENCES[:4]})
        with pytest.raises(tf.errors.InvalidArgumentError, match="an empty line, or not text in UTF-8"):
            call({"line": ["a cat", ""]})
    np.testing.assert_array_equal(got["predictions"], expected)
    assert got["text"] == [PredictionNames.known_to(dataset).meaning(one)["text"] for one in expected]
