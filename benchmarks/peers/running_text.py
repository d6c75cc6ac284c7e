"""The peer of `benchmarks.running_text`: gensim's Word2Vec on a text file.

    python -m benchmarks.peers.running_text TEXT OUT.npz '{"dim": 100, …}'    # prints {"words": …, "fit_secs": …}

It runs in a separate process, with the packages of a folder that `benchmarks.running_text` fills. So it imports
neither TensorFlow nor ps_trainer.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import Any

import numpy as np


def train(text: pathlib.Path, out: pathlib.Path, settings: dict[str, Any]) -> dict[str, float]:
    """Trains skip-gram with negative sampling on 2 threads, once from an iterator and once from the file.

    Args:
        text: UTF-8, words separated by white space.
        out: Archive to write: "words", and their "vectors" of the training from an iterator.
        settings: "dim", "window", "negatives", "subsample", "max_vocab", "epochs" and "seed".

    Returns:
        "words" read in all passes; seconds of both trainings without the pass that counts the words, "fit_secs" and
        "fit_file_secs"; processor time of the first, "fit_cpu_secs".
    """
    from gensim.models import Word2Vec
    from gensim.models.word2vec import LineSentence

    figures = {}
    for name, data in (
        ("fit_file_secs", {"corpus_file": str(text)}),
        ("fit_secs", {"corpus_iterable": LineSentence(text)}),
    ):
        model = Word2Vec(
            vector_size=settings["dim"], window=settings["window"], sg=1, negative=settings["negatives"],
            sample=settings["subsample"], min_count=1, max_final_vocab=settings["max_vocab"], workers=2,
            epochs=settings["epochs"], seed=settings["seed"] + 1,
        )  # fmt: skip
        model.build_vocab(**data)
        started, cpu_started = time.perf_counter(), time.process_time()
        counts = {"total_examples": model.corpus_count, "total_words": model.corpus_total_words}
        model.train(**data, **counts, epochs=model.epochs)
        figures[name] = time.perf_counter() - started
        figures["fit_cpu_secs"] = time.process_time() - cpu_started  # the last training counts
    np.savez(out, words=np.array(model.wv.index_to_key), vectors=model.wv.vectors)
    return figures | {"words": float(model.corpus_total_words * model.epochs)}


if __name__ == "__main__":
    print(json.dumps(train(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), json.loads(sys.argv[3]))))
