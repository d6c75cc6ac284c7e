"""Names of components (`--model=cnn`) and the classes they stand for.

A table maps a name to `module:Class` as text, so this file imports neither TensorFlow nor the
components; a class is imported when its name is asked for. Any `module:Class` is accepted in place of
a name, so a component of one's own needs no change here: `--model=my_pkg.my_file:MyModel`.

A component is a class. Its options, if it has any, are a frozen dataclass in its attribute `Options`,
and the instance is made from one: `Class(options)`; a class without `Options` is called with nothing.
The first line of its docstring is what `python -m ps_trainer list` prints.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer import options as options_lib
from ps_trainer import update_rules
from ps_trainer.errors import UnknownNameError, did_you_mean


class Registry:
    """One kind of component.

    Args:
        kind: what the components are, in words, for messages ("update rule").
        flag: the flag that takes the name, without dashes ("update"); options come by `--<flag>_option`.
        targets: name -> `module:Class`.
        has_inline_options: options come with the name instead: `--<flag> name:key=value,…`.
        methods: names that every class of this kind has, by which one of another kind is noticed.
    """

    def __init__(
        self,
        kind: str,
        flag: str,
        targets: Mapping[str, str],
        *,
        has_inline_options: bool = False,
        methods: Sequence[str] = (),
    ):
        self._methods = tuple(methods)
        self.kind = kind
        self.flag = flag
        self.has_inline_options = has_inline_options
        self._targets = dict(targets)

    def names(self) -> list[str]:
        """The registered names, in table order."""
        return list(self._targets)

    def check(self, name: str, flag: str | None = None) -> None:
        """Raises UnknownNameError unless `name` is registered or has the form `module:Class`.

        Args:
            name: as it was given.
            flag: the flag it came from, with dashes, where that is not the table's own.
        """
        if name in self._targets or _is_target(name):
            return
        raise UnknownNameError(
            f"{flag or f'--{self.flag}'}={name}: unknown {self.kind}; {did_you_mean(name, self._targets)}"
            f"known: {', '.join(self._targets) or 'none'}; one of your own is given as package.module:Class"
        )

    def load(self, name: str, flag: str | None = None) -> type:
        """The class of `name`.

        Args:
            name: registered name or `module:Class`.
            flag: the flag it came from, with dashes, where that is not the table's own.

        Raises:
            UnknownNameError: not registered, or its module or class does not exist, or is no class of this kind.
        """
        flag = flag or f"--{self.flag}"
        self.check(name, flag)
        module_name, _, class_name = self._targets.get(name, name).partition(":")
        try:
            module = _import(module_name)
        except ModuleNotFoundError as error:
            if not _is_missing(module_name, error):
                raise  # the module exists, something that it imports does not
            raise UnknownNameError(
                f"{flag}={name}: no module named {error.name!r} on the Python path;"
                " start from its folder, or install it, or set PYTHONPATH"
            ) from error
        if not hasattr(module, class_name):
            raise UnknownNameError(f"{flag}={name}: {module.__file__} has no class {class_name!r}")
        cls = getattr(module, class_name)
        missing = [method for method in self._methods if not hasattr(cls, method)]
        if missing or not isinstance(cls, type):
            reason = f"it has no {missing[0]}" if missing else "it is no class"
            raise UnknownNameError(f"{flag}={name}: {class_name} is no {self.kind}: {reason}; give the name of one")
        return cls

    def create(self, name: str, option_strings: Sequence[str] = (), **kwargs: Any) -> Any:
        """An instance of `name` with its options parsed from `key=value` strings.

        Args:
            name: registered name or `module:Class`.
            option_strings: values of `--<flag>_option`.
            **kwargs: passed on to the class beside its options.

        Raises:
            UnknownNameError: see `load`.
            OptionError: an option is unknown or has a wrong value.
        """
        cls = self.load(name)
        options = options_lib.parse_if_any(
            getattr(cls, "Options", None), option_strings, f"--{self.flag}_option", f"{self.kind} {name!r}"
        )
        return cls(**kwargs) if options is None else cls(options, **kwargs)


def split_inline(text: str) -> tuple[str, list[str]]:
    """Name and `key=value` strings of a component given as `name:key=value,key=value` or `module:Class:key=value`."""
    head, colon, tail = text.rpartition(":")
    if colon and ("=" in tail or not tail):
        return head, [string for string in tail.split(",") if string]
    return text, []


def _import(module_name: str) -> types.ModuleType:
    """The module; a model's former name `models.cnn`, as old runs recorded it, stands for `ps_trainer.models.cnn`.

    A module of the user that has such a name comes first.
    """
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not (module_name.startswith("models.") and _is_missing(module_name, error)):
            raise
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"ps_trainer.{module_name}")
        raise


def _is_missing(module_name: str, error: ModuleNotFoundError) -> bool:
    """Whether the module itself, or a package that it lies in, was not found."""
    return error.name is not None and (module_name + ".").startswith(error.name + ".")


def _is_target(name: str) -> bool:
    module_name, colon, class_name = name.partition(":")
    return bool(colon) and class_name.isidentifier() and all(p.isidentifier() for p in module_name.split("."))


MODELS = Registry(
    "model",
    "model",
    {
        "softmax": "ps_trainer.models.softmax:Softmax",
        "mlp": "ps_trainer.models.mlp:Mlp",
        "lenet": "ps_trainer.models.lenet:LeNet",
        "cnn": "ps_trainer.models.cnn:Cnn",
        "vgg": "ps_trainer.models.vgg:Vgg",
        "resnet": "ps_trainer.models.resnet:ResNet",
        "speech": "ps_trainer.models.speech:Speech",
        "logistic_regression": "ps_trainer.models.logistic_regression:LogisticRegression",
        "lstm_lm": "ps_trainer.models.lstm_lm:LstmLm",
        "wide_deep": "ps_trainer.models.wide_deep:WideDeep",
        "word2vec": "ps_trainer.models.word2vec:Word2Vec",
        "transformer": "ps_trainer.models.transformer:Transformer",
        "gpt": "ps_trainer.models.gpt:Gpt",
        "bert": "ps_trainer.models.bert:Bert",
        "matrix_factorization": "ps_trainer.models.matrix_factorization:MatrixFactorization",
    },
    methods=("build",),
)

DATASETS = Registry(
    "dataset",
    "dataset",
    {
        "digits": "ps_trainer.data.formats.digits:Digits",
        "mnist": "ps_trainer.data.formats.mnist:Mnist",
        "fashion_mnist": "ps_trainer.data.formats.mnist:FashionMnist",
        "emnist": "ps_trainer.data.formats.mnist:Emnist",
        "cifar10": "ps_trainer.data.formats.cifar:Cifar10",
        "cifar100": "ps_trainer.data.formats.cifar:Cifar100",
        "glyphs": "ps_trainer.data.generators.glyphs:Glyphs",
        "synthetic": "ps_trainer.data.generators.random_images:Synthetic",
        "image_folder": "ps_trainer.data.formats.image_folder:ImageFolder",
        "tfrecord": "ps_trainer.data.formats.tfrecord:TfRecord",
        "text": "ps_trainer.data.formats.text:Text",
        "text_windows": "ps_trainer.data.formats.text_windows:TextWindows",
        "markov": "ps_trainer.data.generators.markov_text:MarkovText",
        "libsvm": "ps_trainer.data.formats.libsvm:LibSvm",
        "planted_clicks": "ps_trainer.data.generators.ad_clicks:PlantedClicks",
        "planted_weights": "ps_trainer.data.generators.known_truth:PlantedWeights",
        "criteo": "ps_trainer.data.formats.criteo:Criteo",
        "census": "ps_trainer.data.formats.census:Census",
        "movielens": "ps_trainer.data.formats.movielens:MovieLens",
        "planted_ratings": "ps_trainer.data.generators.known_truth:PlantedRatings",
        "planted_synonyms": "ps_trainer.data.generators.known_truth:PlantedSynonyms",
        "parallel_text": "ps_trainer.data.formats.parallel_text:ParallelText",
        "numbers": "ps_trainer.data.generators.number_words:Numbers",
        "topics": "ps_trainer.data.formats.topics:Topics",
        "wav": "ps_trainer.data.formats.wav:Wav",
        "tones": "ps_trainer.data.generators.telephone_tones:Tones",
    },
    methods=("train", "test"),
)

UPDATES = Registry("update rule", "update", update_rules.targets("update"), methods=("build", "check"))

GRADIENT_TRANSFORMS = Registry(
    "gradient transform",
    "gradient_transform",
    {
        "clip_norm": "ps_trainer.gradients.clip:ClipNorm",
        "clip_value": "ps_trainer.gradients.clip:ClipValue",
        "cast": "ps_trainer.gradients.cast:Cast",
        "top_k": "ps_trainer.gradients.sparsify:TopK",
        "random_k": "ps_trainer.gradients.sparsify:RandomK",
        "threshold": "ps_trainer.gradients.sparsify:Threshold",
        "dgc": "ps_trainer.gradients.dgc:Dgc",
        "one_bit": "ps_trainer.gradients.one_bit:OneBit",
        "sign": "ps_trainer.gradients.sign:Sign",
        "qsgd": "ps_trainer.gradients.qsgd:Qsgd",
        "terngrad": "ps_trainer.gradients.terngrad:TernGrad",
        "power_sgd": "ps_trainer.gradients.power_sgd:PowerSgd",
        "error_feedback": "ps_trainer.gradients.error_feedback:ErrorFeedback",
    },
    has_inline_options=True,
)

LAYOUTS = Registry(
    "store layout",
    "layout",
    {
        "packed": "ps_trainer.store.packed:Packed",
        "per_variable": "ps_trainer.store.per_variable:PerVariable",
    },
    methods=("create", "gradients"),
)

OPTIMIZERS = Registry(
    "optimizer",
    "optimizer",
    {
        "sgd": "ps_trainer.optimizers.stock:Sgd",
        "momentum": "ps_trainer.optimizers.stock:Momentum",
        "adagrad": "ps_trainer.optimizers.stock:Adagrad",
        "adam": "ps_trainer.optimizers.adam:Adam",
        "lazy_adam": "ps_trainer.optimizers.adam:LazyAdam",
        "rmsprop": "ps_trainer.optimizers.stock:RmsProp",
        "ftrl": "ps_trainer.optimizers.stock:Ftrl",
    },
    methods=("create", "momentum"),
)

SCHEDULES = Registry(
    "learning-rate schedule",
    "schedule",
    {
        "constant": "ps_trainer.optimizers.schedules:Constant",
        "piecewise": "ps_trainer.optimizers.schedules:Piecewise",
        "exponential": "ps_trainer.optimizers.schedules:Exponential",
        "cosine": "ps_trainer.optimizers.schedules:Cosine",
        "polynomial": "ps_trainer.optimizers.schedules:Polynomial",
        "inverse_sqrt": "ps_trainer.optimizers.schedules:InverseSqrt",
    },
    methods=("build",),
)

# Named on the command line itself, `python -m ps_trainer experiment NAME`, and listed by it.
EXPERIMENTS = Registry(
    "experiment",
    "experiment",
    {
        "local_overhead": "ps_trainer.experiments.local_overhead.experiment:LocalOverhead",
        "null_step": "ps_trainer.experiments.null_step.experiment:NullStep",
        "async_vs_sync": "ps_trainer.experiments.async_vs_sync.experiment:AsyncVsSync",
        "staleness_distribution": "ps_trainer.experiments.staleness_distribution.experiment:StalenessDistribution",
        "staleness_quality": "ps_trainer.experiments.staleness_quality.experiment:StalenessQuality",
        "staleness_aware_rate": "ps_trainer.experiments.staleness_aware_rate.experiment:StalenessAwareRate",
        "backup_workers": "ps_trainer.experiments.backup_workers.experiment:BackupWorkers",
        "bounded_staleness": "ps_trainer.experiments.bounded_staleness.experiment:BoundedStaleness",
        "scaling_curve": "ps_trainer.experiments.scaling_curve.experiment:ScalingCurve",
        "ps_bandwidth": "ps_trainer.experiments.ps_bandwidth.experiment:PsBandwidth",
    },
)

# Read by --straggler of a real cluster and by --compute of the simulator.
DELAYS = Registry(
    "delay distribution",
    "straggler",
    {
        "det": "ps_trainer.disturbances.delay_distributions:DeterministicDelay",
        "shifted_exp": "ps_trainer.disturbances.delay_distributions:ShiftedExponentialDelay",
        "exp": "ps_trainer.disturbances.delay_distributions:ExponentialDelay",
        "lognormal": "ps_trainer.disturbances.delay_distributions:LogNormalDelay",
        "pareto": "ps_trainer.disturbances.delay_distributions:ParetoDelay",
        "spike": "ps_trainer.disturbances.delay_distributions:SpikeDelay",
        "persistent": "ps_trainer.disturbances.delay_distributions:PersistentDelay",
        "burst": "ps_trainer.disturbances.delay_distributions:BurstDelay",
        "trace": "ps_trainer.disturbances.delay_distributions:TraceDelay",
    },
    has_inline_options=True,
)

# Hooks have no options of their own on the command line: a class that needs some reads them itself.
HOOKS = Registry("hook", "hook", {}, methods=("before_run", "after_run", "end"))

REGISTRIES = {
    "models": MODELS,
    "datasets": DATASETS,
    "updates": UPDATES,
    "transforms": GRADIENT_TRANSFORMS,
    "optimizers": OPTIMIZERS,
    "schedules": SCHEDULES,
    "layouts": LAYOUTS,
    "delays": DELAYS,
}
