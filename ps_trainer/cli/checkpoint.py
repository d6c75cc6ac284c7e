"""`ps_trainer checkpoint`: shows what checkpoints contain, and whether they are complete and fit a run."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence

from ps_trainer.cli import flags as flags_lib
from ps_trainer.cli.command_wrapper import run_main, start_tensorflow
from ps_trainer.cli.help import CommandHelp
from ps_trainer.config import TrainConfig
from ps_trainer.errors import EXIT_DONE, EXIT_FAILED, UsageError
from ps_trainer.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """The cluster of the planned run; its other flags follow below."""

    num_ps: int = option(1, "ps tasks", least=1)
    num_workers: int = option(2, "worker tasks, including the chief", least=1)


HELP = CommandHelp(
    usage=(
        "ps_trainer checkpoint info DIR_OR_PREFIX",
        "ps_trainer checkpoint verify DIR",
        "ps_trainer checkpoint plan DIR [flags of a run]",
    ),
    text="""info    prints step, variables, slots and sizes of a checkpoint; given a folder, of its newest
        loadable checkpoint
verify  reads every tensor of every checkpoint; exit code 1 if the newest cannot be loaded
plan    prints what a run with these flags would restore, initialise, ignore or reject; exit code 1 if
        it would reject

DIR is a folder of checkpoints or the --logdir of a run. No cluster is started.""",
    examples=(
        ("ps_trainer checkpoint verify runs/a", "check all checkpoints of a run"),
        ("ps_trainer checkpoint plan runs/a --num_ps=2 --optimizer=adam", "what a run with 2 ps tasks would restore"),
    ),
    flags=(PlanFlags, TrainConfig),
    common=(
        *("num_ps", "num_workers", "model", "model_option", "dataset", "dataset_option", "data_dir"),
        *("update", "update_option", "optimizer", "optimizer_option"),
    ),
    words=("info", "verify", "plan"),
    words_after={"info": (), "verify": (), "plan": ()},
)


def main_checkpoint(argv: Sequence[str]) -> int:
    """Runs the action that `argv` names; returns the exit code."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    action, rest = flags_lib.action_of(argv, HELP, "checkpoint", _ACTIONS), list(argv[2:])
    if not rest or rest[0].startswith("-"):
        # Help, or the error about a wrong flag, comes before the error about the missing folder.
        flags_lib.parse([argv[0], *rest], HELP, PlanFlags, TrainConfig)
        raise UsageError(f"checkpoint {action}: give a folder: ps_trainer checkpoint {action} DIR")
    return _ACTIONS[action](argv[0], pathlib.Path(rest[0]), rest[1:])


def _info(program: str, path: pathlib.Path, flags: list[str]) -> int:
    _no_flags("info", flags)
    start_tensorflow()

    # After `_start`, as in all commands: TensorFlow reads its environment once, while it is imported.
    from ps_trainer.checkpoints import report

    print(report.describe(report.find_checkpoint(path)))
    return EXIT_DONE


def _verify(program: str, path: pathlib.Path, flags: list[str]) -> int:
    _no_flags("verify", flags)
    start_tensorflow()

    from ps_trainer.checkpoints import report

    folder = report.find_folder(path)
    findings = report.check(folder)
    if not findings:
        raise UsageError(f"checkpoint verify: {folder} holds no checkpoint; give the folder of a run that has saved")
    print(report.report(folder, findings))
    # The last finding is the newest checkpoint, from which a run would continue.
    return EXIT_FAILED if findings[-1].fault else EXIT_DONE


def _plan(program: str, path: pathlib.Path, flags: list[str]) -> int:
    parsed = flags_lib.parse([program, *flags], HELP, PlanFlags, TrainConfig)
    plan_flags, config = parsed.groups
    config.check()
    start_tensorflow()

    from ps_trainer.checkpoints import report
    from ps_trainer.training import checkpoint_plan, model_defaults

    folder = report.find_folder(path)
    config = model_defaults.fill_in_defaults(config, parsed.given, plan_flags.num_workers, checkpoints=folder).config
    plan = checkpoint_plan.make(config, folder, num_ps=plan_flags.num_ps, num_workers=plan_flags.num_workers)
    print(plan.text)
    return EXIT_DONE if plan.fits else EXIT_FAILED


_ACTIONS: dict[str, Callable[[str, pathlib.Path, list[str]], int]] = {"info": _info, "verify": _verify, "plan": _plan}


def _no_flags(action: str, flags: list[str]) -> None:
    flags_lib.show_help_if_asked([action, *flags], HELP)
    if flags:
        raise UsageError(f"checkpoint {action}: unexpected {flags[0]!r}; the action takes one folder and no flags")
