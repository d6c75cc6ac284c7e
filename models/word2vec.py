"""Word vectors: skip-gram and CBOW, trained with a sample of the words."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tensorflow.compat.v1 as tf

from . import layers

FORMS = ("skip_gram", "cbow")

BLOCK_WORDS = 8192
"""Words whose scores an evaluation computes at a time."""

NUM_SAMPLED, NEGATIVES = 64, 5
"""Size of the sample and the number of words that it counts for, where the user gives neither."""

_LOG_0 = -1e30


class Word2Vec:
    """Word vectors that predict a word's neighbours (skip-gram), or the word from its neighbours (CBOW).

    With u the rows of the table "input", v and b the rows of the table "output", and h = u[center] for skip-gram or the
    mean of u[context] for CBOW, the score of word w is s(w) = h . v[w] + b[w]. For each true word t (each context word
    for skip-gram, the center for CBOW) and `num_sampled` words n drawn for the whole batch, without those that equal t,
    the losses are

        negative_sampling   -log sigma(s(t)) - sum of log sigma(-s(n))
        nce                 the same with s(w) - log(expected number of w in the sample) in place of s(w)
        sampled_softmax     -log(exp s(t) / (exp s(t) + sum of exp s(n))), with the same

    With `negatives` = k, negative_sampling multiplies its sum by k / `num_sampled`. Then a true word weighs as much as
    with k words drawn for it alone, and a larger sample only makes their sum more exact. The default is a sample of 64
    words that counts for 5.

    A batch may also be runs of consecutive words, each with its own context. Skip-gram with negative_sampling or
    nce then computes all scores as products of matrices, without rows for each pair (`layers.pair_loss`). The loss of a
    batch is the mean over its pairs.

    Only the rows of a batch's words and of the sample travel, from both tables. The word vectors are the rows of
    "input". Evaluation computes the loss of the softmax over all words.

    Source: T. Mikolov et al., "Distributed Representations of Words and Phrases and their Compositionality", NIPS
    2013; M. Gutmann, A. Hyvärinen, "Noise-contrastive estimation", AISTATS 2010; S. Jean et al., "On Using Very Large
    Target Vocabulary for Neural Machine Translation", ACL 2015.

    Shape suffixes: B batch, W words around the center, T true words, D features, S sample, V vocabulary.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Word2Vec`."""

        vocab_size: int = layers.option(200, "number of different words; ids must be smaller", least=1)
        dim: int = layers.option(32, "features of a word", least=1)
        form: str = layers.option(
            "skip_gram", "skip_gram predicts neighbours from a word, cbow a word from its neighbours", choices=FORMS
        )
        loss: str = layers.option("negative_sampling", "loss of training", choices=layers.SAMPLED_LOSSES)
        num_sampled: int = layers.option(
            0, "number of words drawn for each batch; 0: 64, or all words of a smaller vocabulary", least=0
        )
        negatives: float = layers.option(
            0.0,
            "k, number of words that the sample counts for, with negative_sampling; 0: num_sampled if that is given,"
            " else 5",
            least=0,
        )
        window: int = layers.option(
            5, "largest number of words on each side, for batches of consecutive words", least=1
        )
        sampler: str = layers.option(
            "log_uniform",
            "distribution of the words drawn; log_uniform is for words numbered by decreasing frequency",
            choices=layers.SAMPLERS,
        )

        def __post_init__(self) -> None:
            if self.num_sampled > self.vocab_size:
                raise ValueError(f"num_sampled={self.num_sampled} exceeds vocab_size={self.vocab_size}")
            if self.negatives and self.loss != "negative_sampling":
                raise ValueError(f"negatives={self.negatives:g} is for loss=negative_sampling, got loss={self.loss}")

        @property
        def sample_size(self) -> int:
            """Number of words drawn for each batch."""
            return self.num_sampled or min(NUM_SAMPLED, self.vocab_size)

        @property
        def sample_weight(self) -> float:
            """Factor of the losses of the words drawn."""
            if self.loss != "negative_sampling" or (self.num_sampled and not self.negatives):
                return 1.0
            return (self.negatives or NEGATIVES) / self.sample_size

    # The gradient of a mean over some 10,000 pairs is small. The sum of its squares has to begin smaller still.
    defaults = layers.TrainingSettings(
        optimizer="adagrad",
        optimizer_option=("initial_accumulator_value=1e-8",),
        learning_rate=0.2,
        batch_size=64,
    )
    presets: ClassVar = {
        "paper": layers.Preset(
            model_option=("dim=300", "negatives=15", "window=5"),
            optimizer="adagrad",
            optimizer_option=("initial_accumulator_value=1e-8",),
            learning_rate=0.2,
            batch_size=64,
            source='T. Mikolov et al., "Distributed Representations of Words and Phrases", NIPS 2013, section 4.1',
            differences=(
                "the paper gives no rate and no batch size, draws words in proportion to their counts to the power"
                " 0.75, and thins frequent words by --dataset_option=subsample=1e-5"
            ),
        )
    }

    def __init__(self, options: Options):
        self.options = options

    def chance_loss(self) -> float | None:
        """Returns the loss of negative sampling where all scores are 0; None for the others, whose loss varies then."""
        if self.options.loss != "negative_sampling":
            return None
        return math.log(2) * (1 + self.options.sample_weight * self.options.sample_size)

    def build(self, batch: dict[str, tf.Tensor], *, training: bool) -> layers.ModelOutput:
        """Builds the graph of one batch.

        Args:
            batch: "center" int64 [B]; "context" int64 [B, W], the words around it. In training also "words" int64 [B,
                L], consecutive words, and "reach" int64 [B, L]. The reach of a word is the number of context words on
                each side, 0 for padding.
            training: Whether the loss uses a sample.

        Returns:
            Loss. In evaluation also the word with the largest cosine to the center, int64 [B], and "recovered", 1 if
            that word is in the context. This metric is for data whose test contexts are synonyms, or the most similar
            words by another measure.
        """
        if "words" in batch:
            return self._build_runs(batch["words"], batch["reach"])
        center_B, context_BW = batch["center"], batch["context"]
        if self.options.form == "cbow":
            h_BD = tf.reduce_mean(self._input(context_BW), axis=1)
            true_BT = center_B[:, tf.newaxis]
        else:
            h_BD = self._input(center_B)
            true_BT = context_BW
        if training:
            loss_B = tf.reduce_mean(layers.sampled_loss(h_BD, true_BT, self._output, **self._sampling), axis=1)
            return layers.ModelOutput(tf.reduce_mean(loss_B), center_B, {"log_loss": loss_B})
        loss_B = self._full_loss(h_BD, true_BT)
        nearest_B = self._nearest(center_B)
        is_recovered_B = tf.reduce_any(tf.equal(nearest_B[:, tf.newaxis], context_BW), axis=1)
        metrics = {"log_loss": loss_B, "recovered": tf.cast(is_recovered_B, tf.float32)}
        return layers.ModelOutput(tf.reduce_mean(loss_B), nearest_B, metrics)

    @property
    def _sampling(self) -> dict[str, Any]:
        options = self.options
        return {
            "vocab_size": options.vocab_size,
            "num_sampled": options.sample_size,
            "loss": options.loss,
            "sampler": options.sampler,
            "sample_weight": options.sample_weight,
        }

    def _build_runs(self, word_BL: tf.Tensor, reach_BL: tf.Tensor) -> layers.ModelOutput:
        """Builds the training loss of runs of consecutive words."""
        window = self.options.window
        if self.options.form == "skip_gram" and self.options.loss in layers.PAIR_LOSSES:
            sum_B, number_B = layers.pair_loss(word_BL, reach_BL, window, self._input, self._output, **self._sampling)
        else:
            context_BLP, is_context_BLP = layers.contexts(word_BL, reach_BL, window)
            weight_BLP = tf.cast(is_context_BLP, tf.float32)
            if self.options.form == "cbow":
                count_BL = tf.reduce_sum(weight_BLP, axis=2)
                total_BLD = tf.reduce_sum(self._input(context_BLP) * weight_BLP[..., tf.newaxis], axis=2)
                h_BLD = total_BLD / tf.maximum(count_BL, 1)[..., tf.newaxis]
                true_BLT, weight_BLT = word_BL[..., tf.newaxis], tf.minimum(count_BL, 1)[..., tf.newaxis]
            else:
                h_BLD, true_BLT, weight_BLT = self._input(word_BL), context_BLP, weight_BLP
            num_true = true_BLT.shape[-1]
            h_ND, true_NT = tf.reshape(h_BLD, [-1, self.options.dim]), tf.reshape(true_BLT, [-1, num_true])
            loss_NT = layers.sampled_loss(h_ND, true_NT, self._output, **self._sampling)
            sum_B = tf.reduce_sum(tf.reshape(loss_NT, tf.shape(weight_BLT)) * weight_BLT, axis=[1, 2])
            number_B = tf.reduce_sum(weight_BLT, axis=[1, 2])
        mean = tf.reduce_sum(sum_B) / tf.maximum(tf.reduce_sum(number_B), 1)
        first_B = tf.pad(word_BL, [[0, 0], [0, 1]])[:, 0]  # it may be that no word is left
        return layers.ModelOutput(mean, first_B, {"log_loss": sum_B / tf.maximum(number_B, 1)})

    def _input(self, ids: tf.Tensor) -> tf.Tensor:
        # The initial values of the authors' own program, word2vec.c.
        start = tf.random_uniform_initializer(-0.5 / self.options.dim, 0.5 / self.options.dim)
        return layers.embedding(
            "input", self.options.vocab_size, self.options.dim, ids, start, size_option="vocab_size"
        )

    def _output(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Looks up vectors and biases of words."""
        dim = self.options.dim
        # The bias is the last column of the same table, so that a word needs one row and one look-up.
        rows = layers.embedding(
            "output",
            self.options.vocab_size,
            dim + 1,
            ids,
            initializer=tf.random_normal_initializer(stddev=0.01),
            size_option="vocab_size",
        )
        # The gradient of a split joins its parts; the gradient of two slices pads both with zeros and adds them up.
        vectors, biases = tf.split(rows, [dim, 1], axis=-1)
        return vectors, tf.squeeze(biases, axis=-1)

    def _full_loss(self, h_BD: tf.Tensor, true_BT: tf.Tensor) -> tf.Tensor:
        vector_BTD, bias_BT = self._output(true_BT)
        true_logit_BT = tf.reduce_sum(h_BD[:, tf.newaxis] * vector_BTD, axis=2) + bias_BT

        def add(ids_N: tf.Tensor, log_sum_B: tf.Tensor) -> tuple[tf.Tensor]:
            vector_ND, bias_N = self._output(ids_N)
            log_sum_of_block_B = tf.reduce_logsumexp(tf.matmul(h_BD, vector_ND, transpose_b=True) + bias_N, axis=1)
            return (tf.reduce_logsumexp(tf.stack([log_sum_B, log_sum_of_block_B]), axis=0),)

        (log_sum_B,) = self._over_vocabulary(add, tf.fill(tf.shape(h_BD)[:1], _LOG_0))
        return tf.reduce_mean(log_sum_B[:, tf.newaxis] - true_logit_BT, axis=1)

    def _nearest(self, word_B: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope("", reuse=True):  # the table "input" is read for the loss as well
            vector_BD = tf.math.l2_normalize(self._input(word_B), axis=1)

        def choose(ids_N: tf.Tensor, best_B: tf.Tensor, nearest_B: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            vector_ND = tf.math.l2_normalize(self._input(ids_N), axis=1)
            cosine_BN = tf.matmul(vector_BD, vector_ND, transpose_b=True)
            itself_BN = tf.cast(tf.equal(word_B[:, tf.newaxis], ids_N), tf.float32)
            cosine_BN -= 10 * itself_BN  # a cosine is at most 1, so no word is nearest to itself
            best_of_block_B = tf.reduce_max(cosine_BN, axis=1)
            nearest_of_block_B = tf.gather(ids_N, tf.argmax(cosine_BN, axis=1))
            is_nearer_B = best_of_block_B > best_B
            return tf.maximum(best_B, best_of_block_B), tf.where(is_nearer_B, nearest_of_block_B, nearest_B)

        start = tf.fill(tf.shape(word_B), -100.0), tf.zeros_like(word_B)
        return self._over_vocabulary(choose, *start)[1]

    def _over_vocabulary(self, extend: Callable[..., tuple[tf.Tensor, ...]], *start: tf.Tensor) -> Sequence[tf.Tensor]:
        """Calls `extend(ids_N, *state)` for one block of all ids after the other; returns the last state.

        So the memory of an evaluation does not grow with the vocabulary: neither logits of all words nor a copy of a
        table ever exist.
        """
        size = self.options.vocab_size

        def one_block(at: tf.Tensor, *state: tf.Tensor) -> tuple[tf.Tensor, ...]:
            # The body of a loop must not create variables. They exist already.
            with tf.variable_scope("", reuse=True):
                return at + BLOCK_WORDS, *extend(tf.range(at, tf.minimum(at + BLOCK_WORDS, size)), *state)

        first = tf.constant(0, tf.int64)
        _, *state = tf.while_loop(lambda at, *_: at < size, one_block, (first, *start), parallel_iterations=1)
        return state
