"""The texts of `ps_trainer list` about components: their summaries, read without imports, and an example of each."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import pathlib
import re

from ps_trainer import component_tables
from ps_trainer.registry import Registry

# A dataset for each model, with the options that fit the model to it; `digits` for the other models.
_DATASETS = {
    "vgg": "--dataset=glyphs --model_option=width=0.125",
    "resnet": "--dataset=glyphs",
    "speech": "--dataset=tones",
    "logistic_regression": "--dataset=planted_weights",
    "lstm_lm": "--dataset=markov --model_option=vocab_size=11",
    "wide_deep": "--dataset=planted_clicks",
    "factorization_machine": "--dataset=planted_weights",
    "deepfm": "--dataset=planted_clicks",
    "word2vec": "--dataset=planted_synonyms",
    "transformer": "--dataset=numbers",
    "gpt": "--dataset=text",
    "bert": "--dataset=text",
    "matrix_factorization": "--dataset=planted_ratings",
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
    "csv": "--data_dir=DIR --model=mlp --dataset_option=label=species",
    "parquet": "--data_dir=DIR --model=mlp --dataset_option=label=species",
    "libsvm": "--data_dir=DIR --model=logistic_regression",
    "criteo": "--data_dir=DIR --model=wide_deep",
    "census": "--data_dir=DIR --model=wide_deep",
    "movielens": "--data_dir=DIR --model=matrix_factorization",
    "parallel_text": "--data_dir=DIR --model=transformer",
    "wav": "--data_dir=DIR --model=speech",
}
_UPDATES = {
    "sync_replicas": "--layout=per_variable",
    "hybrid": "--model=wide_deep --dataset=planted_clicks --optimizer=adagrad",  # needs embedding tables
}
_TRANSFORMS = {
    "error_feedback": "--gradient_transform=error_feedback:enabled=false --gradient_transform=top_k:ratio=0.05"
}
_DELAYS = {"trace": "--straggler=trace:file=steps.csv"}
_RATES = {"adam": 0.001, "lazy_adam": 0.001, "rmsprop": 0.001, "momentum": 0.02}
# An option of each component that has options, with a value that differs from the default.
_OPTIONS = {
    "downpour": "n_push=5",
    "sync": "replicas_to_aggregate=3",
    "sync_replicas": "replicas_to_aggregate=3",
    "backup": "backup_workers=2",
    "softsync": "splits=2",
    "k_sync": "k=2",
    "k_async": "k=2",
    "k_batch_sync": "k=2",
    "k_batch_async": "k=2",
    "ssp": "staleness=5",
    "drop_stale": "staleness=2",
    "dc_asgd": "adaptive=true",
    "easgd": "period=4",
    "model_averaging": "period=50",
    "local_sgd": "period=4",
    "all_reduce": "fusion_bytes=1048576",
    "hybrid": "fusion_bytes=1048576",
    "accumulate": "steps=2",
    "clip_norm": "norm=5",
    "clip_value": "value=0.5",
    "cast": "dtype=float16",
    "top_k": "ratio=0.05",
    "random_k": "ratio=0.05",
    "threshold": "value=0.01",
    "dgc": "ratio=0.01",
    "sign": "scaled=true",
    "qsgd": "levels=7",
    "terngrad": "sigma=2.5",
    "power_sgd": "rank=4",
    "constant": "warmup_steps=50",
    "piecewise": "boundaries=100,150",
    "exponential": "decay_steps=100",
    "cosine": "decay_steps=200",
    "polynomial": "decay_steps=200",
    "inverse_sqrt": "warmup_steps=50",
    "packed": "max_piece_bytes=1048576",
    "per_variable": "placement=greedy",
    "det": "mean_ms=50",
    "shifted_exp": "mean_ms=50",
    "exp": "mean_ms=50",
    "lognormal": "mean_ms=50",
    "pareto": "mean_ms=50",
    "spike": "factor=10",
    "persistent": "worker=1",
    "burst": "factor=10",
}
# Parts of a docstring for readers of the code: sections, and what the suffixes of tensors' names mean.
_FOR_PROGRAMMERS = re.compile(r"^(Args|Raises|Returns):\n([ ]+.*\n|\n)*|^Shape suffixes: (.+\n)+\n?", re.MULTILINE)


def summary(components: Registry, name: str) -> str:
    """Returns the first line of a component's docstring, read from its source, as TensorFlow's import takes seconds."""
    module, _, class_name = components.target(name).partition(":")
    return _summaries(module).get(class_name, "")


def description(component: object) -> str:
    """Returns a component's docstring without the parts that only help a reader of the code."""
    text = (inspect.getdoc(component) or "") + "\n"
    return _FOR_PROGRAMMERS.sub("", text).rstrip()


def example(kind: str, name: str) -> str:
    """Returns a command that uses a component; DIR in it stands for a folder of the user.

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
        return f"ps_trainer local {flag} --learning_rate={_RATES.get(name, 0.05)} --max_steps=200"
    option = f"{flag.partition('=')[0]}_option={_OPTIONS[name]}" if name in _OPTIONS else ""
    return " ".join(
        filter(None, ["ps_trainer local --num_workers=4", flag, option, _UPDATES.get(name), "--max_steps=200"])
    )


def _model_of(dataset: str) -> str:
    model, flags = next((m, f) for m, f in _DATASETS.items() if f.startswith(f"--dataset={dataset}"))
    return " ".join([f"--model={model}", *flags.split()[1:]])


def _inline(kind: str, name: str) -> str:
    flag = component_tables.REGISTRIES[kind].flag
    return f"--{flag}={name}:{_OPTIONS[name]}" if name in _OPTIONS else f"--{flag}={name}"


@functools.cache
def _summaries(module: str) -> dict[str, str]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return {}
    tree = ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in classes}
