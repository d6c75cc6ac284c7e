"""Names of components (`--model=cnn`) and the classes they stand for.

A table maps a name to `module:Class` as text, so this file imports neither TensorFlow nor the
components; a class is imported when its name is asked for. Any `module:Class` is accepted in place of
a name, so a component of one's own needs no change here: `--model=my_pkg.my_file:MyModel`.

A component is a class. Its options, if it has any, are a frozen dataclass in its attribute `Options`,
and the instance is made from one: `Class(options)`; a class without `Options` is called with nothing.
The first line of its docstring is what `python -m ps_trainer list` prints.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from ps_trainer import options as options_lib
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
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not (module_name + ".").startswith(error.name + "."):
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


def _is_target(name: str) -> bool:
    module_name, colon, class_name = name.partition(":")
    return bool(colon) and class_name.isidentifier() and all(p.isidentifier() for p in module_name.split("."))


MODELS = Registry(
    "model",
    "model",
    {
        "softmax": "models.softmax:Softmax",
        "mlp": "models.mlp:Mlp",
        "lenet": "models.lenet:LeNet",
        "cnn": "models.cnn:Cnn",
        "vgg": "models.vgg:Vgg",
        "resnet": "models.resnet:ResNet",
        "speech": "models.speech:Speech",
        "logistic_regression": "models.logistic_regression:LogisticRegression",
        "lstm_lm": "models.lstm_lm:LstmLm",
        "wide_deep": "models.wide_deep:WideDeep",
        "word2vec": "models.word2vec:Word2Vec",
        "transformer": "models.transformer:Transformer",
        "gpt": "models.gpt:Gpt",
        "bert": "models.bert:Bert",
        "matrix_factorization": "models.matrix_factorization:MatrixFactorization",
    },
    methods=("build",),
)

DATASETS = Registry(
    "dataset",
    "dataset",
    {
        "digits": "ps_trainer.data.digits:Digits",
        "mnist": "ps_trainer.data.mnist:Mnist",
        "fashion_mnist": "ps_trainer.data.mnist:FashionMnist",
        "emnist": "ps_trainer.data.mnist:Emnist",
        "cifar10": "ps_trainer.data.cifar:Cifar10",
        "cifar100": "ps_trainer.data.cifar:Cifar100",
        "glyphs": "ps_trainer.data.glyphs:Glyphs",
        "synthetic": "ps_trainer.data.synthetic:Synthetic",
        "image_folder": "ps_trainer.data.image_folder:ImageFolder",
        "tfrecord": "ps_trainer.data.tfrecord:TfRecord",
        "text": "ps_trainer.data.text:Text",
        "text_windows": "ps_trainer.data.text_windows:TextWindows",
        "markov": "ps_trainer.data.markov:MarkovText",
        "libsvm": "ps_trainer.data.libsvm:LibSvm",
        "planted_clicks": "ps_trainer.data.clicks:PlantedClicks",
        "planted_weights": "ps_trainer.data.planted:PlantedWeights",
        "criteo": "ps_trainer.data.criteo:Criteo",
        "census": "ps_trainer.data.census:Census",
        "movielens": "ps_trainer.data.movielens:MovieLens",
        "planted_ratings": "ps_trainer.data.planted:PlantedRatings",
        "planted_synonyms": "ps_trainer.data.planted:PlantedSynonyms",
        "parallel_text": "ps_trainer.data.parallel:ParallelText",
        "numbers": "ps_trainer.data.numbers:Numbers",
        "topics": "ps_trainer.data.topics:Topics",
        "wav": "ps_trainer.data.wav:Wav",
        "tones": "ps_trainer.data.tones:Tones",
    },
    methods=("train", "test"),
)

UPDATES = Registry(
    "update rule",
    "update",
    {
        "async": "ps_trainer.updates.asynchronous:Async",
        "downpour": "ps_trainer.updates.downpour:Downpour",
        "hogwild": "ps_trainer.updates.hogwild:Hogwild",
        "sync": "ps_trainer.updates.synchronous:Sync",
        "backup": "ps_trainer.updates.backup:Backup",
        "softsync": "ps_trainer.updates.softsync:SoftSync",
        "k_sync": "ps_trainer.updates.k_family:KSync",
        "k_async": "ps_trainer.updates.k_family:KAsync",
        "k_batch_sync": "ps_trainer.updates.k_family:KBatchSync",
        "k_batch_async": "ps_trainer.updates.k_family:KBatchAsync",
        "ssp": "ps_trainer.updates.ssp:Ssp",
        "drop_stale": "ps_trainer.updates.drop_stale:DropStale",
        "staleness_aware": "ps_trainer.updates.staleness_aware:StalenessAware",
        "dc_asgd": "ps_trainer.updates.dc_asgd:DcAsgd",
        "easgd": "ps_trainer.updates.easgd:Easgd",
        "model_averaging": "ps_trainer.updates.model_averaging:ModelAveraging",
        "local_sgd": "ps_trainer.updates.local_sgd:LocalSgd",
        "all_reduce": "ps_trainer.updates.all_reduce:AllReduce",
        "hybrid": "ps_trainer.updates.hybrid:Hybrid",
        "accumulate": "ps_trainer.updates.accumulate:Accumulate",
    },
    methods=("build", "check"),
)

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
        "det": "ps_trainer.delay_distributions:Deterministic",
        "shifted_exp": "ps_trainer.delay_distributions:ShiftedExponential",
        "exp": "ps_trainer.delay_distributions:Exponential",
        "lognormal": "ps_trainer.delay_distributions:LogNormal",
        "pareto": "ps_trainer.delay_distributions:Pareto",
        "spike": "ps_trainer.delay_distributions:Spike",
        "persistent": "ps_trainer.delay_distributions:Persistent",
        "burst": "ps_trainer.delay_distributions:Burst",
        "trace": "ps_trainer.delay_distributions:Trace",
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
