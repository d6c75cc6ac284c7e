"""The model word2vec on runs of consecutive words: losses, gradients, and batches without words."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from models.layers import running_text
from models.word2vec import Word2Vec

RUNS = [[0, 2, 5, 3, 2, 1, 0], [4, 2, 4, 0, 0, 0, 0]]
REACH = [[1, 2, 3, 1, 2, 2, 1], [2, 1, 2, 0, 0, 0, 0]]  # 0: padding; 3: more than the window


def pairs_of_runs(window):
    """(example, word, its context) as the definition says."""
    for b, (words, reach) in enumerate(zip(RUNS, REACH, strict=True)):
        for i, word in enumerate(words):
            near = range(max(0, i - min(reach[i], window)), min(len(words), i + min(reach[i], window) + 1))
            context = [words[j] for j in near if j != i and reach[j]]
            if reach[i] and context:
                yield b, word, context


LOSSES = ("negative_sampling", "weighted", "nce", "sampled_softmax")
CASES = [
    *(("skip_gram", loss, 32) for loss in LOSSES),
    *(("cbow", loss, 32) for loss in LOSSES),
    *(("skip_gram", loss, 1) for loss in LOSSES[:3]),  # several products, each of a few words
]


@pytest.mark.parametrize(("form", "loss", "block"), CASES)
def test_loss_and_gradients_equal_numpy(form, loss, block, monkeypatch):
    monkeypatch.setattr(running_text, "BLOCK", block)
    random = np.random.RandomState(0)
    vocab_size, dim, weight = 6, 3, 0.5 if loss == "weighted" else 1.0
    words = random.normal(size=(vocab_size, dim))
    output_rows = random.normal(size=(vocab_size, dim + 1))
    kind = "negative_sampling" if loss == "weighted" else loss
    options = Word2Vec.Options(
        vocab_size=vocab_size, dim=dim, form=form, loss=kind, num_sampled=4, sampler="uniform", window=2,
        negatives=2 if loss == "weighted" else 0,
    )  # fmt: skip
    with tf.Graph().as_default() as graph:
        batch = {"words": tf.constant(RUNS, tf.int64), "reach": tf.constant(REACH, tf.int64)}
        built = Word2Vec(options).build(batch, training=True)
        (sampler,) = [op for op in graph.get_operations() if op.type == "UniformCandidateSampler"]
        gradients = [tf.convert_to_tensor(slope) for slope in tf.gradients(built.loss, tf.global_variables())]
        names = [variable.op.name for variable in tf.global_variables()]
        values = {"input": words, "output": output_rows}
        with tf.Session() as session:
            for variable in tf.global_variables():
                variable.load(values[variable.op.name], session)
            output, slopes, (sample, _, expected) = session.run([built, gradients, list(sampler.outputs)])
    expected_of_all = expected[0]  # the sampler is uniform
    correction = 0.0 if kind == "negative_sampling" else np.log(expected_of_all)

    def sums(words, output_rows):
        scores_of, found = output_rows[:, :dim], [[], []]
        for b, word, context in pairs_of_runs(2):
            h = [words[context].mean(axis=0)] if form == "cbow" else [words[word]] * len(context)
            for h_of, true in zip(h, [word] if form == "cbow" else context, strict=True):
                s = scores_of @ h_of + output_rows[:, dim] - correction
                wrong = s[sample[sample != true]]
                if kind == "sampled_softmax":
                    found[b].append(np.log(np.exp(s[true]) + np.exp(wrong).sum()) - s[true])
                else:
                    found[b].append(np.log1p(np.exp(-s[true])) + weight * np.log1p(np.exp(wrong)).sum())
        return found

    found = sums(words, output_rows)
    np.testing.assert_allclose(output.metrics["log_loss"], [np.mean(of) for of in found], rtol=1e-4)
    np.testing.assert_allclose(output.loss, np.mean(sum(found, [])), rtol=1e-4)
    for name, slope in zip(names, slopes, strict=True):
        for at in np.ndindex(slope.shape):
            moved = {key: value.copy() for key, value in values.items()}
            around = []
            for step in (1e-5, -1e-5):
                moved[name][at] = values[name][at] + step
                around.append(np.mean(sum(sums(moved["input"], moved["output"]), [])))
            assert slope[at] == pytest.approx((around[0] - around[1]) / 2e-5, rel=1e-2, abs=1e-4)


def test_a_batch_whose_words_are_all_thinned_has_the_loss_0():
    with tf.Graph().as_default():
        batch = {name: tf.zeros([2, 0], tf.int64) for name in ("words", "reach")}
        options = Word2Vec.Options(vocab_size=6, dim=3, num_sampled=4)
        loss = Word2Vec(options).build(batch, training=True).loss
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            assert session.run(loss) == 0


def test_the_weight_of_the_sample_is_for_one_loss():
    with pytest.raises(ValueError, match="negatives=5 is for loss=negative_sampling, got loss=nce"):
        Word2Vec.Options(loss="nce", negatives=5)


@pytest.mark.parametrize(
    ("options", "size", "weight"),
    [
        ({"vocab_size": 500}, 64, 5 / 64),
        ({"vocab_size": 40}, 40, 5 / 40),
        ({"vocab_size": 500, "num_sampled": 16}, 16, 1),
        ({"vocab_size": 500, "num_sampled": 16, "negatives": 4}, 16, 4 / 16),
        ({"vocab_size": 500, "negatives": 4}, 64, 4 / 64),
        ({"vocab_size": 500, "loss": "nce"}, 64, 1),
    ],
)
def test_the_sample_has_a_size_and_a_weight_without_options(options, size, weight):
    options = Word2Vec.Options(**options)
    assert (options.sample_size, options.sample_weight) == (size, weight)
