"""Changes of the data since the run in the logdir began: some give its parameters another meaning, others only warn."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.checkpoints import reader
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import dataset_record, recorded_words, table_columns
from ps_trainer.data.pipeline.recorded_words import RecordedWords
from ps_trainer.errors import CheckpointError, DataError

_COLUMN = "column"
_OF_WORDS = (", word", ", token", "feature")  # ends of the nouns of places that words have


class _DataFacts(NamedTuple):
    """Facts about the data of a run on which a model depends.

    Attributes:
        names: Classes, columns and words, each at its place in the parameters, by a noun for the place.
        all: All facts, as JSON.
    """

    names: Mapping[str, Sequence[str]]
    all: list[Any]


def check(config: TrainConfig, dataset: Any) -> None:
    """Checks that no place of the trained parameters stands for another class, word or column than before.

    Words and classes that the data add behind the last place change the meaning of no parameter.

    Raises:
        CheckpointError: A place stands for another one, or there is a new column.
    """
    before = _read_facts(config, dataset)
    if before is None or config.checkpoint_dir is None or not reader.list_prefixes(config.checkpoint_dir):
        return
    now = _facts_of(dataset_record.as_text(config.dataset, dataset), recorded_words.vocabularies_of(dataset), dataset)
    for noun, names in before.names.items():
        if noun not in now.names:
            continue  # the data of another dataset
        found_names = now.names[noun] if noun == _COLUMN else now.names[noun][: len(names)]
        for place, (name, found) in enumerate(itertools.zip_longest(names, found_names)):
            if found != name:
                keep = recorded_words.flag_to_keep(dataset, config.logdir) if noun.endswith(_OF_WORDS) else ""
                raise CheckpointError(
                    f"the checkpoints in --logdir={config.logdir} were trained with other data:"
                    f" {noun} {place} was {_quote(name)} and is {_quote(found)};"
                    f" {keep or _flag_to_ignore(config, before, now)}put the earlier data back, or train a new run in"
                    f" another --logdir, which may begin with these parameters by --init_from={config.logdir}"
                )


def _quote(name: str | None) -> str:
    return "missing" if name is None else repr(name)


def _flag_to_ignore(config: TrainConfig, before: _DataFacts, now: _DataFacts) -> str:
    """Returns how to leave out the columns of a table that are new, before other advice; empty if none is new."""
    known = {_name_of(column) for column in before.names.get(_COLUMN, ())}
    new = [name for column in now.names.get(_COLUMN, ()) if (name := _name_of(column)) not in known]
    given = [text.removeprefix("columns=") for text in config.dataset_option if text.startswith("columns=")]
    kinds = ",".join([*filter(None, given), *(f"{name}:{table_columns.IGNORE}" for name in new)])
    return f"leave out what is new by --dataset_option=columns={kinds}, or " if new else ""


def _name_of(column: str) -> str:
    return column.rpartition(": ")[0]


def warning(config: TrainConfig, dataset: Any) -> str:
    """Returns a warning if the run in the logdir has recorded other facts; empty if it has not."""
    before = _read_facts(config, dataset)
    if before is None or before.all == _facts_of(dataset_record.as_text(config.dataset, dataset), {}, dataset).all:
        return ""
    return (
        f"the data differ from those that the run in --logdir={config.logdir} began with: words, columns or sizes have"
        " other numbers now; use another --logdir, unless the checkpoints are meant for these data"
    )


def _read_facts(config: TrainConfig, dataset: Any) -> _DataFacts | None:
    """Returns the facts that the last run in the logdir has recorded; None if there are none, or they are damaged."""
    if config.logdir is None:
        return None
    folder = pathlib.Path(config.logdir)
    try:
        vocabularies = recorded_words.read(folder)
    except DataError:
        vocabularies = {}  # the data have no words, or the file is damaged
    try:
        return _facts_of((folder / dataset_record.FILE).read_text(encoding="utf-8"), vocabularies, dataset)
    except (OSError, ValueError, AttributeError, KeyError, TypeError, IndexError):
        return None


def _facts_of(text: str, vocabularies: Mapping[str, RecordedWords], dataset: Any) -> _DataFacts:
    """Returns the facts in the content of a dataset.json, with the words of the vocabularies.

    Args:
        text: Content of the file.
        vocabularies: Vocabularies of the same run.
        dataset: Dataset of the run now, which makes ids of the columns.
    """
    data = dataset_record.parse(text)
    # Facts of single files, and counts: they change with any text, and no parameter depends on them.
    values = {name: value for name, value in data.facts.items() if not name.startswith(("file ", "number "))}
    values.pop("windows", None)
    for name in list(values):
        if name.startswith("list "):
            values[name] = values[name][-1]  # the rate of the sounds; path, count and lengths come before it
        elif name.startswith("labels "):
            # The files may have been moved.
            values[f"labels {pathlib.PurePath(name.removeprefix('labels ')).name}"] = values.pop(name)
    if "vocabulary" in values:
        values["vocabulary"] = values["vocabulary"][0]
    names: dict[str, Sequence[str]] = {"class": list(data.class_names or ())}
    if table_columns.FACT in values:
        all_names, columns = table_columns.of_fact(values[table_columns.FACT])
        values[table_columns.FACT] = [all_names, columns._replace(class_counts=(), ranges={}, times=None)]
        names[_COLUMN] = [f"{name}: {kind}" for name, kind in columns.kinds.items() if kind != table_columns.IGNORE]
        for name, words in columns.vocabularies.items():
            names[f"column {name!r}, word"] = words
        if (names_of_ids := getattr(dataset, "names_of_ids", None)) is not None:
            names["feature"] = names_of_ids(columns)
    for name, vocabulary in vocabularies.items():
        names[f"vocabulary {name!r}, token"] = vocabulary.tokens
    return _DataFacts(names, [data.dataset, data.class_names, values])
