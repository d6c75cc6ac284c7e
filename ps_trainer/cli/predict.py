"""`ps_trainer predict`: a checkpoint's predictions for a dataset's test examples, a file, or lines from stdin."""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, UsageError, did_you_mean
from ps_trainer.options import option

FORMS = (".csv", ".jsonl", ".npy")
STREAM = "-"
"""Value of --input or --out for stdin or stdout."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictFlags:
    """Input and output."""

    input: str | None = option(
        None, "file in the dataset's format, or - for lines from stdin; none = the dataset's test examples"
    )
    out: str | None = option(
        None, "file to write, .csv, .jsonl or .npy; an existing file is replaced; none or - = lines of JSON on stdout"
    )


HELP = CommandHelp(
    usage=("ps_trainer predict --logdir=DIR [--input=FILE] [--out=FILE] [flags]",),
    text="""Runs the newest loadable checkpoint over the test examples of the dataset, or over all examples of a
file in the dataset's format, and writes one prediction for each, in their order. For a dataset of
images the file may be one JPEG, PNG, GIF or BMP file, for wav one WAV file. --input=- reads lines from
stdin and predicts for each as it arrives: rows of a table, or texts. The command takes model, dataset
and their options from the run's config.json unless the flags give them. It also accepts the other
settings of a run, which change nothing.

The name of the output selects its format: .csv has a header and a row of numbers per example, .jsonl a
line of JSON per example, .npy one array of all predictions. Without --out, lines of JSON go to stdout.""",
    examples=(
        ("ps_trainer predict --logdir=runs/a --out=predictions.csv", "predict the test examples"),
        ("ps_trainer predict --logdir=runs/cnn --input=photo.png", "predict for one picture"),
        ("ps_trainer predict --logdir=runs/table --input=-", "predict for lines from stdin"),
    ),
    flags=(PredictFlags, CheckpointFlags, TrainConfig),
    common=("input", "out", *run_lookup.COMMON_FLAGS),
    shows_only_common=True,
    own_texts=run_lookup.OWN_TEXTS,
)


def main_predict(argv: Sequence[str]) -> int:
    """Writes the predictions; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, PredictFlags, CheckpointFlags, TrainConfig)
    predict_flags, checkpoint_flags, config = parsed.groups
    out = _check_out(predict_flags.out)
    source = pathlib.Path(predict_flags.input) if predict_flags.input else None
    reads_stdin = predict_flags.input == STREAM
    if source is not None and not reads_stdin and not source.is_file():
        raise UsageError(f"--input={source} is not a file; give a file in the format of the dataset, or - for stdin")
    if source is not None and out is not None and out.exists() and out.samefile(source):
        raise UsageError(f"--out={out} would replace the input; name another file")
    config, checkpoint_dir = run_lookup.find(checkpoint_flags, config, parsed.given)
    run_lookup.start()

    with importing_tensorflow():
        from ps_trainer.inference import prediction

    lines = open(0, "rb", closefd=False) if reads_stdin else None  # noqa: SIM115 - nothing to close
    told = prediction.write(config, checkpoint_dir, lines or source, out or sys.stdout.buffer)
    print(told, file=sys.stdout if out else sys.stderr)
    return EXIT_DONE


def _check_out(given: str | None) -> pathlib.Path | None:
    """Returns the file to write; None for stdout."""
    if not given or given == STREAM:
        return None
    out = pathlib.Path(given)
    if out.suffix not in FORMS:
        raise UsageError(
            f"--out={given}: the end of the name selects the format; {did_you_mean(out.suffix, FORMS)}known:"
            f" {', '.join(FORMS)}"
        )
    if out.is_dir():
        raise UsageError(f"--out={given} is a folder; name a file")
    return out
