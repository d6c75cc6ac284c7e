"""Word vectors: skip-gram and CBOW, trained against a sample of the words."""

from __future__ import annotations

import dataclasses

import tensorflow.compat.v1 as tf

from models import layers

FORMS = ("skip_gram", "cbow")


class Word2Vec:
    """Word vectors that tell a word's neighbours (skip-gram), or the word from them (CBOW).

    With u the rows of the table "input", v and b those of the table "output", and h = u[center] for skip-gram, the mean
    of u[context] for CBOW, the score of word w is s(w) = h . v[w] + b[w]. For each word t that is to be told (each
    context word; the centre) and `num_sampled` words n drawn for the whole batch, of which those equal to t are left
    out,

        negative_sampling   -log sigma(s(t)) - sum of log sigma(-s(n))
        nce                 the same with s(w) - log(expected number of w in the sample) in place of s(w)
        sampled_softmax     -log(exp s(t) / (exp s(t) + sum of exp s(n))), with the same

    Of both tables only the rows of the words of a batch and of the sample travel. The word vectors are the rows of
    "input". In evaluation the loss is that of the softmax over all words.

    Source: T. Mikolov et al., "Distributed Representations of Words and Phrases and their Compositionality", NIPS
    2013; M. Gutmann, A. Hyvärinen, "Noise-contrastive estimation", AISTATS 2010; S. Jean et al., "On Using Very Large
    Target Vocabulary for Neural Machine Translation", ACL 2015.

    Shape suffixes: B batch, W words around the centre, T words to be told, D features, S sample, V vocabulary.
    """

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `Word2Vec`; ValueError where one is out of range."""

        vocab_size: int = dataclasses.field(default=200, metadata={"help": "more than the largest number of a word"})
        dim: int = dataclasses.field(default=32, metadata={"help": "features of a word"})
        form: str = dataclasses.field(default="skip_gram", metadata={"help": "skip_gram or cbow"})
        loss: str = dataclasses.field(
            default="negative_sampling", metadata={"help": "negative_sampling, nce or sampled_softmax"}
        )
        num_sampled: int = dataclasses.field(default=16, metadata={"help": "words drawn for each batch"})
        sampler: str = dataclasses.field(
            default="log_uniform",
            metadata={"help": "log_uniform, where words are numbered from the most frequent one on; uniform"},
        )

        def __post_init__(self):
            for name in ("vocab_size", "dim", "num_sampled"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
            for name, known in (("form", FORMS), ("loss", layers.SAMPLED_LOSSES), ("sampler", layers.SAMPLERS)):
                if getattr(self, name) not in known:
                    raise ValueError(f"{name}={getattr(self, name)} must be one of {', '.join(known)}")
            if self.num_sampled > self.vocab_size:
                raise ValueError(f"num_sampled={self.num_sampled} exceeds vocab_size={self.vocab_size}")

    def __init__(self, options: Options):
        self.options = options

    def build(self, batch: dict[str, tf.Tensor], training: bool) -> layers.ModelOutput:
        """The graph of one batch.

        Args:
            batch: "center" int64 [B]; "context" int64 [B, W], the words around it.
            training: whether the loss is against a sample.

        Returns:
            Loss; in evaluation the word nearest to the centre by the cosine, int64 [B], and "recovered", 1 where it is
            in the context (of use where that is synonyms, or the most similar words by another measure).
        """
        center_B, context_BW = batch["center"], batch["context"]
        if self.options.form == "cbow":
            h_BD = tf.reduce_mean(self._input(context_BW), axis=1)
            told_BT = center_B[:, tf.newaxis]
        else:
            h_BD = self._input(center_B)
            told_BT = context_BW
        if training:
            loss_BT = layers.sampled_loss(
                h_BD,
                told_BT,
                self._output,
                vocab_size=self.options.vocab_size,
                num_sampled=self.options.num_sampled,
                loss=self.options.loss,
                sampler=self.options.sampler,
            )
            loss_B = tf.reduce_mean(loss_BT, axis=1)
            return layers.ModelOutput(tf.reduce_mean(loss_B), center_B, {"log_loss": loss_B})
        loss_B = self._full_loss(h_BD, told_BT)
        with tf.variable_scope("", reuse=True):
            nearest_B = self._nearest(center_B)
        is_recovered_B = tf.reduce_any(tf.equal(nearest_B[:, tf.newaxis], context_BW), axis=1)
        metrics = {"log_loss": loss_B, "recovered": tf.cast(is_recovered_B, tf.float32)}
        return layers.ModelOutput(tf.reduce_mean(loss_B), nearest_B, metrics)

    def _input(self, ids: tf.Tensor) -> tf.Tensor:
        start = tf.random_uniform_initializer(-0.5 / self.options.dim, 0.5 / self.options.dim)
        return layers.embedding("input", self.options.vocab_size, self.options.dim, ids, initializer=start)

    def _output(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Vectors and biases of words."""
        dim = self.options.dim
        rows = layers.embedding(
            "output", self.options.vocab_size, dim + 1, ids, initializer=tf.random_normal_initializer(stddev=0.01)
        )
        return rows[..., :dim], rows[..., dim]

    def _full_loss(self, h_BD: tf.Tensor, told_BT: tf.Tensor) -> tf.Tensor:
        vector_VD, bias_V = self._output(tf.range(self.options.vocab_size, dtype=tf.int64))
        log_share_BV = tf.nn.log_softmax(tf.matmul(h_BD, vector_VD, transpose_b=True) + bias_V)
        return -tf.reduce_mean(tf.gather(log_share_BV, told_BT, axis=1, batch_dims=1), axis=1)

    def _nearest(self, word_B: tf.Tensor) -> tf.Tensor:
        all_VD = tf.math.l2_normalize(self._input(tf.range(self.options.vocab_size, dtype=tf.int64)), axis=1)
        cosine_BV = tf.matmul(tf.gather(all_VD, word_B), all_VD, transpose_b=True)
        itself_BV = tf.one_hot(word_B, self.options.vocab_size)
        return tf.argmax(cosine_BV - 10 * itself_BV, axis=1)
