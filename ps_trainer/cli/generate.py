"""`ps_trainer generate`: goes on from a prompt with a trained language model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import hidden_stderr, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateFlags:
    """The prompt, and how to draw the text after it."""

    prompt: str = option("", "text to go on from")
    length: int = option(200, "number of characters or words to generate", least=1)
    temperature: float = option(1.0, "divisor of the logits; 0 takes the most probable token always", least=0)
    top_k: int | None = option(None, "number of most probable tokens to draw from; none = all", least=1)


HELP = CommandHelp(
    usage=("ps_trainer generate --logdir=DIR --prompt=TEXT [flags]",),
    text="""Prints the prompt and the text that a language model, gpt or lstm_lm, generates after it. The command
reads the newest loadable checkpoint, and the words from the run's vocabulary.json. It does not need the
data. The same seed gives the same text.""",
    examples=(
        ('ps_trainer generate --logdir=runs/gpt --prompt="In the beginning"', "200 characters after a prompt"),
        ("ps_trainer generate --logdir=runs/gpt --prompt=The --temperature=0", "the most probable characters"),
    ),
    flags=(GenerateFlags, CheckpointFlags, TrainConfig),
    common=("prompt", "length", "temperature", "top_k", "seed", *run_lookup.COMMON_FLAGS),
    shows_only_common=True,
    own_texts={**run_lookup.OWN_TEXTS, "seed": "seed of the draws; default: 0"},
)


def main_generate(argv: Sequence[str]) -> int:
    """Prints the text; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, GenerateFlags, CheckpointFlags, TrainConfig)
    own, checkpoint_flags, config = parsed.groups
    config, checkpoint_dir = run_lookup.find(checkpoint_flags, config, parsed.given)
    run_lookup.start()

    with hidden_stderr():
        from ps_trainer.training import generation

    sampling = generation.Sampling(own.temperature, own.top_k, own.length, config.seed)
    is_first = True
    for token in generation.generate(config, checkpoint_dir, own.prompt, sampling):
        print((own.prompt if is_first else "") + token, end="", flush=True)
        is_first = False
    print()
    return EXIT_DONE
