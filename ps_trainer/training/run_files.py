"""The JSON files that the chief leaves in the logdir: config.json, dataset.json, vocabulary.json and summary.json."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf
from absl import logging

import ps_trainer
from ps_trainer.checkpoints import durable_files
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import dataset_record, recorded_words
from ps_trainer.errors import CheckpointError, SaveError
from ps_trainer.training.run_summary import RunFailure, RunSummary


def write_config(cluster: ClusterConfig, config: TrainConfig) -> None:
    """Writes config.json with the resolved cluster and run, and removes the summary of an earlier run.

    Raises:
        CheckpointError: The logdir is not writable.
    """
    _write_json(
        config.logdir,
        "config.json",
        {
            "version": ps_trainer.__version__,
            "tensorflow": tf.__version__,
            "cluster": cluster.as_dict(),
            "train": config.to_json(),
        },
    )
    if config.logdir is not None:
        # The evaluator would take it for the end of this run.
        (pathlib.Path(config.logdir) / "summary.json").unlink(missing_ok=True)


def write_dataset(config: TrainConfig, dataset: Any) -> None:
    """Writes dataset.json with what is known of the run's data.

    Raises:
        CheckpointError: The logdir is not writable.
    """
    if config.logdir is not None:
        _write_text(config.logdir, dataset_record.FILE, dataset_record.as_text(config.dataset, dataset))


def write_vocabulary(config: TrainConfig, dataset: Any) -> None:
    """Writes vocabulary.json with the words of the run's dataset, or removes it if the dataset has none.

    Raises:
        CheckpointError: The logdir is not writable.
    """
    if config.logdir is None:
        return
    vocabularies = recorded_words.vocabularies_of(dataset)
    if vocabularies:
        _write_text(config.logdir, recorded_words.FILE, recorded_words.as_text(vocabularies))
    else:
        # It would hold the words of an earlier run in this folder.
        (pathlib.Path(config.logdir) / recorded_words.FILE).unlink(missing_ok=True)


def has_summary(config: TrainConfig) -> bool:
    """Returns whether a run in the logdir has left its summary, and none has been set up there since."""
    return config.logdir is not None and (pathlib.Path(config.logdir) / "summary.json").exists()


def write_summary(config: TrainConfig, summary: RunSummary | RunFailure) -> None:
    """Writes summary.json. If that fails for a run that has failed, logs a warning: the run's own error matters more.

    Raises:
        SaveError: The summary of a run that is done could not be written.
    """
    try:
        _write_json(config.logdir, "summary.json", summary.as_json())
    except CheckpointError as error:
        if isinstance(summary, RunSummary):
            raise SaveError(str(error)) from error
        logging.warning("%s", error)


def _write_json(logdir: str | None, name: str, content: Mapping[str, Any]) -> None:
    if logdir is not None:
        _write_text(logdir, name, json.dumps(content, indent=2) + "\n")


def _write_text(logdir: str, name: str, text: str) -> None:
    """Writes a file into the logdir, so that a reader sees the old or the new one as a whole."""
    path = pathlib.Path(logdir) / name
    try:
        durable_files.make_folder(path.parent)
        durable_files.replace_text(path, text)
    except OSError as error:
        raise CheckpointError(f"--logdir={logdir}: {name} cannot be written: {error}") from error
