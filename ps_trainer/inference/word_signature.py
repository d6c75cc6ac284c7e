"""Builds the ops from predictions to words, for programs without this package.

`prediction_names.py` computes the same in Python.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable

import tensorflow.compat.v1 as tf

from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.inference.prediction_names import PredictionNames

CLASS, TEXT, NEXT = "class", "text", "next"
"""Outputs: the most probable class, the text of the predicted ids, the word or character after a text."""


def input_names(columns: Iterable[str]) -> list[str]:
    """Returns a name of an input for each column, with which TensorFlow can load the signature.

    TensorFlow makes each input a parameter of a Python function. A name that would become a word of Python, `self` or
    the parameter of another column gets one or more "_" at its end.
    """
    taken = {"self"}
    names = []
    for name in columns:
        while keyword.iskeyword(parameter := _parameter(name)) or parameter in taken:
            name += "_"
        taken.add(parameter)
        names.append(name)
    return names


def _parameter(name: str) -> str:
    """Returns what TensorFlow makes of an input's name: lower case, with "_" for all but letters and digits."""
    text = "".join(character if character.isalnum() else "_" for character in name.lower())
    return text if text[:1].isalpha() else f"arg_{text}"


def outputs(names: PredictionNames, predictions: tf.Tensor, num_places_B: tf.Tensor | None) -> dict[str, tf.Tensor]:
    """Builds the words of some predictions.

    Args:
        names: Names that the dataset knows.
        predictions: Predictions, [B, ...].
        num_places_B: int64 [B], number of ids of each text, if the model predicts what follows each of them.

    Returns:
        One of `CLASS`, `TEXT` and `NEXT`, string [B], by its name; empty if the dataset knows no names for the
        predictions.
    """
    rank = predictions.shape.rank
    if predictions.dtype.is_integer and names.words is not None and rank in (1, 2):
        ids_BT = predictions if rank == 2 else predictions[:, tf.newaxis]
        if num_places_B is None:
            return {TEXT: text_of(names.words, ids_BT)}
        last_B = num_places_B - 1
        return {NEXT: text_of(names.words, tf.gather(ids_BT, last_B[:, tf.newaxis], batch_dims=1))}
    if not predictions.dtype.is_floating or not names.classes:
        return {}
    if rank == 1 and len(names.classes) == 2:
        number_B = tf.cast(predictions > 0.5, tf.int64)
    elif rank == 2 and int(predictions.shape[1]) >= len(names.classes):
        number_B = tf.argmax(predictions, axis=1)
    else:
        return {}
    # A model may have more classes than the data; it learns that the others do not occur.
    known = tf.constant([*names.classes, ""])
    return {CLASS: tf.gather(known, tf.minimum(number_B, len(names.classes)))}


def text_of(words: RecordedWords, ids_BT: tf.Tensor) -> tf.Tensor:
    """Builds the ops of `RecordedWords.text_of` for a batch of ids, int [B, T]; returns string [B]."""
    shown = words.shown_tokens
    is_end_BT = ids_BT < 0
    for end in words.end_ids:
        is_end_BT |= tf.equal(ids_BT, end)
    is_kept_BT = tf.equal(tf.cumsum(tf.cast(is_end_BT, tf.int32), axis=1), 0)
    # The last one stands for ids above the vocabulary.
    token_BT = tf.gather(tf.constant(shown), tf.clip_by_value(ids_BT, 0, len(shown) - 1))
    token_BT = tf.ragged.boolean_mask(token_BT, is_kept_BT)
    if words.unit == "char":
        return tf.strings.reduce_join(token_BT, axis=1)
    text_B = tf.strings.reduce_join(token_BT, axis=1, separator=" ")
    return tf.strings.regex_replace(tf.strings.regex_replace(text_B, " \n", "\n"), "\n ", "\n")
