"""`ps_trainer embeddings`: the word vectors of a trained model: near words, analogies, files for other programs."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli import run_lookup
from ps_trainer.cli.command_wrapper import importing_tensorflow, run_main
from ps_trainer.cli.help import CommandHelp
from ps_trainer.cli.run_lookup import CheckpointFlags
from ps_trainer.errors import EXIT_DONE, UsageError
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingsFlags:
    """Vectors to read, and what to write."""

    logdir: str | None = option(None, run_lookup.OWN_TEXTS["logdir"])
    table: str | None = option(None, "variable with the vectors; none = the model's own table of words")
    vocabulary: str | None = option(None, "words of the table's rows, such as source; none = the run's only vocabulary")
    count: int = option(10, "number of words to print", least=1)
    format: str = option("text", "format of word2vec", choices=("text", "binary"))
    out: str | None = option(None, "file to write; an existing file is replaced")


HELP = CommandHelp(
    usage=(
        "ps_trainer embeddings nearest WORD --logdir=DIR [flags]",
        "ps_trainer embeddings analogy A B C --logdir=DIR [flags]",
        "ps_trainer embeddings export --logdir=DIR --out=FILE [flags]",
    ),
    text="""nearest  prints the words whose vectors have the largest cosine to the vector of WORD
analogy  prints the words d with A is to B as C is to d: those nearest to B - A + C
export   writes all words and vectors in the text or binary format of word2vec, which gensim and other
        programs read

The command reads the newest loadable checkpoint and the run's vocabulary.json. It does not need the data.""",
    examples=(
        ("ps_trainer embeddings nearest king --logdir=runs/words", "the ten words nearest to king"),
        ("ps_trainer embeddings analogy man king woman --logdir=runs/words", "man is to king as woman is to …"),
        ("ps_trainer embeddings export --logdir=runs/words --out=words.vec", "vectors for other programs"),
    ),
    flags=(EmbeddingsFlags, CheckpointFlags),
    common=("count", "table", "vocabulary", "logdir", "checkpoint_dir", "out", "format"),
    words=("nearest", "analogy", "export"),
    words_after={"nearest": (), "analogy": (), "export": ()},
)


def main_embeddings(argv: Sequence[str]) -> int:
    """Runs the action that `argv` names; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    action = flags_lib.action_of(argv, HELP, "embeddings", _ACTIONS)
    words, flags = _split(argv[2:])
    parsed = flags_lib.parse([argv[0], *flags], HELP, EmbeddingsFlags, CheckpointFlags)
    embeddings_flags, checkpoint_flags = parsed.groups
    wanted, act = _ACTIONS[action]
    if len(words) != len(wanted):
        needs = " ".join(wanted) or "no words"
        raise UsageError(
            f"embeddings {action} takes {needs}, got {len(words)} words{': ' if words else ''}{' '.join(words)};"
            " write every flag as --name=value"
        )
    if action == "export":
        _check_out(embeddings_flags.out)
    folder = run_lookup.find_checkpoints(embeddings_flags.logdir, checkpoint_flags.checkpoint_dir)
    run_lookup.start()

    with importing_tensorflow():
        from ps_trainer.inference import word_vectors

    act(word_vectors.load(folder, embeddings_flags.table, embeddings_flags.vocabulary), words, embeddings_flags)
    return EXIT_DONE


def _split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the words and the flags; after `--` everything is a word, also one that begins with a dash."""
    cut = args.index("--") if "--" in args else len(args)
    words = [arg for arg in args[:cut] if not arg.startswith("-")]
    return [*words, *args[cut + 1 :]], [arg for arg in args[:cut] if arg.startswith("-")]


def _check_out(out: str | None) -> None:
    if not out:
        raise UsageError("embeddings export: missing --out; name a file for the vectors")
    if pathlib.Path(out).is_dir():
        raise UsageError(f"--out={out} is a folder; name a file")


def _nearest(vectors: Any, words: Sequence[str], embeddings_flags: EmbeddingsFlags) -> None:
    _print(vectors.nearest(words[0], embeddings_flags.count))


def _analogy(vectors: Any, words: Sequence[str], embeddings_flags: EmbeddingsFlags) -> None:
    _print(vectors.analogy(words[0], words[1], words[2], embeddings_flags.count))


def _export(vectors: Any, words: Sequence[str], embeddings_flags: EmbeddingsFlags) -> None:
    print(vectors.write(pathlib.Path(str(embeddings_flags.out)), embeddings_flags.format))


def _print(neighbours: Sequence[tuple[str, float]]) -> None:
    for word, cosine in neighbours:
        shown = word if word.isprintable() and word != " " else repr(word)
        print(f"{cosine:.4f}  {shown}")


# Action -> the words after it, and the function. Its first argument is a `WordVectors`, which needs TensorFlow.
_ACTIONS: dict[str, tuple[tuple[str, ...], Callable[[Any, Sequence[str], EmbeddingsFlags], None]]] = {
    "nearest": (("WORD",), _nearest),
    "analogy": (("A", "B", "C"), _analogy),
    "export": ((), _export),
}
