"""Counts what examples to predict for hold and the training data did not: words, categories, far-away numbers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Container, Mapping

_MAX_SHOWN = 5
_SHOWN_CHARACTERS = 30


class UnfamiliarInput:
    """Counts per kind of value, with the first different values of each kind. Threads may share it.

    A model computes a prediction for such values, too, so nothing else tells the user about them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}

    def add(self, kind: str, values: Mapping[str, int], num_values: int) -> None:
        """Adds unfamiliar values.

        Args:
            kind: What the values are, and what the model makes of them.
            values: Occurrences of each unfamiliar value.
            num_values: Number of values that were looked at, the familiar ones included.
        """
        with self._lock:
            counted = self._kinds.setdefault(kind, _Kind())
            counted.num_values += num_values
            counted.num_unfamiliar += sum(values.values())
            counted.shown = list(dict.fromkeys([*counted.shown, *values]))[:_MAX_SHOWN]

    def add_tokens(self, unit: str, counts: Counter[str], known: Container[str]) -> None:
        """Adds the tokens of a text that a vocabulary lacks.

        Args:
            unit: Kind of the tokens, "char" or "word".
            counts: Occurrences of each token of the text.
            known: Tokens of the vocabulary.
        """
        unknown = {token: number for token, number in counts.most_common() if token not in known}
        self.add(f"{unit}s that the vocabulary lacks, read as unknown", unknown, counts.total())

    def take(self) -> str:
        """Returns a sentence about what was added since the last call; empty if nothing was unfamiliar."""
        with self._lock:
            kinds, self._kinds = self._kinds, {}
        told = [f"{kind}: {counted}" for kind, counted in kinds.items() if counted.num_unfamiliar]
        return f"input unlike the training data: {'; '.join(told)}" if told else ""


class _Kind:
    """Numbers of the values of a kind, and the first different unfamiliar ones."""

    def __init__(self) -> None:
        self.num_values = self.num_unfamiliar = 0
        self.shown: list[str] = []

    def __str__(self) -> str:
        short = (one if len(one) <= _SHOWN_CHARACTERS else f"{one[:_SHOWN_CHARACTERS]}…" for one in self.shown)
        more = ", …" if self.num_unfamiliar > len(self.shown) == _MAX_SHOWN else ""
        return f"{self.num_unfamiliar:,} of {self.num_values:,} ({', '.join(map(repr, short))}{more})"
