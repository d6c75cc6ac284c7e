"""The runs of a published page, from which its plots are drawn again when only the code that draws them has changed.

`docs/results/figures/<experiment>.jsonl.gz` has a line per run: its key, and its `result.json` (`run_store.py`). Logs
and step records are not in it.
"""

from __future__ import annotations

import gzip
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from ps_trainer.errors import UsageError
from ps_trainer.experiments.harness.base import Experiment
from ps_trainer.experiments.harness.run_store import to_result
from ps_trainer.experiments.harness.runs import Results

_DIGITS = 6  # significant digits of the figures; plots and tables show fewer


def pack(runs: pathlib.Path, keys: Iterable[str]) -> bytes:
    """Returns the archive of the runs with these keys in an experiment's folder `runs`.

    Other runs stay out: of settings that the experiment had before. The same runs give the same bytes.
    """
    records = [(key, json.loads((runs / key / "result.json").read_text(encoding="utf-8"))) for key in sorted(keys)]
    # The settings identify a run, so they keep all digits.
    lines = [{"key": key, **record, "figures": _rounded(record["figures"])} for key, record in records]
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
    return gzip.compress(text.encode(), mtime=0)


def read(archive: pathlib.Path, experiment: Experiment) -> Results:
    """Returns the archived runs in the order of a full run of the experiment.

    Raises:
        UsageError: The experiment does not plan one of the runs any more, or not on this machine.
        ValueError: A figure that the code needs is not in the archive.
    """
    with gzip.open(archive, "rt", encoding="utf-8") as file:
        records: dict[str, Mapping[str, Any]] = {line["key"]: line for line in map(json.loads, file)}
    planned = experiment.runs(range(experiment.num_seeds), quick=False)
    found = [run for run in planned if run.key in records and records[run.key]["run"] == run.identity()]
    if missing := sorted(records.keys() - {run.key for run in found}):
        raise UsageError(
            f"{archive} has {len(missing)} runs that {experiment.name} does not plan with these settings on this"
            f" machine, {missing[0]} first; run the experiment again, or draw on a machine that can make all its runs"
        )
    return Results(to_result(run, records[run.key], experiment.read_figures, archive.parent) for run in found)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list) else value
