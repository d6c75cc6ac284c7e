"""Experiment: what distribution costs on one machine, and that it changes no number."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ps_trainer.experiments.frame.base import Analysis, Experiment, Level, Measured, Results, Run, RunResult
from ps_trainer.experiments.frame.claims import Claim, Limit, Measure
from ps_trainer.experiments.frame.plots import Plot
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.frame.tables import Column, Table
from ps_trainer.experiments.lab import local_control
from ps_trainer.experiments.lab.local_control import LARGEST_DIFFERENCE
from ps_trainer.experiments.lab.statistics import Line, Spread, fit_line, spread
from ps_trainer.experiments.local_overhead.captions import CAPTIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEVEL = Level.PROCESSES
_START_SECS = 16.0
_TRAIN = {"dataset": "digits", "batch_size": 16, "learning_rate": 0.05}
_SIZES = "sizes"  # part of the runs: models of growing size, for the overhead
_RULES = "rules"  # part of the runs: other optimizers, rules, layouts and numbers of ps tasks, for equality
_BYTES_PER_PARAMETER = 4
_MB = 1e6

# Model, its option, steps, and how long a step takes with a ps task, about.
_BY_SIZE = (
    ("softmax", "", 300, 0.003),
    ("mlp", "hidden=128", 300, 0.003),
    ("cnn", "", 300, 0.01),
    ("mlp", "hidden=512,512", 200, 0.01),
    ("mlp", "hidden=1024,1024", 150, 0.025),
    ("mlp", "hidden=2048,2048", 100, 0.09),
)
_QUICK_SIZES = (_BY_SIZE[0], _BY_SIZE[4])
_OTHERS_SHARE = 0.1
_LEAST_SIZES = 3  # two points lie on a line whatever they are
_EQUAL_TOO: tuple[dict[str, Any], ...] = (
    {"optimizer": "momentum"},
    {"optimizer": "adam", "learning_rate": 0.001},
    {"update": "sync"},
    {"update": "ssp"},
    {"num_ps": 2},
    {"layout": "per_variable", "num_ps": 2},
)


class Size(NamedTuple):
    """The runs of one model, all seeds together.

    Attributes:
        model: with its options.
        parameters: how many.
        local: step times of one process, ms.
        cluster: with a ps task, ms.
        is_disturbed: whether something else ran beside all of its runs, so that its times do not count.
    """

    model: str
    parameters: int
    local: Spread
    cluster: Spread
    is_disturbed: bool

    @property
    def megabytes(self) -> float:
        """All parameters, MB of 10⁶ bytes."""
        return self.parameters * _BYTES_PER_PARAMETER / _MB

    @property
    def overhead_ms(self) -> float:
        """Median step with a ps task minus median step without."""
        return self.cluster.median - self.local.median


class LocalOverhead(Experiment):
    """What a ps task costs on one machine: the same losses to the last bit, and a + b·M ms more per step."""

    name = "local_overhead"
    source = "Abadi et al. 2016 (OSDI), Table 1; tensorflow/benchmarks, issue 15"
    scale_down = (
        "One process with a plain loop against 1 worker and 1 or 2 ps tasks as processes of the same machine, models"
        " of 2.6 kB to 17 MB on digits, batch 16, one thread per op. The source's table compares libraries on one"
        " GPU; neither its models nor its GPU are here, and its numbers stand below for reference only."
    )
    published = tuple(
        Published(
            what=f"training step of {model} on one GPU, {library}",
            value=value,
            unit="ms",
            tag=Tag.SUMMARY,
            source="Abadi et al. 2016, Table 1",
        )
        for model, values in {
            "AlexNet": (81, 324, 87, 81),
            "Overfeat": (279, 823, 211, 268),
            "OxfordNet": (540, 1068, 320, 529),
            "GoogleNet": (445, 1935, 270, 470),
        }.items()
        for library, value in zip(("TensorFlow", "Caffe", "Neon", "Torch"), values, strict=True)
    )
    captions = CAPTIONS
    claims = (
        Claim(
            key="equal",
            sentence="One worker with ps tasks has the loss of one process at every step",
            measures="largest |difference| of a step's loss",
            limit=Limit(high=LARGEST_DIFFERENCE),
        ),
        Claim(
            key="slower",
            sentence="A step with a ps task on the same machine is slower than one without",
            measures="median step with a ps task over median step without",
            limit=Limit(low=1.0),
        ),
        Claim(
            key="linear",
            sentence="The overhead is a + b·M for models of M bytes",
            measures="overhead over a + b·M as fitted",
            limit=Limit(low=0.6, high=1.5),
            expected=Limit(low=0.75, high=1.25),
        ),
    )
    num_quick_seeds = 1

    def runs(self, quick: bool, seeds: Sequence[int]) -> list[Run]:
        """See `Experiment`."""
        sizes = _QUICK_SIZES if quick else _BY_SIZE
        runs = [_run(_SIZES, *size, {}, seed) for size in sizes for seed in seeds]
        if quick:
            return runs
        return runs + [_run(_RULES, "mlp", "hidden=128", 200, 0.005, other, seeds[0]) for other in _EQUAL_TOO]

    def carry_out(self, run: Run, folder: pathlib.Path) -> Measured:
        """See `Experiment`."""
        settings = dict(run.settings)
        del settings["part"]
        num_ps = settings.pop("num_ps", 1)
        settings["model_option"] = [option for option in [settings["model_option"]] if option]
        done = local_control.compare(
            {**settings, "seed": run.seed}, folder, num_ps=num_ps, deadline_secs=10 * run.expected_secs
        )
        pushed_bytes = done.cluster.summary["workers"]["0"]["push_bytes_computed"]  # per step: the gradient's
        figures = {
            "loss_difference": done.loss_difference,
            "first_loss": done.local[0]["loss"],
            "last_loss": done.local[-1]["loss"],
            "num_steps": len(done.local),
            "parameters": round(pushed_bytes / _BYTES_PER_PARAMETER),
            "local_ms": done.local_ms(),
            "cluster_ms": done.cluster_ms(),
        }
        return Measured(figures, done.cluster.steps if run.seed == 0 else (), done.cluster.window)

    def analyse(self, results: Results) -> Analysis:
        """See `Experiment`."""
        sizes = sizes_of(results.where(part=_SIZES))
        timed = [size for size in sizes if not size.is_disturbed]
        line = line_of(timed)
        differences = [Measure(r.run.key, r.figures["loss_difference"]) for r in results]
        not_testable = {}
        if line is None:
            not_testable["linear"] = f"needs {_LEAST_SIZES} models whose runs nothing disturbed; has {len(timed)}"
        if not timed:
            not_testable["slower"] = "other programs ran beside every run"
        return Analysis(
            tables=[_size_table(sizes, line), _equality_table(results)],
            measured={
                "equal": differences,
                "slower": [Measure(size.model, size.cluster.median / size.local.median) for size in timed],
                "linear": [Measure(s.model, s.overhead_ms / line.at(s.megabytes)) for s in timed] if line else [],
            },
            not_testable=not_testable,
            notes=[
                *([f"Overhead per step = {line.a:.2f} ms + M · {line.b / 1000:.4f} s/MB."] if line else []),
                f"{sum(one.value == 0 for one in differences)} of {len(differences)} runs have the same losses to the"
                " last bit.",
                "Both sides compute with the same number of threads per op and without TensorFlow's graph rewriting."
                " With other numbers of threads a product of large matrices (1,024 × 1,024) is summed in another"
                " order, and losses differ by some 1e-7: the one difference found while this was built. It is of the"
                " threads, not of the ps tasks.",
                "One worker and one ps task without a pause keep two cores some 75 % busy. That is what is measured"
                " here, not contention: times count wherever other programs took less than a tenth of that.",
                "The ps task pays for copies: parameters and gradient are packed, sent and unpacked, once each way.",
            ],
        )

    def plots(self, results: Results) -> Sequence[Plot]:
        """See `Experiment`."""
        sizes = [size for size in sizes_of(results.where(part=_SIZES)) if not size.is_disturbed]
        if not sizes:
            return ()
        return [
            Plot(
                key="overhead",
                title="What one ps task adds to a step",
                level=_LEVEL.value,
                draw=lambda figure: _draw(figure, sizes),
            )
        ]


def sizes_of(results: Results) -> list[Size]:
    """The runs that are about the overhead, by model."""
    sizes = []
    for (model, option), group in results.by("model", "model_option").items():
        quiet = [result for result in group if not _is_disturbed(result)]
        counted = Results(quiet) if quiet else group
        local, cluster = ([spread(ms).median for ms in counted.figures(name)] for name in ("local_ms", "cluster_ms"))
        name = f"{model} {option}".rstrip()
        parameters = group[0].figures["parameters"]
        sizes.append(Size(name, parameters, spread(local), spread(cluster), not quiet))
    return sizes


def _is_disturbed(result: RunResult) -> bool:
    """Whether anything beside the run took a part of the cores."""
    return result.cpu is not None and result.cpu.others_secs > _OTHERS_SHARE * result.cpu.tasks_secs


def line_of(sizes: Sequence[Size]) -> Line | None:
    """The overhead in ms against MB; None with too few sizes, or where there is none."""
    if len(sizes) < _LEAST_SIZES or any(size.overhead_ms <= 0 for size in sizes):
        return None
    return fit_line([size.megabytes for size in sizes], [size.overhead_ms for size in sizes])


def _run(part: str, model: str, option: str, steps: int, step_secs: float, others: dict[str, Any], seed: int) -> Run:
    settings = {"part": part, "model": model, "model_option": option, "max_steps": steps}
    named = [model, *option.replace(",", "-").split(), *(f"{name}={value}" for name, value in others.items())]
    return Run(
        key="-".join([*named, f"seed={seed}"]),
        level=_LEVEL,
        settings={**_TRAIN, **settings, **others},
        seed=seed,
        expected_secs=_START_SECS + 2 * steps * step_secs,
    )


def _size_table(sizes: Sequence[Size], line: Line | None) -> Table:
    columns = (
        Column(name="model"),
        Column(name="parameters", form=",d"),
        Column(name="local step", form=".2f", unit="ms"),
        Column(name="p10", form=".2f"),
        Column(name="p90", form=".2f"),
        Column(name="step with a ps", form=".2f", unit="ms"),
        Column(name="p10", form=".2f"),
        Column(name="p90", form=".2f"),
        Column(name="overhead", form=".2f", unit="ms"),
        Column(name="a + b·M", form=".2f", unit="ms"),
        Column(name="disturbed"),
    )
    rows = [
        [size.model, size.parameters, *size.local, *size.cluster, size.overhead_ms]
        + [line.at(size.megabytes) if line else None, "yes" if size.is_disturbed else "no"]
        for size in sizes
    ]
    return Table(
        title="Step with and without a ps task; medians of runs", level=_LEVEL.value, columns=columns, rows=rows
    )


def _equality_table(results: Results) -> Table:
    columns = (
        Column(name="run"),
        Column(name="steps", form="d"),
        Column(name="first loss", form=".4f"),
        Column(name="last loss", form=".4f"),
        Column(name="max |Δ loss|", form=".1e"),
    )
    names = ("num_steps", "first_loss", "last_loss", "loss_difference")
    rows = [[result.run.key, *(result.figures[name] for name in names)] for result in results]
    return Table(title="Losses of one process and of a cluster", level=_LEVEL.value, columns=columns, rows=rows)


def _draw(figure: Figure, sizes: Sequence[Size]) -> None:
    axis = figure.add_subplot()
    sizes = sorted(sizes, key=lambda size: size.megabytes)
    axis.plot([s.megabytes for s in sizes], [s.overhead_ms for s in sizes], "o", mfc="none", label="overhead")
    axis.plot([s.megabytes for s in sizes], [s.local.median for s in sizes], "x:", lw=0.8, label="step of one process")
    line = line_of(sizes)
    if line:
        low, high = sizes[0].megabytes, sizes[-1].megabytes
        grid = [low * (high / low) ** (i / 50) for i in range(51)]
        label = f"{line.a:.2f} ms + M · {line.b:.2f} ms/MB"
        axis.plot(grid, [line.at(megabytes) for megabytes in grid], "k-", lw=1, label=label)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("parameters, MB")
    axis.set_ylabel("ms per step")
    axis.legend()
