"""`ps_trainer generate`: continues a prompt with a trained language model, or translates it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, UsageError
from ps_trainer.options import option

_LENGTH = 200
# Flags that only a language model, or only a translation model, uses.
_OF_DRAWS = ("temperature", "top_k", "seed")
_OF_SEARCHES = ("beam_size", "length_penalty")


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateTextFlags:
    """The prompt, and how to draw the text after it."""

    prompt: str = option("", "text to continue or to translate")
    length: int | None = option(
        None,
        "number of characters or words to generate; none = 200, or for a translation at most the data's max_length",
        least=1,
    )
    temperature: float = option(1.0, "divisor of the logits; 0 takes the most probable token always", least=0)
    top_k: int | None = option(None, "number of most probable tokens to draw from; none = all", least=1)
    beam_size: int | None = option(
        None, "hypotheses of the search for a translation; 1 = greedy, none = the model's option", least=1
    )
    length_penalty: float | None = option(
        None, "exponent by which a translation may be longer; 0 = none, none = the model's option", least=0
    )


HELP = CommandHelp(
    usage=("ps_trainer generate --logdir=DIR --prompt=TEXT [flags]",),
    text="""Prints the prompt and the text that a language model, gpt or lstm_lm, generates after it; or the
translation of the prompt by a transformer, found by beam search. The command reads the newest loadable
checkpoint, and the words from the run's vocabulary.json. It does not need the data. The same seed gives
the same text.""",
    examples=(
        ('ps_trainer generate --logdir=runs/gpt --prompt="In the beginning"', "200 characters after a prompt"),
        ("ps_trainer generate --logdir=runs/gpt --prompt=The --temperature=0", "the most probable characters"),
        ('ps_trainer generate --logdir=runs/en-zh --prompt="twelve thousand" --beam_size=4', "a translation"),
    ),
    flags=(GenerateTextFlags, CheckpointFlags, TrainConfig),
    common=("prompt", "length", *_OF_DRAWS, *_OF_SEARCHES, *run_lookup.COMMON_FLAGS),
    shows_only_common=True,
    own_texts={**run_lookup.OWN_TEXTS, "seed": "seed of the draws; default: 0"},
)


def main_generate(argv: Sequence[str]) -> int:
    """Prints the text; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    parsed = flags_lib.parse(argv, HELP, GenerateTextFlags, CheckpointFlags, TrainConfig)
    generate_flags, checkpoint_flags, config = parsed.groups
    config, checkpoint_dir = run_lookup.find(checkpoint_flags, config, parsed.given)
    run_lookup.start()

    with importing_tensorflow():
        from ps_trainer.inference import generation

    model = generation.create_model(config)
    is_translation = generation.translates(model)
    wrong = sorted(set(_OF_DRAWS if is_translation else _OF_SEARCHES) & set(parsed.given))
    if wrong:
        does = "translates by a search" if is_translation else "draws its text"
        raise UsageError(f"--{wrong[0]} has no effect: {config.model} {does}; leave the flag out")
    if is_translation:
        search = generation.Search(generate_flags.beam_size, generate_flags.length_penalty, generate_flags.length)
        print(generation.translate(config, checkpoint_dir, model, generate_flags.prompt, search))
        return EXIT_DONE
    sampling = generation.Sampling(
        generate_flags.temperature, generate_flags.top_k, generate_flags.length or _LENGTH, config.seed
    )
    is_first = True
    for token in generation.generate(config, checkpoint_dir, model, generate_flags.prompt, sampling):
        print((generate_flags.prompt if is_first else "") + token, end="", flush=True)
        is_first = False
    print()
    return EXIT_DONE
