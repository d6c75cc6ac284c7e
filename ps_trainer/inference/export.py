"""Exports a checkpoint as a SavedModel, which programs can load without this package."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from collections.abc import Mapping

import numpy as np
import tensorflow.compat.v1 as tf

from ps_trainer.checkpoints import durable_files, report
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import dataset_record, recorded_words
from ps_trainer.errors import SaveError
from ps_trainer.inference import prediction_names, word_signature
from ps_trainer.inference.predictor import build_graph
from ps_trainer.training import components as components_lib
from ps_trainer.training.components import Components
from ps_trainer.training.plain_model import load_values

PREDICTIONS = "predictions"

WORDS = "words"
"""Name of the signature that takes texts and gives words."""

ASSETS = "assets.extra"
"""Folder of a SavedModel for files of its users; TensorFlow leaves it alone."""

# Programs that load the model use these collections. The others refer to ops that only training needs.
_KEPT_COLLECTIONS = (tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.TABLE_INITIALIZERS)


def write(config: TrainConfig, checkpoint_dir: pathlib.Path, out: pathlib.Path) -> str:
    """Exports the newest loadable checkpoint.

    The inputs of the signature `serving_default` are the tensors of a batch on which the predictions depend, under
    their names in the batch. Its output is "predictions". Where the dataset knows words, a second signature, `WORDS`,
    takes texts and gives words beside the predictions (`word_signature.py`). The folder `ASSETS` holds the run's
    dataset.json and vocabulary.json. `out` appears complete, or not at all.

    Args:
        config: Configuration that names the model and the dataset, which defines the tensors of a batch.
        checkpoint_dir: Folder of the checkpoints.
        out: Folder to write, absent or empty.

    Returns:
        A sentence about what was written.

    Raises:
        CheckpointError: There is no checkpoint, or it does not fit the model.
        UsageError: An unknown name, a wrong option, missing or broken data.
        SaveError: The folder cannot be written.
    """
    components = components_lib.load(config, 1, trained_run=checkpoint_dir.parent)
    checkpoint = report.find_checkpoint(checkpoint_dir)
    out = out.resolve()
    temporary = out.with_name(f".{out.name}.writing-{os.getpid()}")
    try:
        with durable_files.new_folder(out.parent), contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, temporary, ignore_errors=True)
            signature = _save(components, checkpoint, temporary)
            _copy_records(checkpoint_dir.parent, temporary / ASSETS)
            # Synced before the rename: after a crash of the machine, the folder must not have its name without its
            # content.
            for path in [*temporary.rglob("*"), temporary]:
                durable_files.sync(path)
            os.rename(temporary, out)
            durable_files.sync(out.parent)
    except (OSError, tf.errors.OpError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else error.message
        # TensorFlow's messages begin with the path, under its temporary name.
        reason = reason.replace(str(temporary), str(out)).removeprefix(f"{out}; ")
        raise SaveError(f"--out={out} cannot be written: {reason}; name another folder") from error
    return f"{out}: {config.model} from {checkpoint.prefix}, {signature}"


def _copy_records(run: pathlib.Path, assets: pathlib.Path) -> None:
    """Copies what the run has recorded of its data, if it has."""
    found = [run / name for name in (dataset_record.FILE, recorded_words.FILE) if (run / name).is_file()]
    if found:
        assets.mkdir()
    for path in found:
        shutil.copyfile(path, assets / path.name)


def _save(components: Components, values: Mapping[str, np.ndarray], folder: pathlib.Path) -> str:
    """Writes the SavedModel; returns its signatures as text."""
    built = build_graph(components, takes_texts=True)
    graph, inputs, predictions = built.graph, built.inputs, built.predictions
    with graph.as_default():
        names = prediction_names.PredictionNames.known_to(components.dataset)
        words = word_signature.outputs(names, predictions, built.num_places)
    signatures = {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: (inputs, {PREDICTIONS: predictions})}
    if built.texts or words:
        texts = dict(zip(word_signature.input_names(built.texts), built.texts.values(), strict=True))
        signatures[WORDS] = (texts or inputs, {PREDICTIONS: predictions, **words})
    with tf.Session(graph=graph) as session:
        load_values(session, built.variables, values)
        for name in set(graph.get_all_collection_keys()) - set(_KEPT_COLLECTIONS):
            graph.clear_collection(name)
        builder = tf.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.SERVING],
            signature_def_map={
                name: tf.saved_model.predict_signature_def(*tensors) for name, tensors in signatures.items()
            },
            main_op=built.init_op,
            # An older TensorFlow rejects an attribute that it does not know, even if it has the default value.
            strip_default_attrs=True,
        )
        builder.save()
    told = f"{_format_tensors(inputs)} -> {_format_tensors({PREDICTIONS: predictions})}"
    if WORDS in signatures:
        taken, given = signatures[WORDS]
        told += f"; with {WORDS}: {', '.join(taken)} -> {', '.join(given)}"
    return told


def _format_tensors(tensors: Mapping[str, tf.Tensor]) -> str:
    return ", ".join(f"{name} {tensor.dtype.name} {tensor.shape}" for name, tensor in tensors.items())
