"""What `ps_trainer list` says about components: their summaries, read without imports, and an example of each."""

from __future__ import annotations

import ast
import functools
import importlib.util
import pathlib
from collections.abc import Iterator

from ps_trainer import component_tables
from ps_trainer.options import format_value, key_of
from ps_trainer.registry import Registry

# A dataset for each model, with the options that fit the model to it; `digits` for the other models.
_DATASETS = {
    "vgg": "--dataset=glyphs --model_option=width=0.125",
    "resnet": "--dataset=glyphs",
    "speech": "--dataset=tones --optimizer=adam --learning_rate=0.003",
    "logistic_regression": "--dataset=planted_weights --optimizer=ftrl",
    "lstm_lm": "--dataset=markov --model_option=vocab_size=11",
    "wide_deep": "--dataset=planted_clicks --optimizer=adagrad",
    "word2vec": "--dataset=planted_synonyms --optimizer=adagrad",
    "transformer": "--dataset=numbers --optimizer=adam --learning_rate=0.001",
    "gpt": "--dataset=text --optimizer=adam --learning_rate=0.001",
    "bert": "--dataset=text --optimizer=adam --learning_rate=0.001",
    "matrix_factorization": "--dataset=planted_ratings --optimizer=adagrad",
}
# A model for each dataset that no model above uses; DIR stands for a folder with the files.
_MODELS = {
    "digits": "--model=cnn",
    "synthetic": "--model=mlp",
    "topics": "--model=bert --model_option=num_classes=8",
    "text_windows": "--model=word2vec --model_option=vocab_size=1000",
    "mnist": "--data_dir=DIR --model=cnn",
    "fashion_mnist": "--data_dir=DIR --model=cnn",
    "emnist": "--data_dir=DIR --model=cnn --model_option=num_classes=47",
    "cifar10": "--data_dir=DIR --model=resnet",
    "cifar100": "--data_dir=DIR --model=resnet --model_option=num_classes=100",
    "image_folder": "--data_dir=DIR --model=cnn",
    "tfrecord": "--data_dir=DIR --model=cnn",
    "libsvm": "--data_dir=DIR --model=logistic_regression --optimizer=ftrl",
    "criteo": "--data_dir=DIR --model=wide_deep --optimizer=adagrad",
    "census": "--data_dir=DIR --model=wide_deep --optimizer=adagrad",
    "movielens": "--data_dir=DIR --model=matrix_factorization --optimizer=adagrad",
    "parallel_text": "--data_dir=DIR --model=transformer --optimizer=adam --learning_rate=0.001",
    "wav": "--data_dir=DIR --model=speech --optimizer=adam --learning_rate=0.003",
}
_UPDATES = {"hybrid": "--model=wide_deep --dataset=planted_clicks --optimizer=adagrad"}  # needs embedding tables
_TRANSFORMS = {"error_feedback": "--gradient_transform=error_feedback --gradient_transform=top_k:ratio=0.01"}
_DELAYS = {"trace": "--straggler=trace:file=steps.csv"}
_RATES = {"adam": 0.001, "lazy_adam": 0.001, "rmsprop": 0.001, "momentum": 0.02}


def summary(components: Registry, name: str) -> str:
    """The first line of a component's docstring, read from its source: an import would take TensorFlow's seconds."""
    module, _, class_name = components.target(name).partition(":")
    return _summaries(module).get(class_name, "")


def example(kind: str, name: str) -> str:
    """A command that uses a component; DIR in it stands for a folder of the user.

    Imports the component.

    Args:
        kind: Key of `component_tables.REGISTRIES`.
        name: Name of the component.
    """
    flag = f"--{component_tables.REGISTRIES[kind].flag}={name}"
    if kind == "models":
        return f"ps_trainer local {flag} {_DATASETS.get(name, '--dataset=digits')} --max_steps=200"
    if kind == "datasets":
        return f"ps_trainer local {flag} {_MODELS.get(name) or _model_of(name)} --max_steps=200"
    if kind == "transforms":
        return f"ps_trainer local {_TRANSFORMS.get(name) or _inline(kind, name)} --max_steps=200"
    if kind == "delays":
        return f"ps_trainer local {_DELAYS.get(name) or _inline(kind, name)} --max_steps=200"
    if kind == "optimizers":
        return f"ps_trainer local {flag} --learning_rate={_RATES.get(name, 0.1)} --max_steps=200"
    option = next(_options(kind, name), "")
    return " ".join(
        filter(None, ["ps_trainer local --num_workers=4", flag, option, _UPDATES.get(name), "--max_steps=200"])
    )


def _model_of(dataset: str) -> str:
    model, flags = next((m, f) for m, f in _DATASETS.items() if f.startswith(f"--dataset={dataset}"))
    return " ".join([f"--model={model}", *flags.split()[1:]])


def _inline(kind: str, name: str) -> str:
    flag = component_tables.REGISTRIES[kind].flag
    option = next(_options(kind, name), "")
    return f"--{flag}={name}{option and f':{option}'}"


def _options(kind: str, name: str) -> Iterator[str]:
    """The options of a component that have a default value, as the user writes them."""
    components = component_tables.REGISTRIES[kind]
    options = getattr(components.load(name), "Options", None)
    prefix = "" if components.has_inline_options else f"--{components.flag}_option="
    for field in getattr(options, "__dataclass_fields__", {}).values():
        if field.default not in (None, ""):
            yield f"{prefix}{key_of(field)}={format_value(field.default)}"


@functools.cache
def _summaries(module: str) -> dict[str, str]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in classes}
