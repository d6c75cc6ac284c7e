"""`ps_trainer export`: writes a checkpoint as a SavedModel, for programs without this package."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, UsageError
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFlags:
    """Destination of the export."""

    out: str | None = option(None, "folder to write; it must be new or empty")


HELP = CommandHelp(
    usage=("ps_trainer export --logdir=DIR --out=DIR [flags]",),
    text="""Writes the newest loadable checkpoint as a SavedModel, which plain TensorFlow loads:
tf.saved_model.load(out). Its signature serving_default takes, by name, the batch's tensors that the
predictions depend on, and returns "predictions". Where the dataset knows words, a second signature,
words, takes texts and also gives the class, or the text. The command takes model, dataset and their
options from the run's config.json unless the flags give them. It also accepts the other settings of
a run, which change nothing.""",
    examples=(
        ("ps_trainer export --logdir=runs/a --out=runs/a/model", "write the newest checkpoint of a run"),
        ("ps_trainer export --checkpoint_dir=ckpt --model=cnn --out=model", "a folder of checkpoints without a run"),
    ),
    flags=(ExportFlags, CheckpointFlags, TrainConfig),
    common=("out", *run_lookup.COMMON_FLAGS),
    shows_only_common=True,
    own_texts=run_lookup.OWN_TEXTS,
)


def main_export(argv: Sequence[str]) -> int:
    """Exports the latest checkpoint; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, ExportFlags, CheckpointFlags, TrainConfig)
    export_flags, checkpoint_flags, config = parsed.groups
    if not export_flags.out:
        raise UsageError("export: missing --out; name a new folder for the SavedModel")
    out = pathlib.Path(export_flags.out)
    # `exists` is False for a link to a missing path, although the name is taken.
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise UsageError(
            f"--out={out} already exists, and export does not overwrite it; name a new folder, or remove this one"
        )
    config, checkpoint_dir = run_lookup.find(checkpoint_flags, config, parsed.given)
    run_lookup.start()

    logging.getLogger("tensorflow").setLevel(
        logging.ERROR
    )  # TensorFlow's SavedModel code warns about its own deprecated calls

    with importing_tensorflow():
        from ps_trainer.inference import export

    print(export.write(config, checkpoint_dir, out))
    return EXIT_DONE
