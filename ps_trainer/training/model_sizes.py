"""Sizes of a model, such as `vocab_size`, that the data give unless the user does."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ps_trainer import component_tables
from ps_trainer.config import TrainConfig
from ps_trainer.data.pipeline import dataset_record
from ps_trainer.errors import OptionError

UNBOUNDED = dict.fromkeys(dataset_record.SIZES, 2**31 - 1)
"""Sizes to check other options with as long as the data are not known."""

# Words for sizes, in messages.
_WORDS = {
    "num_classes": "classes",
    "num_features": "ids of features",
    "num_buckets": "ids in a column",
    "num_users": "users",
    "num_items": "items",
}


def completed(config: TrainConfig, sizes: Mapping[str, int]) -> TrainConfig:
    """Returns a configuration with those sizes that its model has as options and that it does not give."""
    options_type = getattr(component_tables.MODELS.load(config.model), "Options", None)
    if not dataclasses.is_dataclass(options_type):
        return config
    given = {text.partition("=")[0] for text in config.model_option}
    wanted = {field.name for field in dataclasses.fields(options_type)} - given
    found = [f"{name}={size}" for name, size in sizes.items() if name in wanted]
    return dataclasses.replace(config, model_option=(*config.model_option, *found))


def check(model: Any, dataset: Any, config: TrainConfig) -> None:
    """Raises OptionError if the dataset has more classes, ids, users or items than the model can tell apart."""
    for size, of_data in dataset_record.sizes_of(dataset).items():
        of_model = getattr(getattr(model, "options", None), size, None)
        if of_model is not None and of_model < of_data:
            raise OptionError(
                f"dataset {config.dataset!r} has {of_data} {_WORDS.get(size, 'ids')}, model {config.model!r} only"
                f" {of_model}; set --model_option {size}={of_data}, or leave it out"
            )
