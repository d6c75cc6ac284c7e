"""python -m tests.mutation: the number of random mutants of the package that its tests notice.

    python -m tests.mutation --seed=13 --count=60 --table=mutants.csv

It takes a commit's files, never those of the working tree. A stopped campaign continues when it is called again.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import subprocess
import tempfile

from tests.mutation.campaign import ERROR, Campaign, write_table

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("updates", "gradients", "optimizers", "store", "training", "inference")


def main() -> None:
    """Runs a campaign according to the flags."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=13, help="seed of the choice of places (default: %(default)s)")
    parser.add_argument("--count", type=int, default=60, help="number of places to change (default: %(default)s)")
    parser.add_argument("--commit", default="HEAD", help="commit whose files are changed (default: %(default)s)")
    parser.add_argument(
        "--folder", action="append", choices=FOLDERS, help="folder of ps_trainer to change (default: all of these)"
    )
    parser.add_argument("--exclude", action="append", default=[], help="file that is not changed")
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        help="folder for the copies of the files, kept for the next call (default: a temporary one per commit)",
    )
    parser.add_argument("--table", type=pathlib.Path, help="CSV file to write, a line per mutant")
    parser.add_argument("--list", action="store_true", help="show the mutants only")
    flags = parser.parse_args()
    git = ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{flags.commit}^{{commit}}"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    campaign = Campaign(
        repository=ROOT,
        commit=commit,
        package="ps_trainer",
        folders=tuple(flags.folder or FOLDERS),
        work=flags.work or pathlib.Path(tempfile.gettempdir()) / f"ps_trainer-mutation-{commit[:12]}",
        excluded=tuple(flags.exclude),
    )
    campaign.export()
    mutants = campaign.pick(flags.seed, flags.count)
    print(f"commit {commit}, seed {flags.seed}: {len(mutants)} of {len(campaign.places())} places, in {campaign.work}")
    if flags.list:
        for number, mutant in enumerate(mutants, 1):
            print(f"{number} {mutant.path}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}")
        return
    results = campaign.run(mutants, lambda line: print(line, flush=True))
    if flags.table:
        write_table(flags.table, results)
    outcomes = collections.Counter(verdict.outcome for _, verdict in results)
    print(dict(outcomes))
    if outcomes[ERROR]:
        raise SystemExit(f"pytest could not run the tests of {outcomes[ERROR]} mutants; their lines name its exit code")


if __name__ == "__main__":
    main()
