"""Trains three models with 16-bit messages and with biased gradient transforms; compares them with float32.

    python -m benchmarks.wire_quality --help

Each run trains in this process, as one worker that holds the parameters: the graph encodes and decodes as between
tasks. Runs of the same seed have the same initial values and batches, so their differences to float32 are paired. The
section in README.md has the results.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

import ps_trainer
from benchmarks import arguments
from benchmarks.report import Report, ResultColumn, Row, markdown
from ps_trainer import component_tables
from ps_trainer.experiments.toolkit.statistics import Interval, mean_interval
from ps_trainer.gradients import transform_list
from ps_trainer.gradients.base import Segment, Site, SiteGradient
from ps_trainer.gradients.wire import Wire

FLOAT32 = "float32"
_NO_FEEDBACK = "error_feedback:enabled=false"
_STEPS = 300
_MATRIX = (1000, 1000)  # of the gradient whose encoding is timed
_NUM_ENCODED = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """A model with data and a test metric.

    Attributes:
        model: Registered model.
        dataset: Registered dataset.
        metric: Name of the test metric.
        margin: Largest difference of the metric that counts as equal; fixed before any run.
        why: Origin of the margin.
        is_loss: Whether a smaller value of the metric is better.
        settings: Settings of the training by the names of their flags.
        dataset_option: Options of the dataset.
    """

    model: str
    dataset: str
    metric: str
    margin: float
    why: str
    settings: Mapping[str, Any]
    is_loss: bool = False
    dataset_option: Sequence[str] = ()


class WireSetting(NamedTuple):
    """The messages of a run: parameters of a type, and gradients through transforms."""

    transforms: tuple[str, ...] = ()
    pull_dtype: str = FLOAT32


_COSINE = {"schedule": "cosine", "schedule_option": {"decay_steps": _STEPS}}
TASKS = {
    "digits": Task(
        model="cnn", dataset="digits", metric="accuracy", margin=0.01,
        why="the standard error of the accuracy on 360 digits",
        settings={"optimizer": "momentum", "learning_rate": 0.02, "batch_size": 32, **_COSINE},
    ),
    "clicks": Task(
        model="wide_deep", dataset="planted_clicks", metric="auc", margin=0.005,
        why="half of the distance to the true probabilities that benchmarks.models accepts",
        settings={
            "model_option": {"dim": 4, "hidden": 32}, "optimizer": "adagrad", "learning_rate": 0.1, "batch_size": 256,
        },
        dataset_option=("num_test=10000",),
    ),
    "text": Task(
        model="gpt", dataset="markov", metric="bits_per_symbol", margin=0.02, is_loss=True,
        why="1 % of the entropy rate of the text, 1.986 bits",
        settings={
            "model_option": {"vocab_size": 51, "max_ngram": 1, "num_layers": 1, "dim": 32, "hidden": 64},
            "optimizer": "adam", "learning_rate": 0.01, "batch_size": 16, **_COSINE,
        },
        dataset_option=(
            "order=1", "num_words=50", "num_successors=6", "context_length=16", "num_train=100000", "num_test=10000",
        ),
    ),
}  # fmt: skip
WIRES = {
    FLOAT32: WireSetting(),
    "push": WireSetting(("cast",)),
    "push_stochastic": WireSetting(("cast:rounding=stochastic",)),
    "push_feedback": WireSetting(("error_feedback", "cast")),
    "pull": WireSetting((), "bfloat16"),
    "both": WireSetting(("cast",), "bfloat16"),
    "both_stochastic": WireSetting(("cast:rounding=stochastic",), "bfloat16"),
    "both_feedback": WireSetting(("error_feedback", "cast"), "bfloat16"),
    "float16": WireSetting(("cast:dtype=float16",), "float16"),
    "float16_stochastic": WireSetting(("cast:dtype=float16,rounding=stochastic",), "float16"),
}
"""Messages of 16 bits: push, pull, or both; of bfloat16 unless named otherwise; rounded to nearest likewise."""
_BIASED = {
    "top_k": "top_k:ratio=0.05",
    "threshold": "threshold:value=0.01",
    "random_k": "random_k:ratio=0.25,scale=false",
    "one_bit": "one_bit",
    "sign": "sign:scaled=true",
    "power_sgd": "power_sgd:rank=2",
}
for _name, _transform in _BIASED.items():
    WIRES[_name] = WireSetting((_NO_FEEDBACK, _transform))
    WIRES[f"{_name}_feedback"] = WireSetting(("error_feedback", _transform))


@dataclasses.dataclass(frozen=True, kw_only=True)
class WireRow(Row):
    """The results of one model and one wire over all seeds.

    Attributes:
        task: Key of `TASKS`.
        wire: Key of `WIRES`.
        transforms: Gradient transforms, as a user types them.
        pull_dtype: Type of the parameters on their way.
        metric: Name of the test metric.
        by_seed: Value of each seed, "0.97/0.98"; nan where the training failed.
        mean: Mean over the seeds; None if a training failed.
        low: Lower end of the mean's 90 % interval.
        high: Its upper end.
        gain: Mean difference to float32 with the same seeds; positive = better than float32.
        gain_low: Lower end of its 90 % interval.
        gain_high: Its upper end.
        margin: Largest difference that counts as equal.
        verdict: "equivalent", "worse", "better", "open" or "failed" (`verdict_of`); empty for float32 itself.
        push_bytes: Computed size of the tensors of one push; None if nothing is pushed.
        coding_ms: Processor time of encoding and decoding a gradient of 1000×1000, in ms; the same for all tasks.
    """

    task: str
    wire: str
    transforms: str
    pull_dtype: str
    metric: str
    by_seed: str
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    margin: float
    verdict: str = ""
    push_bytes: float | None = None
    coding_ms: float = 0.0

    def line(self) -> str:
        """Returns the result in a sentence."""
        return f"{self.task}, {self.wire}: {self.metric} {self.outcome}"

    @property
    def outcome(self) -> str:
        """The mean of float32; for another wire the difference to it, with its 90 % interval and the verdict."""
        if self.gain is None:
            return f"{self.mean:.4f} ({self.low:.4f} to {self.high:.4f})" if self.mean is not None else self.verdict
        return f"{self.gain:+.4f} ({self.gain_low:+.4f} to {self.gain_high:+.4f}) {self.verdict}"

    @classmethod
    def table(cls, rows: Sequence[WireRow]) -> str:
        """Returns a table with a line for each wire and a column for each task."""
        outcomes = {(row.wire, row.task): row.outcome for row in rows}

        def of_task(task: WireRow) -> ResultColumn:
            head = f"{task.task}: {task.metric} ± {task.margin:g}"
            return ResultColumn(head, lambda row: outcomes.get((row.wire, task.task)))

        columns = [
            ResultColumn("wire", lambda row: f"`{row.wire}`"),
            *map(of_task, {row.task: row for row in rows}.values()),
            ResultColumn("coding ms", "coding_ms", ".1f"),
        ]
        return markdown(columns, list({row.wire: row for row in rows}.values()))


class Trained(NamedTuple):
    """The figures of one run: the test metric, and the computed bytes of a push."""

    metric: float
    push_bytes: float | None


def main(argv: Sequence[str]) -> int:
    """Runs all trainings; returns 0, also where a transform makes one fail, since that is a result."""
    parser = arguments.create_parser("benchmarks.wire_quality", __doc__)
    parser.add_argument("--tasks", type=arguments.choices(TASKS, all_as="all"), default="all", help="names, or all")
    parser.add_argument("--wires", type=arguments.choices(WIRES, all_as="all"), default="all", help="names, or all")
    parser.add_argument("--seeds", type=arguments.at_least(2), default=5, help="runs of each model and wire")
    arguments.add_out_dir(parser)
    flags = parser.parse_args(argv)
    report = Report("benchmarks.wire_quality", argv, arguments.new_folder(parser, flags.out_dir, "runs/wire_quality"))
    base_ms = coding_ms(WIRES[FLOAT32])
    coding = {wire: coding_ms(WIRES[wire]) - base_ms for wire in flags.wires}
    for name in flags.tasks:
        task = TASKS[name]
        dataset = component_tables.DATASETS.create(task.dataset, task.dataset_option, data_dir=None)
        base: list[Trained] = []
        for wire in dict.fromkeys([FLOAT32, *flags.wires]):
            trained = [train(task, dataset, WIRES[wire], seed) for seed in range(flags.seeds)]
            base = base or trained
            report.add(dataclasses.replace(row_of(name, wire, trained, base), coding_ms=coding.get(wire, 0.0)))
    return report.finish()


def train(task: Task, dataset: Any, wire: WireSetting, seed: int) -> Trained:
    """Trains once; the metric of a training that fails, because the loss became NaN, is NaN."""
    try:
        result = ps_trainer.train(
            task.model,
            dataset,
            num_ps=0,
            num_workers=1,
            gradient_transform=wire.transforms,
            pull_dtype=wire.pull_dtype,
            max_steps=_STEPS,
            seed=seed,
            **task.settings,
        )
    except ps_trainer.TrainingError as error:
        print(f"error: {task.model}, {wire}, seed {seed}: {error}", file=sys.stderr, flush=True)
        return Trained(math.nan, None)
    return Trained(result.metrics[task.metric], result.summary["workers"]["0"]["push_bytes_computed"])


def row_of(name: str, wire: str, trained: Sequence[Trained], base: Sequence[Trained]) -> WireRow:
    """Returns the row of a wire.

    Args:
        name: Key of `TASKS`.
        wire: Key of `WIRES`.
        trained: Runs of this wire, by seed.
        base: Runs of float32 with the same seeds.
    """
    task, setting = TASKS[name], WIRES[wire]
    values = [one.metric for one in trained]
    row = WireRow(
        task=name,
        wire=wire,
        transforms=" ".join(setting.transforms),
        pull_dtype=setting.pull_dtype,
        metric=task.metric,
        by_seed="/".join(f"{value:.5g}" for value in values),
        margin=task.margin,
        push_bytes=trained[0].push_bytes,
        verdict="failed",
    )
    interval = mean_interval(values)
    sign = -1 if task.is_loss else 1
    gains = [sign * (value - one.metric) for value, one in zip(values, base, strict=True)]
    gain = mean_interval(gains)
    if interval is None or gain is None:
        return row
    row = dataclasses.replace(row, mean=statistics.fmean(values), low=interval.low, high=interval.high)
    if wire == FLOAT32:
        return dataclasses.replace(row, verdict="")
    verdict = verdict_of(gain, task.margin)
    return dataclasses.replace(
        row, gain=statistics.fmean(gains), gain_low=gain.low, gain_high=gain.high, verdict=verdict
    )


def coding_ms(setting: WireSetting) -> float:
    """Returns the processor time in which a gradient of 1000×1000 reaches the ps task's side, in ms."""
    with tf.Graph().as_default(), tf.Session() as session:
        wire = Wire(
            transform_list.load(setting.transforms),
            num_workers=1,
            worker_index=0,
            worker_device="/cpu:0",
            ps_device=lambda ps: "/cpu:0",
            seed=0,
        )
        size = math.prod(_MATRIX)
        gradient = tf.get_variable("gradient", [size], initializer=tf.random_normal_initializer(stddev=0.01, seed=0))
        segment = Segment(0, size, 0, _MATRIX)
        site = Site("dense", (size,), tf.float32, ps=0, is_table=False, segments=(segment,))
        (sent,) = wire.send([SiteGradient(site, gradient.read_value())])
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        step = session.make_callable([sent.value.op, *wire.targets])
        step()
        started = time.process_time()
        for _ in range(_NUM_ENCODED):
            step()
        return 1000 * (time.process_time() - started) / _NUM_ENCODED


def verdict_of(gain: Interval, margin: float) -> str:
    """Returns what the 90 % interval of a difference shows: two one-sided tests (TOST) of 5 % each.

    Returns:
        "equivalent": the difference is below the margin; otherwise "worse" or "better": there is a difference, which
        may be below the margin; "open": neither is shown.
    """
    if -margin < gain.low and gain.high < margin:
        return "equivalent"
    if gain.high < 0:
        return "worse"
    return "better" if gain.low > 0 else "open"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
