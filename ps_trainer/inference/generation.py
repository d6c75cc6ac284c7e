"""Text from a trained model: a language model continues a prompt by sampling, a translation model translates it.

A language model has a method `logits(ids_BT) -> logits_BTV`, whose result at a place does not depend on later ids. A
translation model has a method `translate(source_BS, length, beam_size=…, length_penalty=…) -> ids_BL`.
Vocabulary and checkpoint are enough; this module does not read the data of the run.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from ps_trainer import component_tables
from ps_trainer.checkpoints import report
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.frequency_vocabulary import LINE_END
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.data.pipeline.sequence_vocabulary import END, UNKNOWN, split
from ps_trainer.data.pipeline.unfamiliar_input import UnfamiliarInput
from ps_trainer.errors import OptionError, UsageError
from ps_trainer.training.plain_model import load_values, plain_scope


class Sampling(NamedTuple):
    """Settings of the draws of a language model.

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


class Search(NamedTuple):
    """Settings of the search for a translation.

    Attributes:
        beam_size: Number of hypotheses; None = the model's option.
        length_penalty: Exponent of the length penalty; None = the model's option.
        length: Most symbols of a translation; None = those of the training data, or twice the source and 10 more.
    """

    beam_size: int | None = None
    length_penalty: float | None = None
    length: int | None = None


def create_model(config: TrainConfig) -> Any:
    """Creates the model of a run.

    Raises:
        UsageError: There is an unknown name or a wrong option, or the model neither generates nor translates.
    """
    try:
        model = component_tables.MODELS.create(config.model, config.model_option)
    except ValueError as error:  # models know nothing of this package's errors
        raise OptionError(f"--model_option: {error}") from error
    if not hasattr(model, "logits") and not translates(model):
        raise UsageError(
            f"model {config.model!r} cannot generate text: it has no method `logits` or `translate`; give the --logdir"
            " of a run of gpt or lstm_lm on text, or of transformer"
        )
    return model


def translates(model: Any) -> bool:
    """Returns whether a model translates its prompt instead of continuing from it."""
    return hasattr(model, "translate")


def translate(config: TrainConfig, checkpoint_dir: pathlib.Path, model: Any, source: str, search: Search) -> str:
    """Returns the translation of a text, found by beam search.

    Raises:
        CheckpointError: There is no checkpoint, or it does not fit the model.
        DataError: `vocabulary.json` is missing or damaged.
        UsageError: The run has no languages, or the text is empty.
    """
    words = recorded_words.read(checkpoint_dir.parent)
    if not {"source", "target"} <= set(words):
        raise UsageError(f"dataset {config.dataset!r} has no languages; train on --dataset=parallel_text or numbers")
    options = component_tables.DATASETS.parse_options(config.dataset, config.dataset_option)
    ids = encode_source(words["source"], source)
    if len(ids) == 1:
        raise UsageError("--prompt is empty; give the text to translate")
    longest = getattr(options, "max_length", 2 * len(ids) + 10)
    if len(ids) > longest:
        logging.warning(
            "the prompt has %d words or characters, and the training texts had at most %d, so the translation may be"
            " poor; translate parts of the prompt",
            len(ids) - 1,
            longest - 1,
        )
    length = search.length or longest
    checkpoint = report.find_checkpoint(checkpoint_dir)
    with tf.Graph().as_default() as graph:
        with plain_scope():
            best_BL = model.translate(
                tf.constant([ids], tf.int64), length, beam_size=search.beam_size, length_penalty=search.length_penalty
            )
        variables = tf.global_variables()
        init_op = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
    with tf.Session(graph=graph) as session:
        load_values(session, variables, checkpoint)
        session.run(init_op)
        return words["target"].text_of(session.run(best_BL)[0].tolist())


def encode_source(words: RecordedWords, text: str) -> list[int]:
    """Returns the ids of a text and its end; warns about words that the vocabulary lacks."""
    tokens = [token.decode() for token in split(text.encode(), words.unit)]
    return [*_numbers_of(words, tokens, UNKNOWN), END]


def generate(
    config: TrainConfig, checkpoint_dir: pathlib.Path, model: Any, prompt: str, sampling: Sampling
) -> Iterator[str]:
    """Yields the text after a prompt, token by token.

    A line end stands before the prompt, as in training before the text. The model sees as many of the last tokens as
    a training example has.

    Raises:
        CheckpointError: There is no checkpoint, or it does not fit the model.
        DataError: `vocabulary.json` is missing or damaged.
        UsageError: The dataset of the run is not text.
    """
    words = recorded_words.read(checkpoint_dir.parent).get("text")
    context = getattr(
        component_tables.DATASETS.parse_options(config.dataset, config.dataset_option), "context_length", 0
    )
    if words is None or not context:
        raise UsageError(
            f"dataset {config.dataset!r} has no text that a prompt could continue; train on --dataset=text"
        )
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
            yield text_of_token(words, ids[-1], is_first=not number and not prompt)


def encode(words: RecordedWords, prompt: str) -> list[int]:
    """Returns the ids of a line end and the prompt; warns about words that the vocabulary lacks."""
    end = LINE_END[words.unit]
    tokens = [end, *(prompt if words.unit == "char" else prompt.replace("\n", f" {end} ").split())]
    unknown = next((words.tokens.index(one) for one in ("<unk>", "\ufffd") if one in words.tokens), 0)
    return _numbers_of(words, tokens, unknown)


def _numbers_of(words: RecordedWords, tokens: Sequence[str], unknown: int) -> list[int]:
    numbers = {token: number for number, token in enumerate(words.tokens)}
    unfamiliar = UnfamiliarInput()
    unfamiliar.add_tokens(words.unit, Counter(tokens), numbers)
    if told := unfamiliar.take():
        logging.warning("%s", told)
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


def text_of_token(words: RecordedWords, number: int, *, is_first: bool) -> str:
    """Returns the text of a token, with the space before it if it is a word."""
    token = words.tokens[number]
    if words.unit == "char":
        return token
    return "\n" if token == LINE_END["word"] else f"{'' if is_first else ' '}{token}"
