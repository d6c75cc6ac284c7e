"""Layers for models: functions over `tf.get_variable` and `tf.nn`.

A layer creates its variables with `tf.get_variable` in the caller's variable scope. It uses only their values, because
the parameter store returns tensors on the worker, or partitioned variables, in their place. Initialisers have no own
seed: the graph's seed or the parameter store decides the initial values.
"""

from .attention import (
    BlockOptions,
    Memory,
    causal_mask,
    length_of,
    multi_head_attention,
    padding_mask,
    sinusoidal_positions,
    transformer_block,
)
from .averages import moving_average_update
from .clicks import click_output, column_rows, pair_products
from .decoding import END_ID, PADDING_ID, START_ID, decode
from .feedforward import dense, dropout, flatten, gelu, layer_norm
from .images import batch_norm, conv2d, global_average_pool, max_pool2d
from .options import option
from .output import ModelOutput, classifier_output, weight_decay
from .pooled import Pooled, roc_auc
from .recurrent import Recurrence, bidirectional, gru, lstm
from .running_text import PAIR_LOSSES, contexts, pair_loss
from .sampled import SAMPLED_LOSSES, SAMPLERS, sampled_loss
from .settings import Preset, TrainingSettings
from .stages import spread, stage
from .tables import EMBEDDING_TABLES, embedding

__all__ = [
    "EMBEDDING_TABLES",
    "END_ID",
    "PADDING_ID",
    "PAIR_LOSSES",
    "SAMPLED_LOSSES",
    "SAMPLERS",
    "START_ID",
    "BlockOptions",
    "Memory",
    "ModelOutput",
    "Pooled",
    "Preset",
    "Recurrence",
    "TrainingSettings",
    "batch_norm",
    "bidirectional",
    "causal_mask",
    "classifier_output",
    "click_output",
    "column_rows",
    "contexts",
    "conv2d",
    "decode",
    "dense",
    "dropout",
    "embedding",
    "flatten",
    "gelu",
    "global_average_pool",
    "gru",
    "layer_norm",
    "length_of",
    "lstm",
    "max_pool2d",
    "moving_average_update",
    "multi_head_attention",
    "option",
    "padding_mask",
    "pair_loss",
    "pair_products",
    "roc_auc",
    "sampled_loss",
    "sinusoidal_positions",
    "spread",
    "stage",
    "transformer_block",
    "weight_decay",
]
