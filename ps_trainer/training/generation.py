"""Text from a trained language model: the model predicts the next token, and a draw from its distribution goes on.

The model needs a method `logits(ids_BT) -> logits_BTV`, whose result at a place does not depend on later ids.
Vocabulary and checkpoint are enough; this module does not read the data of the run.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer import component_tables
from ps_trainer.checkpoints import report
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.frequency_vocabulary import LINE_END
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import OptionError, UsageError
from ps_trainer.training.evaluation import load_values, plain_scope


class Sampling(NamedTuple):
    """How to draw the next token.

    Attributes:
        temperature: Divisor of the logits; 0 takes the most probable token always.
        top_k: Number of most probable tokens to draw from; None = all.
        length: Number of tokens to generate.
        seed: Seed of the draws.
    """

    temperature: float = 1.0
    top_k: int | None = None
    length: int = 200
    seed: int = 0


def generate(config: TrainConfig, checkpoint_dir: pathlib.Path, prompt: str, sampling: Sampling) -> Iterator[str]:
    """Yields the text after a prompt, token by token.

    A line end stands before the prompt, as in training before the text. The model sees as many of the last tokens as
    a training example has.

    Raises:
        CheckpointError: There is no checkpoint, or it does not fit the model.
        DataError: `vocabulary.json` is missing or damaged.
        UsageError: The model cannot generate text, or an option is wrong.
    """
    try:
        model = component_tables.MODELS.create(config.model, config.model_option)
    except ValueError as error:  # models know nothing of this package's errors
        raise OptionError(f"--model_option: {error}") from error
    if not hasattr(model, "logits"):
        raise UsageError(
            f"model {config.model!r} cannot generate text: it has no method `logits`; give the --logdir of a run of gpt"
            " or lstm_lm on text"
        )
    words = recorded_words.read(checkpoint_dir.parent).get("text")
    context = getattr(
        component_tables.DATASETS.parse_options(config.dataset, config.dataset_option), "context_length", 0
    )
    if words is None or not context:
        raise UsageError(f"dataset {config.dataset!r} has no running text to go on from; train on --dataset=text")
    ids = encode(words, prompt)
    checkpoint = report.find_checkpoint(checkpoint_dir)
    with tf.Graph().as_default() as graph:
        ids_BT = tf.placeholder(tf.int64, [1, context], "ids")
        with plain_scope():
            logits_TV = model.logits(ids_BT)[0]
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
    generator = np.random.default_rng(sampling.seed)
    with tf.Session(graph=graph) as session:
        load_values(session, variables, checkpoint)
        session.run(init_op)
        for number in range(sampling.length):
            seen = ids[-context:]
            padded = [*seen, *[0] * (context - len(seen))]
            logits_v = session.run(logits_TV, {ids_BT: [padded]})
            ids.append(draw(logits_v[len(seen) - 1], words, sampling, generator))
            yield decoded(words, ids[-1], is_first=not number and not prompt)


def encode(words: RecordedWords, prompt: str) -> list[int]:
    """Returns the ids of a line end and the prompt; warns about words that the vocabulary lacks."""
    end = LINE_END[words.unit]
    tokens = [end, *(prompt if words.unit == "char" else prompt.replace("\n", f" {end} ").split())]
    numbers = {token: number for number, token in enumerate(words.tokens)}
    unknown = next((numbers[one] for one in ("<unk>", "\ufffd") if one in numbers), 0)
    missing = sorted({token for token in tokens if token not in numbers})
    if missing:
        logging.warning(
            "the vocabulary lacks %s; the model reads the unknown token instead", ", ".join(map(repr, missing))
        )
    return [numbers.get(token, unknown) for token in tokens]


def draw(logits_V: np.ndarray, words: RecordedWords, sampling: Sampling, generator: np.random.Generator) -> int:
    """Draws an id of a known token; the model may have more ids than the vocabulary."""
    logits = np.full(len(logits_V), -np.inf)
    logits[: len(words.tokens)] = logits_V[: len(words.tokens)]
    logits[[words.tokens.index(one) for one in words.special if one != LINE_END["word"]]] = -np.inf
    if sampling.temperature == 0:
        return int(np.argmax(logits))
    if sampling.top_k is not None and sampling.top_k < len(logits):
        best = np.argsort(-logits, kind="stable")[: sampling.top_k]
        kept = np.full(len(logits), -np.inf)
        kept[best] = logits[best]
        logits = kept
    shares = np.exp((logits - logits.max()) / sampling.temperature)
    return int(generator.choice(len(shares), p=shares / shares.sum()))


def decoded(words: RecordedWords, number: int, *, is_first: bool) -> str:
    """Returns the text of a token, with the space before it if it is a word."""
    token = words.tokens[number]
    if words.unit == "char":
        return token
    return "\n" if token == LINE_END["word"] else f"{'' if is_first else ' '}{token}"
