"""The REST API: TensorFlow Serving's forms, instances as lines, rows and files, errors, and newer checkpoints."""

from __future__ import annotations

import base64
import csv
import dataclasses
import http.client
import json
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import report, writer
from ps_trainer.config import TrainConfig
from ps_trainer.data.formats import transcript_list
from ps_trainer.errors import DataError
from ps_trainer.inference import line_reader, prediction, predictor, served_model
from ps_trainer.inference.http_server import ApiServer, RequestLimits
from ps_trainer.inference.rest_api import RestApi
from ps_trainer.inference.served_model import ServedModel
from ps_trainer.training import components as components_lib
from ps_trainer.training import one_process

BASE = "/v1/models/pets"


def save(folder, step, weight=9.0):
    values = {"weights": np.full([1, 1], weight, np.float32), "bias": np.zeros(1, np.float32)}
    writer.write(folder, step, values | {"global_step": np.int64(step)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table whose label is the sign of its only number, and a model that knows."""
    folder = tmp_path_factory.mktemp("pets")
    (folder / "train.csv").write_text("x,kind\n" + "".join(f"{x},{['cat', 'dog'][x > 0]}\n" for x in range(-9, 11)))
    save(folder / "checkpoints", 3)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    options = ("label=kind", "form=sparse")
    config = TrainConfig(model="logistic_regression", dataset="csv", dataset_option=options, data_dir=str(folder))
    return ServedModel(components_lib.load(config, num_workers=1), folder / "checkpoints", deadline_secs=60)


def ask(model, request, path=f"{BASE}:predict", method="POST"):
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    code, content = RestApi("pets", model).answer(method, path, body)
    return code, json.loads(json.dumps(content))


def test_status_and_metadata_name_the_step_and_the_signature(model):
    code, content = ask(model, b"", BASE, "GET")
    assert (code, content["model_version_status"][0]["version"]) == (200, "3")
    assert content["model_version_status"][0]["state"] == "AVAILABLE"
    code, content = ask(model, b"", f"{BASE}/versions/3/metadata", "GET")
    assert content["model_spec"] == {"name": "pets", "signature_name": "", "version": "3"}
    signature = content["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert set(signature["inputs"]) == {"ids", "values"}
    assert signature["inputs"]["ids"]["dtype"] == "DT_INT64"
    assert [dim["size"] for dim in signature["outputs"]["predictions"]["tensor_shape"]["dim"]] == ["-1"]
    assert content["metadata"]["classes"] == ["cat", "dog"]
    assert content["metadata"]["columns"] == ["x"]


def test_tensors_come_as_instances_or_as_inputs(model):
    rows = [{"ids": [0], "values": [-1.0]}, {"ids": [0], "values": [0.5]}]
    wanted = 1 / (1 + np.exp(-9 * np.array([-1.0, 0.5])))
    code, by_row = ask(model, {"instances": rows})
    np.testing.assert_allclose(by_row["predictions"], wanted, rtol=1e-5)
    _, by_column = ask(
        model, {"signature_name": "serving_default", "inputs": {"ids": [[0], [0]], "values": [[-1], [0.5]]}}
    )
    assert (code, by_column) == (200, {"outputs": by_row["predictions"]})


def test_lines_and_rows_get_what_predict_prints(model):
    _, labelled = ask(model, {"instances": ["-5,?", "8,?"]})
    assert [one["class"] for one in labelled["predictions"]] == ["cat", "dog"]
    assert ask(model, {"instances": ["-5", "8"]})[1] == labelled
    assert ask(model, {"instances": [{"x": -5}, {"x": 8}]})[1] == labelled


@pytest.mark.parametrize("kind_option", [(), ("columns=member:hash",)])
@pytest.mark.parametrize("words", [("true", "false"), ("True", "False"), ("true", "false", "maybe")])
def test_a_json_boolean_is_the_word_of_the_training(tmp_path, words, kind_option):
    rows = "".join(f"{word},{kind}\n" for word, kind in zip(words * 12, ("cat", "dog", "dog") * 12, strict=False))
    (tmp_path / "train.csv").write_text(f"member,kind\n{rows}")
    options = ("label=kind", "form=sparse", *kind_option)
    config = TrainConfig(model="logistic_regression", dataset="csv", dataset_option=options, data_dir=str(tmp_path))
    loaded = components_lib.load(config, num_workers=1)
    weights = np.linspace(0, 1, loaded.dataset.num_features, dtype=np.float32)[:, np.newaxis]
    values = {"weights": weights, "bias": np.zeros(1, np.float32), "global_step": np.int64(3)}
    writer.write(tmp_path / "checkpoints", 3, values)
    served = ServedModel(loaded, tmp_path / "checkpoints", deadline_secs=60)
    as_json = ask(served, {"instances": [{"member": True}, {"member": False}, {"member": None}]})
    assert as_json == ask(served, {"instances": [{"member": words[0]}, {"member": words[1]}, {"member": ""}]})
    assert len({one["prediction"] for one in as_json[1]["predictions"]}) == 3


def test_columns_as_inputs_get_columns_as_outputs(model):
    rows = ask(model, {"instances": [{"x": -5}, {"x": None}], "signature_name": ""})[1]["predictions"]
    outputs = {key: [row[key] for row in rows] for key in ("prediction", "class")}
    assert ask(model, {"inputs": {"x": [-5, None]}}) == (200, {"outputs": outputs})


def test_the_reader_of_rows_is_built_once(model, monkeypatch):
    built = []
    monkeypatch.setattr(line_reader, "_build", lambda *args, build=line_reader._build: built.append(1) or build(*args))
    monkeypatch.setattr(model, "_reader", line_reader.LineReader(model._dataset))
    answers = [ask(model, {"instances": [{"x": x}, {"x": -x}]})[1]["predictions"] for x in (4, -5)]
    assert [[one["class"] for one in rows] for rows in answers] == [["dog", "cat"], ["cat", "dog"]]
    assert len(built) == 1
    assert ask(model, {"instances": [{"kind": "?", "x": 4}]})[1]["predictions"] == answers[0][:1]
    assert len(built) == 1  # the label is left out
    assert ask(model, {"instances": ["4"]})[1]["predictions"] == answers[0][:1]
    assert len(built) == 2  # lines
    error = ask(model, {"instances": ["4", "a"]})[1]["error"]
    assert "instance 1: column 'x' holds numbers" in error and "--" not in error


@pytest.mark.parametrize("dataset", ["csv", "parquet"])
@pytest.mark.parametrize("kind", ["category", "hash"])
def test_a_word_of_a_table_may_have_line_ends_and_quotes(tmp_path, kind, dataset):
    words = ["two\nlines", "two\r\nlines", "two lines", 'a "quoted", one', ""]

    def write(name, columns):
        if dataset == "parquet":
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.table(columns), tmp_path / name)
            return
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])

    write(f"train.{dataset}", {"word": words * 8, "kind": ["cat", "dog"] * 20})
    options = ("label=kind", "form=sparse", f"columns=word:{kind}")
    config = TrainConfig(model="logistic_regression", dataset=dataset, dataset_option=options, data_dir=str(tmp_path))
    loaded = components_lib.load(config, num_workers=1)
    weights = np.linspace(-3, 3, loaded.dataset.num_features, dtype=np.float32)[:, np.newaxis]
    values = {"weights": weights, "bias": np.zeros(1, np.float32), "global_step": np.int64(3)}
    writer.write(tmp_path / "checkpoints", 3, values)
    write(f"new.{dataset}", {"word": words, "more": words})
    (wanted,) = prediction.predict(loaded, values, tmp_path / f"new.{dataset}")
    # In lines, a line end is a space.
    assert len(set(wanted.values.tolist())) == (len(words) if dataset == "parquet" else 3)
    served = ServedModel(loaded, tmp_path / "checkpoints", deadline_secs=60)
    code, content = ask(served, {"instances": [{"word": word} for word in words]})
    assert (code, content.get("error")) == (200, None)
    assert [one["prediction"] for one in content["predictions"]] == prediction.plain(wanted.values)


RATINGS = {
    "u.data": ["Ann\tHeat\t4", "Bob\tAlien, the film\t2", "Ann\tAlien, the film\t5"],
    "ratings.dat": ["Ann::Heat::4", "Bob::Alien, the film::2", "Ann::Alien, the film::5"],
    "ratings.csv": ["user,item,rating", "Ann,Heat,4", 'Bob,"Alien, the film",2', 'Ann,"Alien, the film",5'],
}


@pytest.fixture
def films(tmp_path):
    """Makes a served model of ratings in a file of a name; each pair of a user and an item has another prediction."""

    def create(file_name, *options):
        (tmp_path / file_name).write_text("\n".join(RATINGS[file_name]) + "\n")
        config = TrainConfig(
            model="matrix_factorization", dataset="movielens", dataset_option=options, data_dir=str(tmp_path)
        )
        loaded = components_lib.load(config, num_workers=1)
        one_process.train(dataclasses.replace(config, max_steps=1, batch_size=2, logdir=str(tmp_path / "run")))
        return ServedModel(loaded, tmp_path / "run/checkpoints", deadline_secs=60)

    return create


@pytest.mark.parametrize("file_name", RATINGS)
def test_a_user_and_an_item_may_come_by_their_names(films, file_name, caplog):
    served = films(file_name, "ids=text", "test_every=3")
    assert ask(served, b"", f"{BASE}/metadata", "GET")[1]["metadata"]["columns"] == ["user", "item"]
    rows = [{"user": "Ann", "item": "Alien, the film"}, {"user": " Bob", "item": "Heat", "rating": 3}]
    code, by_name = ask(served, {"instances": rows})
    assert (code, by_name.get("error")) == (200, None)
    numbers = [one["prediction"] for one in by_name["predictions"]]
    assert ask(served, {"instances": [{"user": 1, "item": 2}, {"user": 2, "item": 1}]})[1]["predictions"] == numbers
    line = RATINGS[file_name][-1].removesuffix("5").rstrip("\t:,")
    assert ask(served, {"instances": [line]})[1]["predictions"] == by_name["predictions"][:1]
    columns = {"user": ["Ann", "Bob"], "item": ["Alien, the film", "Heat"]}
    assert ask(served, {"inputs": columns})[1]["outputs"]["prediction"] == numbers
    assert "unlike" not in caplog.text
    assert ask(served, {"instances": [{"user": "Eve", "item": "Heat"}]})[0] == 200
    assert "users without a training line, read as unknown: 1 of 1 ('Eve')" in caplog.text
    for wrong, told in (
        ({"user": "Ann"}, "instance 0 has no 'item'; its columns: user"),
        ({"user": "Ann", "item": None}, "instance 0: column 'item' holds None; give a name"),
        ({"user": "Ann", "item": ""}, "instance 0: column 'item' holds ''; give a name"),
        ({"user": "Ann\n", "item": "Heat"}, "instance 0: column 'user' holds 'Ann\\n'; give a name"),
        ({"user": "Ann", "item": 1.5}, "instance 0: column 'item' holds 1.5; give a name"),
    ):
        code, content = ask(served, {"instances": [wrong]})
        assert (code, told in content["error"]) == (400, True), content
    assert ask(served, {"instances": [{"user": "\ud800", "item": "Heat"}]})[0] == 200  # half a character is unknown
    if file_name == "u.data":
        content = ask(served, {"instances": [{"user": "Ann\tHeat", "item": "3"}]})[1]
        assert "column 'user' holds 'Ann\\tHeat'; give a name" in content["error"]


def test_a_picture_comes_in_base64(tmp_path):
    kernel = np.zeros([64, 10], np.float32)
    kernel[:, 7] = 1
    values = {"logits/kernel": kernel, "logits/bias": np.zeros(10, np.float32), "global_step": np.int64(1)}
    writer.write(tmp_path, 1, values)
    served = ServedModel(
        components_lib.load(TrainConfig(model="softmax", dataset="digits"), num_workers=1), tmp_path, 60
    )
    with tf.Session() as session:
        picture = base64.b64encode(session.run(tf.io.encode_png(np.full((20, 20, 1), 255, np.uint8)))).decode()
    code, content = ask(served, {"instances": [{"b64": picture}]})
    assert (code, content["predictions"][0]["class"]) == (200, "7")
    code, content = ask(served, {"instances": [{"b64": "bm8="}]})
    assert (code, content["error"].startswith("instance 0: ")) == (400, True)
    assert "the file: cannot be decoded as an image" in content["error"]
    not_base64 = "'b64' must be the file's bytes in base64, as `base64 -w0 FILE` prints them; it is"
    for value in ("!!", "bm8", "é", 5, ["bm8="], None):
        code, content = ask(served, {"instances": [{"b64": picture}, {"b64": value}]})
        assert (code, content) == (400, {"error": f"instance 1: {not_base64} {value!r}"})
    for wrong in ("a", {"b46": picture}, {}):
        code, content = ask(served, {"instances": [wrong]})
        told = 'instance 0: dataset digits reads no lines; send files as {"b64": "…"}, or the tensors image'
        assert (code, content["error"]) == (400, told)
    dark = [[[0.0]] * 8] * 8
    for wrong in ([[1, 2]], [dark, [1, 2]], [dark, "a"], [dark, {"b64": picture}], [{"image": dark}, {"image": [1]}]):
        code, content = ask(served, {"instances": wrong})
        at = len(wrong) - 1
        assert code == 400 and content["error"].startswith(f"instance {at}: input 'image' "), content
        assert content["error"].endswith("; the model needs numbers of the shape [8, 8, 1]")
    code, content = ask(served, {"instances": [{"image": dark}, [dark]]})
    assert (code, content["error"]) == (400, "instance 1 must name the inputs image, as instance 0 does")


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """An untrained model of sounds, and a folder with one that is longer than those of the training."""
    folder = tmp_path_factory.mktemp("sounds")
    noise = np.random.RandomState(0).randint(-9999, 9999, 900).astype(np.int16)
    transcript_list.write(folder, "train", [noise[:200]] * 4, ["ab"] * 4, 1000)
    transcript_list.write(folder, "more", [noise], ["ab"], 1000)
    config = TrainConfig(
        model="speech", model_option=("units=4",), dataset="wav", data_dir=str(folder), logdir=str(folder / "run")
    )
    one_process.train(dataclasses.replace(config, max_steps=1, batch_size=2))
    return config, folder


def test_a_sound_may_be_longer_than_those_of_the_training(sounds):
    config, folder = sounds
    components = components_lib.load(config, 1)
    path, checkpoints = folder / "more/00000.wav", folder / "run/checkpoints"
    served = ServedModel(components, checkpoints, deadline_secs=60)
    code, content = ask(served, {"instances": [{"b64": base64.b64encode(path.read_bytes()).decode()}]})
    (alone,) = prediction.predict(components, report.find_checkpoint(checkpoints), path)
    assert (code, content.get("error")) == (200, None)
    assert content["predictions"][0]["prediction"] == [number for number in alone.values[0].tolist() if number >= 0]
    assert len(alone.values[0]) == 90


def test_a_warning_tells_what_requests_have_and_the_training_rows_lack_once_in_a_while(model, monkeypatch, caplog):
    now = [100.0]
    monkeypatch.setattr(served_model, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(model, "_next_warning", 0.0)
    model._dataset.unfamiliar.take()  # what other tests have sent

    def warnings():
        told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        caplog.clear()
        return told

    ask(model, {"instances": [{"x": 5}]})
    assert warnings() == []
    for _ in range(3):
        ask(model, {"instances": [{"x": 5}, {"x": 99}]})
    kind = "requests had input unlike the training data: numbers of column 'x' far outside of the training rows'"
    assert warnings() == [f"{kind} -8 to 10: 1 of 2 ('99')"]
    now[0] += served_model._WARNING_SECS
    ask(model, {"instances": [{"x": -99}]})
    assert warnings() == [f"{kind} -8 to 10: 3 of 5 ('99', '-99')"]


def test_texts_pictures_and_sounds_are_decoded_as_from_files_by_a_graph_that_is_kept(sounds, tmp_path, monkeypatch):
    (tmp_path / "train.txt").write_text("the cat eats the fish\n" * 9)
    by_word = {"dataset_option": ("unit=word", "context_length=4"), "data_dir": str(tmp_path)}
    configs = [TrainConfig(dataset="text", **by_word), TrainConfig(dataset="digits"), sounds[0]]
    with tf.Session() as session:
        for shade in (9, 99):
            picture = session.run(tf.io.encode_png(np.full((20, 30, 3), shade, np.uint8)))
            (tmp_path / f"{shade}.png").write_bytes(picture)
    (tmp_path / "a").write_text("the cat\r\neats a fish")
    (tmp_path / "b").write_text("the fish\n" * 500)  # more than one batch
    files = [
        [tmp_path / "a", tmp_path / "b"],
        [tmp_path / "9.png", tmp_path / "99.png"],
        sorted((sounds[1] / "train").glob("*.wav"))[:2],
    ]
    built = []
    monkeypatch.setattr(line_reader, "_build", lambda *args, build=line_reader._build: built.append(1) or build(*args))
    for number, (config, paths) in enumerate(zip(configs, files, strict=True), 1):
        dataset = components_lib._create_dataset(config)
        reader = line_reader.LineReader(dataset)
        for path in paths:
            found, wanted = list(reader.file_batches(path)), list(predictor.batches_of(dataset, path, 256))
            assert len(found) == len(wanted)
            for one, other in zip(found, wanted, strict=True):
                assert one.keys() == other.keys()
                for name in one:
                    np.testing.assert_array_equal(one[name], other[name])
                    assert one[name].dtype == other[name].dtype
        assert len(built) == number


def test_the_deadline_holds_for_all_files_of_a_request(sounds):
    config, folder = sounds
    sound = {"b64": base64.b64encode((folder / "train/00000.wav").read_bytes()).decode()}
    served = ServedModel(components_lib.load(config, 1), folder / "run/checkpoints", deadline_secs=60)
    served.predict_records([sound], served.loaded)
    served._deadline_secs = 0
    code, content = ask(served, {"instances": [sound] * 1000})
    assert (code, content["error"]) == (504, "the prediction took too long; send fewer instances")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (b"{", "the request is not JSON"),
        (b"[" * 100_000, "the request is not JSON"),
        ([], "must be a JSON object"),
        ({}, 'either "instances" or "inputs"'),
        ({"instances": []}, "at least one instance"),
        ({"instances": [1]}, "instance 0 must name the inputs: ids, values"),
        ({"signature_name": "other", "inputs": {}}, "the only one is 'serving_default'"),
        ({"inputs": {"ids": [[0]]}}, "the inputs are ids; the model needs ids, values"),
        (
            {"inputs": {"ids": [[0], [0.5]], "values": [[1], [1]]}},
            "instance 1: input 'ids' holds numbers that are not int64; the model needs numbers of the shape [",
        ),
        ({"inputs": {"ids": [[0], [1, 2]], "values": [[1]]}}, "instance 1: input 'ids' has the shape [2]; the model"),
        ({"inputs": {"ids": [[[0], [1, 2]]], "values": [[1]]}}, "instance 0: input 'ids' has rows of different length"),
        ({"inputs": {"ids": [["0"]], "values": [[1]]}}, "instance 0: input 'ids' holds something else than numbers"),
        ({"inputs": {"ids": [0], "values": [[1]]}}, "instance 0: input 'ids' has the shape []; the model needs"),
        ({"inputs": {"ids": 0, "values": [[1]]}}, "input 'ids' must be a list with an entry for each instance"),
        ({"inputs": {"ids": [[0], [0]], "values": [[1]]}}, "different numbers of examples"),
        (
            {"inputs": {"ids": [[0], [9999]], "values": [[1], [1]]}},
            "instance 1: 'ids' has the id 9999, and the trained model knows only the ids 0 to 0; correct the id",
        ),
        ({"instances": [{"ids": [-1], "values": [1]}]}, "instance 0: 'ids' has the id -1, and the trained model knows"),
        ({"instances": [{"ids": [0], "values": [1]}, {"ids": [0]}]}, "instance 1 must name the inputs ids, values, as"),
        (
            {"inputs": {"ids": [[0]], "values": [[1e300]]}},
            "instance 0: input 'values' holds numbers that are infinite as float32",
        ),
        ({"inputs": {"ids": [[0]], "values": [[np.nan]]}}, "not JSON, which has no NaN; send a finite number, or null"),
        ({"instances": [{"x": np.nan}]}, "the request is not JSON, which has no NaN; send a finite number, or null"),
        ({"instances": [{"x": np.inf}]}, "the request is not JSON, which has no Infinity; send"),
        ({"instances": [{"x": -np.inf}]}, "the request is not JSON, which has no -Infinity; send"),
        ({"inputs": {"x": [1], "z": []}}, "each column must be a list with a value for each example"),
        ({"inputs": {"x": 1}}, "each column must be a list with a value for each example; their sizes: {'x': 0}"),
        ({"inputs": {"y": [1]}}, "instance 0 lacks columns of the training files: x"),
        ({"inputs": {"x": [1, [2]]}}, "instance 1: column 'x' holds [2]; give one value"),
        ({"instances": [{"x": {"x": 1}}]}, "instance 0: column 'x' holds {'x': 1}; give one value"),
        (b'{"instances": [{"x": 1e400}]}', "instance 0: column 'x' holds numbers, but this value is 'inf'"),
        (b'{"instances": [{"x": %s}]}' % (b"9" * 400), "instance 0: column 'x' holds numbers, but this value is '999"),
        ({"inputs": {"x": [1, "a"]}}, "instance 1: column 'x' holds numbers, but this value is 'a'"),
        ({"instances": ["1", "2,3,4"]}, "instance 1 has 3 values, but there are 1 columns"),
        ({"instances": ["1", ""]}, "instance 1 is empty"),
        ({"instances": ["1", {"x": 1}]}, "some instances are rows with names and others are not; send them apart"),
        ({"instances": ["1\n2"]}, "instance 0 is not one line of text"),
        ({"instances": ["1", 2]}, "instance 1 is not a text; send a plain string"),
        ({"instances": [{"y": 1}]}, "instance 0 lacks columns of the training files: x"),
        ({"instances": [{"x": 1}, {"y": 1}]}, "instance 1 has other columns"),
        ({"instances": [{"b64": "bm8="}, "1"]}, "instance 1 is not a file in base64, and instance 0 is; send"),
        ({"instances": [{"x": 1}, {"b64": "bm8="}]}, "instance 1 is a file in base64, and instance 0 is not; send"),
    ],
)
def test_a_wrong_request_is_answered_with_400(model, request_, message):
    code, content = ask(model, request_)
    assert (code, message in content["error"]) == (400, True), content


def test_a_prediction_that_is_nan_names_its_instance(model):
    with pytest.raises(DataError, match=r"^instance 1: the prediction is NaN or infinite"):
        model.predict_tensors({"ids": [[0], [0]], "values": [[1], [np.nan]]}, model.loaded)


def test_parallel_clients_get_their_own_answers_with_wrong_requests_among_them(model):
    """Each client sends its rows, a wrong value in one of them, and no JSON, over one connection."""
    server = ApiServer("127.0.0.1", 0, RestApi("pets", model), RequestLimits(max_body_bytes=10_000, deadline_secs=60))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def ask_often(client):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        answers = []
        for turn in range(30):
            rows = [{"x": x} for x in (client - 2.5, -client, turn)]
            wrong = [*rows[:client], {"x": f"client {client}"}]
            for body in (json.dumps({"instances": rows}), json.dumps({"instances": wrong}), "{"):
                connection.request("POST", f"{BASE}:predict", body)
                response = connection.getresponse()
                answers.append((body, response.status, json.loads(response.read())))
        connection.close()
        return answers

    with ThreadPoolExecutor(4) as clients:
        found = list(clients.map(ask_often, range(4)))
    server.close(30)
    for client, answers in enumerate(found):
        assert len(answers) == 3 * 30
        for body, code, content in answers:
            assert (code, content) == ask(model, body.encode())
        errors = [content["error"] for _, code, content in answers if code == 400]
        assert len(errors) == 2 * 30 and f"instance {client}: column 'x' holds numbers, but" in errors[0]


@pytest.mark.parametrize("name", ["deepfm", "wide_deep"])
def test_an_id_that_a_column_does_not_have_is_named_with_its_instance(tmp_path, name):
    (tmp_path / "train.csv").write_text("city,job,kind\n" + "Oslo,cook,cat\nBonn,clerk,dog\n" * 20)
    options = {"dataset_option": ("label=kind", "form=columns"), "data_dir": str(tmp_path)}
    config = TrainConfig(model=name, dataset="csv", logdir=str(tmp_path / "run"), **options)
    one_process.train(dataclasses.replace(config, max_steps=1, batch_size=8))
    served = ServedModel(components_lib.load(config, 1), tmp_path / "run/checkpoints", deadline_secs=60)
    assert ask(served, {"inputs": {"dense": [[0]], "ids": [[2, 2]]}})[0] == 200
    code, content = ask(served, {"inputs": {"dense": [[0], [0]], "ids": [[2, 2], [3, 0]]}})
    problem = "instance 1: 'ids' has the id 3, and the trained model knows only the ids 0 to 2; correct the id"
    assert (code, problem in content["error"]) == (400, True), content


def test_unknown_paths_versions_and_methods(model):
    for path in ("/", "/v1/models/other", f"{BASE}/versions/4", f"{BASE}:classify"):
        assert ask(model, b"", path, "GET")[0] == 404
    assert ask(model, b"", f"{BASE}:predict", "GET")[0] == ask(model, b"", BASE, "POST")[0] == 405
    assert ask(model, b"", BASE, "DELETE")[0] == 405


def test_a_newer_checkpoint_is_loaded_and_a_damaged_one_is_not(model, folder):
    assert not model.reload_newer()
    before = model.loaded
    save(folder / "checkpoints", 5, weight=-9.0)
    assert model.reload_newer()
    assert [one["class"] for one in ask(model, {"instances": ["-5", "8"]})[1]["predictions"]] == ["dog", "cat"]
    # A request that began before keeps the older values.
    assert model.predict_records(["-5"], before)[0]["class"] == "cat"
    (folder / "checkpoints" / "model.ckpt-7.index").write_bytes(b"no")
    (folder / "checkpoints" / "model.ckpt-7.data-00000-of-00001").write_bytes(b"no")
    model.reload_newer()
    assert model.loaded.version == 5
