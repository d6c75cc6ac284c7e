"""Names for predictions: the most probable class, or the text that predicted ids stand for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ps_trainer.data.pipeline import recorded_words
from ps_trainer.data.pipeline.recorded_words import RecordedWords


class PredictionNames(NamedTuple):
    """The names that a dataset knows.

    Attributes:
        classes: Names of the classes that the model tells apart; empty if they have none.
        words: Words or characters that integer predictions number; None if they number none.
    """

    classes: tuple[str, ...] = ()
    words: RecordedWords | None = None

    @classmethod
    def known_to(cls, dataset: Any) -> PredictionNames:
        """Returns the names that a dataset knows."""
        words = recorded_words.predicted_words(recorded_words.vocabularies_of(dataset))
        return cls(getattr(dataset, "class_names", None) or (), words)

    def meaning(self, prediction: Any) -> dict[str, str]:
        """Returns a prediction in words: its "text", or the most probable "class"; empty if neither is known."""
        num_dims = np.ndim(prediction)
        if self.words is not None and _are_ids(prediction):
            return {"text": self.words.text_of(np.atleast_1d(prediction).tolist())}
        if not self.are_classes(prediction):
            return {}
        number = int(prediction > 0.5) if num_dims == 0 else int(np.argmax(prediction))
        # A model may have more classes than the data; it learns that the others do not occur.
        return {"class": self.classes[number] if number < len(self.classes) else ""}

    def without_padding(self, prediction: Any) -> Any:
        """Returns the ids of a text up to its padding, which is negative; any other prediction as it is."""
        if self.words is None or not _are_ids(prediction) or np.ndim(prediction) == 0:
            return prediction
        return prediction[np.logical_and.accumulate(prediction >= 0)]

    def are_classes(self, prediction: Any) -> bool:
        """Returns whether a prediction is a number for each class in order, or the one of the second of two."""
        kind, num_dims = getattr(prediction, "dtype", np.dtype(object)).kind, np.ndim(prediction)
        is_of_second = num_dims == 0 and len(self.classes) == 2
        is_of_classes = num_dims == 1 and len(prediction) >= len(self.classes) > 0
        return kind == "f" and (is_of_second or is_of_classes)

    def columns(self, prediction: Any) -> list[str]:
        """Returns a name for each number of a prediction, in row-major order: `prediction_` and its class or place."""
        if np.ndim(prediction) == 0:
            return [f"prediction_{self.classes[1]}" if self.are_classes(prediction) else "prediction"]
        names = self.classes if self.are_classes(prediction) else ()
        return [f"prediction_{names[i] if i < len(names) else i}" for i in range(np.size(prediction))]


def _are_ids(prediction: Any) -> bool:
    """Returns whether a prediction is an integer or a list of them."""
    return getattr(prediction, "dtype", np.dtype(object)).kind in "iu" and np.ndim(prediction) <= 1
