"""The tables of all components by name: models, datasets, update rules, optimizers and so on.

An update rule has several parts, so `update_rules.py` lists the rules.
"""

from __future__ import annotations

from ps_trainer import update_rules
from ps_trainer.registry import Registry

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
        "factorization_machine": "ps_trainer.models.factorization_machine:FactorizationMachine",
        "deepfm": "ps_trainer.models.deepfm:DeepFm",
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
        "csv": "ps_trainer.data.formats.csv_table:Csv",
        "parquet": "ps_trainer.data.formats.parquet:Parquet",
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

# The datasets that read files and have none built in. `local` checks `--data_dir` for them before it starts a task.
DATASETS_OF_FILES = frozenset(
    {
        "mnist",
        "fashion_mnist",
        "emnist",
        "cifar10",
        "cifar100",
        "image_folder",
        "tfrecord",
        "csv",
        "parquet",
        "libsvm",
        "criteo",
        "census",
        "movielens",
        "parallel_text",
        "wav",
    }
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
        "exponential": "ps_trainer.optimizers.schedules:ExponentialDecay",
        "cosine": "ps_trainer.optimizers.schedules:Cosine",
        "polynomial": "ps_trainer.optimizers.schedules:Polynomial",
        "inverse_sqrt": "ps_trainer.optimizers.schedules:InverseSqrt",
    },
    methods=("build",),
)

# `ps_trainer experiment` takes these names without a flag, and lists them.
EXPERIMENTS = Registry(
    "experiment",
    "experiment",
    {
        "local_overhead": "ps_trainer.experiments.local_overhead.experiment:LocalOverhead",
        "null_step": "ps_trainer.experiments.null_step.experiment:NullStep",
        "async_vs_sync": "ps_trainer.experiments.async_vs_sync.experiment:AsyncVsSync",
        "time_to_accuracy": "ps_trainer.experiments.time_to_accuracy.experiment:TimeToAccuracy",
        "strategies": "ps_trainer.experiments.strategies.experiment:Strategies",
        "linear_scaling": "ps_trainer.experiments.linear_scaling.experiment:LinearScaling",
        "staleness_distribution": "ps_trainer.experiments.staleness_distribution.experiment:StalenessDistribution",
        "staleness_quality": "ps_trainer.experiments.staleness_quality.experiment:StalenessQuality",
        "staleness_aware_rate": "ps_trainer.experiments.staleness_aware_rate.experiment:StalenessAwareRate",
        "backup_workers": "ps_trainer.experiments.backup_workers.experiment:BackupWorkers",
        "backups_at_scale": "ps_trainer.experiments.backups_at_scale.experiment:BackupsAtScale",
        "bounded_staleness": "ps_trainer.experiments.bounded_staleness.experiment:BoundedStaleness",
        "client_cache": "ps_trainer.experiments.client_cache.experiment:ClientCache",
        "scaling_curve": "ps_trainer.experiments.scaling_curve.experiment:ScalingCurve",
        "ps_bandwidth": "ps_trainer.experiments.ps_bandwidth.experiment:PsBandwidth",
    },
)

# The flag --straggler of a real cluster and the flag --compute of the simulator take these names.
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

# A hook takes no options from the command line; a class that needs settings reads them itself.
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
