"""Makes a `ClusterConfig` from the descriptions of a cluster: flags, `TF_CONFIG`, a JSON file.

Flags take precedence over TF_CONFIG, and TF_CONFIG over the file. Each source may give only a part, for example the
file the addresses and the flags the task. If two sources give the same part, they must agree.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ps_trainer.cluster import config as config_lib
from ps_trainer.cluster.config import FLAGS, ClusterConfig
from ps_trainer.errors import ClusterConfigError
from ps_trainer.options import option

TF_CONFIG = "TF_CONFIG"

_MAX_CHARS = 2**22  # about 100,000 addresses; also ends the reading of an endless file such as /dev/zero

_MINIMAL = (
    "give --ps_hosts=localhost:2222 --worker_hosts=localhost:2223 --task_index=0 to each task (`python run_ps.py`,"
    " `python run_worker.py`), or set TF_CONFIG, or give --cluster_file; `ps_trainer local` starts a whole"
    " cluster on this machine"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """The tasks of the cluster, and the role of this task. TF_CONFIG or --cluster_file may give them instead."""

    ps_hosts: str | None = option(None, "host:port of each ps task, comma-separated, the same for every task")
    worker_hosts: str | None = option(None, "host:port of each worker task, comma-separated")
    chief_hosts: str | None = option(None, "host:port of the chief, if it is not worker 0")
    job_name: str | None = option(None, "job of this task: ps, worker, chief or evaluator")
    task_index: int | None = option(None, "index of this task in its job, from 0; optional in a job of one task")
    cluster_file: str | None = option(None, 'JSON file: {"ps": ["host:port"], "worker": ["host:port", …]}')


_FORM = 'write {"cluster": {"ps": […], "worker": […]}, …}'


class _Given(NamedTuple):
    """The parts that one source gives; None for each part that it does not give."""

    source: str
    jobs: Mapping[str, Any] | None = None
    job_name: str | None = None
    task_index: int | None = None


def from_flags(
    ps_hosts: str | None,
    worker_hosts: str | None,
    chief_hosts: str | None,
    job_name: str | None,
    task_index: int | None,
) -> ClusterConfig:
    """Returns the cluster from the values of TF1's flags.

    Raises:
        ClusterConfigError: The description is incomplete or wrong.
    """
    flags = ClusterFlags(
        ps_hosts=ps_hosts,
        worker_hosts=worker_hosts,
        chief_hosts=chief_hosts,
        job_name=job_name,
        task_index=task_index,
    )
    return _merge([_read_flags(flags)], config_lib.JOB_NAMES, None)


def from_tf_config(text: str) -> ClusterConfig:
    """Returns the cluster from the value of the environment variable TF_CONFIG.

    Raises:
        ClusterConfigError: The text is not JSON, or the description is incomplete or wrong.
    """
    return _merge([_read_tf_config(text)], config_lib.JOB_NAMES, None)


def from_file(path: str | pathlib.Path, job_name: str | None, task_index: int | None) -> ClusterConfig:
    """Returns the cluster from a JSON file, and the task from the file's entry "task" or the flags.

    Args:
        path: File with `{"cluster": {"ps": […], "worker": […]}, "task": {"type": …, "index": …}}`, the task
            optional, or only `{"ps": […], "worker": […]}`.
        job_name: Value of --job_name, or None.
        task_index: Value of --task_index, or None.

    Raises:
        ClusterConfigError: The file cannot be read or is not JSON, or the description is incomplete or wrong.
    """
    given = [_read_flags(ClusterFlags(job_name=job_name, task_index=task_index)), _read_file(path)]
    return _merge(given, config_lib.JOB_NAMES, None)


def resolve(
    flags: ClusterFlags,
    environ: Mapping[str, str],
    *,
    roles: Sequence[str] = config_lib.JOB_NAMES,
    default_role: str | None = None,
    is_colocated: bool = False,
) -> ClusterConfig:
    """Returns the cluster from all given sources.

    Args:
        flags: Values of the cluster flags.
        environ: Environment of the process, which may contain `TF_CONFIG`.
        roles: Jobs that the command can run; for run_ps.py only "ps".
        default_role: Job of this task if no source names one.
        is_colocated: Whether the workers hold the parameters, so that there are no ps tasks.

    Raises:
        ClusterConfigError: No source is given, a source is wrong, two sources disagree, or `roles` lacks the job.
    """
    given = [_read_flags(flags)]
    if environ.get(TF_CONFIG, "").strip():
        given.append(_read_tf_config(environ[TF_CONFIG]))
    if flags.cluster_file is not None:
        given.append(_read_file(flags.cluster_file))
    return _merge(given, roles, default_role, is_colocated=is_colocated)


def _read_flags(flags: ClusterFlags) -> _Given:
    lists = {"ps": flags.ps_hosts, "worker": flags.worker_hosts, "chief": flags.chief_hosts}
    if lists["chief"] == "":  # TF1 scripts pass an empty --chief_hosts for "none"
        lists["chief"] = None
    jobs = {job: _split(text) for job, text in lists.items() if text is not None}
    return _Given(FLAGS, jobs or None, flags.job_name, flags.task_index)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text.strip() else ()


def _read_tf_config(text: str) -> _Given:
    content = _parse_json(text, TF_CONFIG)
    if misplaced := sorted(set(content) & set(config_lib.JOB_NAMES)):
        raise ClusterConfigError(
            f'{TF_CONFIG} has {", ".join(misplaced)} at the top; write {{"cluster": {{"ps": […], …}}, "task": …}}'
        )
    return _Given(TF_CONFIG, content.get("cluster") or None, *_read_task(content, TF_CONFIG))


def _read_file(path: str | pathlib.Path) -> _Given:
    source = f"cluster file {path}"
    try:
        with pathlib.Path(path).open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARS + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ClusterConfigError(f"--cluster_file={path}: cannot be read: {reason}; give a JSON file") from error
    if len(text) > _MAX_CHARS:
        raise ClusterConfigError(f"--cluster_file={path} has more than {_MAX_CHARS} characters; give a JSON file")
    content = _parse_json(text, source)
    if "cluster" in content:
        return _Given(source, content["cluster"], *_read_task(content, source))
    return _Given(source, content)


def _read_task(content: Mapping[str, Any], source: str) -> tuple[str | None, int | None]:
    """Returns job name and index of the entry "task"; None for a missing one."""
    task = content.get("task")
    if not task:
        return None, None
    if not isinstance(task, Mapping):
        raise ClusterConfigError(f'{source} task={task!r}: write {{"type": "worker", "index": 0}}')
    index = task.get("index")
    # TensorFlow's own reader also accepts an index as text.
    if isinstance(index, str) and index.isascii() and index.isdigit() and len(index) < 10:
        index = int(index)
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise ClusterConfigError(f"{source} task.index={index!r} is not a whole number")
    return task.get("type"), index


def _parse_json(text: str, source: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ClusterConfigError(f"{source}: the key {twice!r} is given twice; keep one of them")
        return result

    try:
        content = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ClusterConfigError(
            f"{source} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}, near"
            f" {text[max(0, error.pos - 10) : error.pos + 10]!r}; names and addresses need double quotes"
        ) from error
    except ValueError as error:
        # The only other error of this kind: Python limits the number of digits that it converts to an int.
        raise ClusterConfigError(f"{source} contains a number with too many digits; {_FORM}") from error
    except RecursionError as error:
        raise ClusterConfigError(f"{source} is nested too deeply; {_FORM}") from error
    if not isinstance(content, dict):
        raise ClusterConfigError(f"{source}: got {content!r}; {_FORM}")
    return content


def _merge(
    given: Sequence[_Given], roles: Sequence[str], default_role: str | None, *, is_colocated: bool = False
) -> ClusterConfig:
    """Returns the configuration on which all sources agree; `given` is in order of precedence."""
    jobs_source, jobs = _agreed_jobs(given, is_colocated=is_colocated)
    job_source, job_name = _agreed_job_name(given, roles, default_role)
    index_source, task_index = _agreed_index(given)
    if task_index is None:
        num_tasks = 1 if job_name == "evaluator" else len(jobs.get(job_name, ("",)))
        if num_tasks > 1:
            raise ClusterConfigError(
                f"--task_index is missing: the job {job_name} has {num_tasks} tasks; give 0..{num_tasks - 1}"
            )
        task_index = 0
    if is_colocated and job_name == "ps":
        raise ClusterConfigError(
            "--placement=colocated: the workers hold the parameters, so there is no ps task; start the workers only"
        )
    # First with index 0, so that a job without addresses is reported with the source that names the job.
    config_lib.check_task(jobs, job_name, 0, job_source)
    config_lib.check_task(jobs, job_name, task_index, index_source)
    return ClusterConfig(
        jobs=jobs, job_name=job_name, task_index=task_index, is_colocated=is_colocated, source=jobs_source
    )


def _agreed_jobs(given: Sequence[_Given], *, is_colocated: bool) -> tuple[str, dict[str, tuple[str, ...]]]:
    every = [
        (g.source, config_lib.normalise_jobs(g.jobs, g.source, is_colocated=is_colocated))
        for g in given
        if g.jobs is not None
    ]
    if not every:
        empty = [g.source for g in given if g.source != FLAGS]
        raise ClusterConfigError(
            f"{empty[0]} has no cluster; {_MINIMAL}" if empty else f"the cluster is not described; {_MINIMAL}"
        )
    source, jobs = every[0]
    for other_source, other in every[1:]:
        for job in [*jobs, *other]:
            if jobs.get(job) != other.get(job):
                raise ClusterConfigError(
                    f"{source} and {other_source} disagree on {job}:"
                    f" {config_lib.field_name(source, job)}={_format_hosts(jobs.get(job))},"
                    f" {config_lib.field_name(other_source, job)}={_format_hosts(other.get(job))};"
                    " make them equal or remove one of the two"
                )
    return source, jobs


def _agreed_job_name(given: Sequence[_Given], roles: Sequence[str], default_role: str | None) -> tuple[str, str]:
    names = [(g.source, config_lib.normalise_job_name(g.job_name, g.source)) for g in given if g.job_name is not None]
    for source, name in names:
        if name not in roles:
            raise ClusterConfigError(
                f"{config_lib.task_field_name(source, 'type')}={name}, but this command runs only"
                f" {' or '.join(roles)}; use run_ps.py for ps, run_worker.py for the others, or `ps_trainer task`"
            )
    _check_equal(names, "type")
    if names:
        return names[0]
    if default_role is None:
        raise ClusterConfigError(f"--job_name is missing; give one of {', '.join(roles)}")
    return FLAGS, default_role


def _agreed_index(given: Sequence[_Given]) -> tuple[str, int | None]:
    indices = [(g.source, g.task_index) for g in given if g.task_index is not None]
    _check_equal(indices, "index")
    return indices[0] if indices else (FLAGS, None)


def _check_equal(values: Sequence[tuple[str, Any]], field: str) -> None:
    for other_source, other in values[1:]:
        source, value = values[0]
        if other != value:
            raise ClusterConfigError(
                f"{source} and {other_source} disagree on this task:"
                f" {config_lib.task_field_name(source, field)}={value},"
                f" {config_lib.task_field_name(other_source, field)}={other};"
                " make them equal or remove one of the two"
            )


def _format_hosts(hosts: tuple[str, ...] | None) -> str:
    return ",".join(hosts) if hosts else "none"
