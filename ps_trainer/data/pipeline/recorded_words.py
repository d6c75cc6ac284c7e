"""The words of a run: the vocabularies of its dataset, as the file `vocabulary.json` beside the checkpoints holds them.

Commands that use a trained model read this file, so that they need neither the corpus nor the time to count it.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ps_trainer.data.pipeline.frequency_vocabulary import LINE_END, UNKNOWN, FrequencyVocabulary
from ps_trainer.data.pipeline.sequence_vocabulary import SequenceVocabulary
from ps_trainer.errors import DataError

FILE = "vocabulary.json"
"""Name of the file in the folder of the run."""

RESERVED = ("<pad>", "<s>", "</s>", "<unk>")
"""Names of the reserved numbers of a `SequenceVocabulary`, in their order."""

# Attribute of a dataset -> name of the vocabulary in the file.
_ATTRIBUTES = {
    "vocabulary": "text",
    "source_vocabulary": "source",
    "target_vocabulary": "target",
    "transcript_vocabulary": "transcript",
    "user_vocabulary": "user",
    "item_vocabulary": "item",
}

# Of a dataset with several vocabularies, the first of these has the tokens that a model predicts.
_PREDICTED = ("target", "transcript", "text")


class RecordedWords(NamedTuple):
    """One vocabulary of a run.

    Attributes:
        unit: Kind of the tokens, "char" or "word".
        tokens: Words or characters by id.
        counts: Occurrences of each token in the training text, by id; empty if they are not known.
    """

    unit: str
    tokens: tuple[str, ...]
    counts: tuple[int, ...] = ()

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token, or None if the vocabulary lacks it."""
        return self.tokens.index(token) if token in self.tokens else None

    @property
    def special(self) -> frozenset[str]:
        """Tokens that stand for no word or character of the text."""
        return frozenset((*RESERVED, UNKNOWN[self.unit], LINE_END["word"])) & frozenset(self.tokens)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a text: padding and the end of a sequence."""
        return (0, 2) if self.tokens[: len(RESERVED)] == RESERVED else ()

    @property
    def shown_tokens(self) -> list[str]:
        """Token by id as it stands in a text; the last one, of no id, is for ids above the vocabulary."""
        replaced = self._replaced
        return [*(replaced.get(token, token) for token in self.tokens), UNKNOWN["char"]]

    @property
    def _replaced(self) -> dict[str, str]:
        """Words that stand for tokens which do not belong to a text."""
        return {LINE_END["word"]: "\n"} | dict.fromkeys({"<s>", "<unk>"} & self.special, UNKNOWN["char"])

    def text_of(self, ids: Iterable[int]) -> str:
        """Returns the text of some ids, up to the first padding or end of a sequence.

        A word at the end of a line becomes a newline; an unknown token, or an id above the vocabulary, U+FFFD.
        """
        replaced, ends = self._replaced, self.end_ids
        tokens = []
        for number in ids:
            if number < 0 or number in ends:
                break
            token = self.tokens[number] if number < len(self.tokens) else UNKNOWN["char"]
            tokens.append(replaced.get(token, token))
        if self.unit == "char":
            return "".join(tokens)
        return " ".join(tokens).replace(" \n", "\n").replace("\n ", "\n")


def vocabularies_of(dataset: Any) -> dict[str, RecordedWords]:
    """Returns the vocabularies of a dataset by name: "text", "source" and "target", or "transcript"; else empty."""
    found = {}
    for attribute, name in _ATTRIBUTES.items():
        vocabulary = getattr(dataset, attribute, None)
        if isinstance(vocabulary, FrequencyVocabulary):
            found[name] = RecordedWords(*vocabulary)
        elif isinstance(vocabulary, SequenceVocabulary):
            symbols = (symbol.decode(errors="replace") for symbol in vocabulary.symbols)
            found[name] = RecordedWords(vocabulary.unit, (*RESERVED, *symbols))
        elif isinstance(vocabulary, RecordedWords):
            found[name] = vocabulary
    return found


def predicted_words(vocabularies: Mapping[str, RecordedWords]) -> RecordedWords | None:
    """Returns the vocabulary of the ids that a model predicts: the words of the target language, transcript or text."""
    return next((vocabularies[name] for name in _PREDICTED if name in vocabularies), None)


def as_text(vocabularies: Mapping[str, RecordedWords]) -> str:
    """Returns the content of the file: JSON with one token a line."""
    content = {name: words._asdict() for name, words in vocabularies.items()}
    return json.dumps(content, ensure_ascii=False, indent=0) + "\n"


def read(folder: pathlib.Path) -> dict[str, RecordedWords]:
    """Reads the vocabularies of the run in `folder`.

    Raises:
        DataError: The file is missing or damaged.
    """
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: _decode_vocabulary(entry) for name, entry in content.items()}
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist, so the run's words are not known: its dataset has no vocabulary, or an older"
            " version trained it; continue such a run by `ps_trainer local` with the same flags, which writes the file"
        ) from error
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}: {error}); continue the run, which writes it again"
        ) from error


def find(folder: str, name: str, unit: str) -> RecordedWords:
    """Returns a vocabulary of the run in `folder`, whose ids another run takes over.

    Args:
        folder: Folder of the run.
        name: Name of the vocabulary.
        unit: Unit that its tokens must have.

    Raises:
        DataError: The run has no such vocabulary.
    """
    found = read(pathlib.Path(folder))
    if name not in found:
        raise DataError(f"vocabulary_of={folder}: the run has the vocabulary {', '.join(found)}, and not {name}")
    if found[name].unit != unit:
        raise DataError(
            f"vocabulary_of={folder}: the vocabulary {name} has {found[name].unit}s, and these data {unit}s"
        )
    return found[name]


def dependencies(run: str | None) -> tuple[list[str], list[pathlib.Path]]:
    """Returns settings and files on which facts about ids depend besides the data, if the ids may be those of a run."""
    return ([], []) if run is None else ([run], [pathlib.Path(run) / FILE])


def flag_to_keep(dataset: Any, logdir: str | None) -> str:
    """Returns how to keep the words of the run in `logdir`, before other advice; empty if a dataset cannot."""
    options = getattr(dataset, "Options", None)
    name = next((name for name in ("vocabulary_of", "columns_of") if hasattr(options, name)), None)
    if logdir is None or name is None:
        return ""
    return f"keep its words by --dataset_option={name}={logdir}, to which new ones are unknown; or "


def _decode_vocabulary(entry: Mapping[str, Any]) -> RecordedWords:
    unit, tokens, counts = entry["unit"], tuple(entry["tokens"]), tuple(entry["counts"])
    if unit not in UNKNOWN or not tokens or not all(isinstance(token, str) for token in tokens):
        raise ValueError("a vocabulary has a unit, char or word, and tokens")
    if counts and len(counts) != len(tokens):
        raise ValueError(f"{len(counts)} counts for {len(tokens)} tokens")
    return RecordedWords(unit, tokens, counts)
