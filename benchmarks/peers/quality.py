"""The peers of `benchmarks.peer_quality`: scikit-learn, gensim and plain NumPy on the same examples.

    python -m benchmarks.peers.quality export breast_cancer FOLDER    # writes scikit-learn's table as CSV files
    python -m benchmarks.peers.quality PEER EXAMPLES.npz|FOLDER       # prints {"accuracy": …, "fit_secs": …}

It runs in a separate process, with the packages of a folder that `benchmarks.peer_quality` fills. So it imports
neither TensorFlow nor ps_trainer.
"""

from __future__ import annotations

import csv
import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]  # "train/<name>" and "test/<name>"
_SEED = 0
_ALS_ROUNDS, _ALS_PENALTY = 10, 2.0


def export(name: str, folder: pathlib.Path) -> None:
    """Writes a packaged table of scikit-learn as `train.csv` and `test.csv`, a quarter of the rows for testing."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    table = getattr(datasets, f"load_{name}")()
    labels = table.target_names[table.target]
    parts = train_test_split(table.data, labels, test_size=0.25, random_state=_SEED, stratify=labels)
    folder.mkdir(parents=True)
    for split, rows, words in (("train", parts[0], parts[2]), ("test", parts[1], parts[3])):
        with (folder / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{number}" for number in range(rows.shape[1])), "label"])
            writer.writerows([*row, word] for row, word in zip(rows.tolist(), words, strict=True))


def read(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an archive, or of a folder that `export` has written."""
    if path.is_file():
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}
    arrays = {}
    for split in ("train", "test"):
        with (path / f"{split}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        arrays[f"{split}/x"] = np.array([row[:-1] for row in rows], float)
        arrays[f"{split}/label"] = np.array([row[-1] for row in rows])
    return arrays


def logistic_regression(arrays: Arrays) -> dict[str, float]:
    """Fits scikit-learn's LogisticRegression to scaled features, images, or features given by ids and values."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if "train/ids" in arrays:
        return _classified(arrays, LogisticRegression(max_iter=1000), _sparse)
    if "train/image" in arrays:
        return _classified(arrays, LogisticRegression(max_iter=1000), _flat)
    return _classified(arrays, make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), _flat)


def mlp(arrays: Arrays) -> dict[str, float]:
    """Fits scikit-learn's MLPClassifier with a hidden layer of 128 to scaled features or images."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier((128,), max_iter=500, random_state=_SEED)
    return _classified(arrays, network if "train/image" in arrays else make_pipeline(StandardScaler(), network), _flat)


def support_vectors(arrays: Arrays) -> dict[str, float]:
    """Fits scikit-learn's SVC to images."""
    from sklearn.svm import SVC

    return _classified(arrays, SVC(), _flat)


def random_forest(arrays: Arrays) -> dict[str, float]:
    """Fits scikit-learn's RandomForestClassifier."""
    from sklearn.ensemble import RandomForestClassifier

    return _classified(arrays, RandomForestClassifier(300, n_jobs=2, random_state=_SEED), _flat)


def boosting(arrays: Arrays) -> dict[str, float]:
    """Fits scikit-learn's HistGradientBoostingClassifier to numbers and categories."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    def columns(arrays: Arrays, split: str) -> np.ndarray:
        return np.concatenate([arrays[f"{split}/dense"], arrays[f"{split}/ids"]], axis=1)

    return _classified(arrays, HistGradientBoostingClassifier(random_state=_SEED), columns)


def alternating_least_squares(arrays: Arrays) -> dict[str, float]:
    """Fits biases and 4 factors of users and items by alternating least squares in plain NumPy (Zhou et al. 2008)."""
    user, item, rating = (arrays[f"train/{name}"] for name in ("user", "item", "rating"))
    started = time.perf_counter()
    rng = np.random.default_rng(_SEED)
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


def gensim_word2vec(arrays: Arrays) -> dict[str, float]:
    """Trains gensim's Word2Vec, skip-gram with negative sampling, as many passes as ours makes."""
    from gensim.models import Word2Vec

    center, context = arrays["train/center"], arrays["train/context"]
    half = context.shape[1] // 2
    sentences = np.concatenate([context[:, :half], center[:, np.newaxis], context[:, half:]], axis=1).astype(str)
    epochs = max(1, round(64_000 / len(center)))
    started = time.perf_counter()
    model = Word2Vec(
        sentences.tolist(), vector_size=32, window=half, sg=1, negative=16, min_count=1, epochs=epochs, workers=2,
        alpha=0.1, seed=_SEED + 1,
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
    return arrays[f"{split}/x"]


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


PEERS: dict[str, Callable[[Arrays], dict[str, float]]] = {
    "logistic_regression": logistic_regression,
    "mlp": mlp,
    "support_vectors": support_vectors,
    "random_forest": random_forest,
    "boosting": boosting,
    "alternating_least_squares": alternating_least_squares,
    "gensim_word2vec": gensim_word2vec,
}

if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(sys.argv[2], pathlib.Path(sys.argv[3]))
    else:
        print(json.dumps(PEERS[sys.argv[1]](read(pathlib.Path(sys.argv[2])))))
