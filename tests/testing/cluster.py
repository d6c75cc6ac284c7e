"""A whole cluster in the test's own process: the servers are real, and each task's code runs in a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import group_of
from ps_trainer.config import TrainConfig
from ps_trainer.errors import Interrupted
from ps_trainer.runtime import environment, tensorflow_import

environment.prepare(is_ps=False)
tensorflow_import.load()

from ps_trainer.api.servers import ServerSet, clear_control  # noqa: E402 - the environment comes first
from ps_trainer.runtime.job_runner import StopRequest  # noqa: E402
from ps_trainer.runtime.ps import PsTask  # noqa: E402
from ps_trainer.training import components as components_lib  # noqa: E402
from ps_trainer.training.chief import Chief  # noqa: E402
from ps_trainer.training.stage_host import StageHost  # noqa: E402
from ps_trainer.training.worker import Worker  # noqa: E402
from ps_trainer.training.worker_progress import WorkerProgress  # noqa: E402
from ps_trainer.training.worker_task import WorkerTask  # noqa: E402

DEADLINE_SECS = 180.0
"""Against a hang only: a slow machine is not a failure."""


class RecordedProgress(WorkerProgress):
    """A `Progress` that keeps the numbers of every step."""

    def __init__(self, batch_size: int):
        super().__init__(batch_size)
        self.losses: list[float] = []
        self.global_steps: list[int] = []
        self.staleness_values: list[np.ndarray] = []

    def add(self, global_step: int, staleness: np.ndarray, loss: float, times: Sequence[float] = ()) -> None:
        self.losses.append(float(loss))
        self.global_steps.append(int(global_step))
        self.staleness_values.append(np.array(staleness))
        super().add(global_step, staleness, loss, times)


@contextlib.contextmanager
def held(progress: RecordedProgress) -> Iterator[None]:
    """Holds a worker at the end of its step for as long as the context is open."""
    release, add = threading.Event(), progress.add

    def wait_and_add(*args: Any) -> None:
        release.wait(DEADLINE_SECS)
        add(*args)

    progress.add = wait_and_add  # type: ignore[method-assign]
    try:
        yield
    finally:
        release.set()


class Outcome(NamedTuple):
    """The end of one worker, with its error if there was one."""

    code: int | None
    error: BaseException | None
    worker: WorkerTask
    progress: RecordedProgress

    @property
    def losses(self) -> list[float]:
        return self.progress.losses


class _Servers(ServerSet):
    """Servers of a cluster, whose ps tasks serve one job after another.

    A cluster that ended well leaves its servers, with its ps tasks, to the next cluster of its shape.
    """

    _unused: dict[tuple[int, int], list[_Servers]] = {}

    def __init__(self, num_ps: int, num_workers: int):
        config = TrainConfig(intra_op_threads=1, inter_op_threads=2)
        super().__init__(num_ps, num_workers, config)
        self._stop = StopRequest()
        self._ps_calls = []
        for ps in range(num_ps):
            task = PsTask(self.task("ps", ps), config, self.by_task[f"ps-{ps}"], keep_serving=True)
            self._ps_calls.append(_Call(lambda task=task: task.serve(self._stop)))

    @classmethod
    def borrow(cls, num_ps: int, num_workers: int) -> _Servers:
        """Returns servers that no cluster uses; creates them if there are none."""
        unused = cls._unused.setdefault((num_ps, num_workers), [])
        return unused.pop() if unused else cls(num_ps, num_workers)

    def leave(self) -> None:
        """Leaves the servers to another cluster; no job may be running on them."""
        self._unused.setdefault((len(self.jobs.get("ps", ())), len(self.jobs["worker"])), []).append(self)

    def end(self) -> None:
        """Ends the ps tasks of servers on which an op may still be waiting."""
        self._stop.request(Interrupted(15))
        for call in self._ps_calls:
            call.join(DEADLINE_SECS)


class InProcessCluster:
    """A cluster in this process; its ps tasks serve job after job until `close`.

    Args:
        num_ps: Number of ps tasks; 0 = the workers hold the parameters.
        num_workers: Number of workers.
        is_new: Whether the servers must be new ones, which keep nothing of an earlier job.
    """

    def __init__(self, num_ps: int, num_workers: int, *, is_new: bool = False):
        self.num_ps, self.num_workers = num_ps, num_workers
        self._servers = (_Servers if is_new else _Servers.borrow)(num_ps, num_workers)
        self._calls: list[_Call] = []

    def task(self, job_name: str, index: int) -> ClusterConfig:
        return self._servers.task(job_name, index)

    def start(self, config: TrainConfig, index: int, **overrides: Any) -> _Call:
        """Starts worker `index` in a thread; `overrides` replace fields of its config, such as its components."""
        cluster = self.task("worker", index)
        components = overrides.get("components") or components_lib.load(config, cluster.num_workers)
        made: list[RecordedProgress] = []

        def create_progress(batch_size: int) -> RecordedProgress:
            made.append(RecordedProgress(batch_size))
            return made[-1]

        server = self._servers.by_task[cluster.task_name]
        group = group_of(cluster, components.num_stages)
        if group.stage:
            worker = StageHost(cluster, config, group, server)
            made.append(RecordedProgress(config.batch_size))
        else:
            worker_class = Chief if cluster.is_chief else Worker
            worker = worker_class(cluster, config, components, server, create_progress=create_progress)
        stop = overrides.get("stop") or StopRequest()
        call = _Call(lambda: worker.work(stop))
        self._calls.append(call)
        call.worker, call.task, call.made, call.stop = worker, cluster, made, stop
        return call

    def run(self, config: TrainConfig, **overrides: Any) -> list[Outcome]:
        """Runs all workers to their end; raises the exception of a worker that failed."""
        if "components" not in overrides:
            overrides["components"] = load_once(config, self.num_workers)
        calls = [self.start(config, index, **overrides) for index in range(self.num_workers)]
        outcomes = [self.finish(call) for call in calls]
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return outcomes

    def finish_call(self, call: _Call, deadline_secs: float = DEADLINE_SECS) -> _Call:
        """Returns a worker's call once it has ended; unlike `finish`, it accepts a worker without steps."""
        call.join(deadline_secs)
        return call

    def finish(self, call: _Call, deadline_secs: float = DEADLINE_SECS) -> Outcome:
        call.join(deadline_secs)
        task = call.task
        if task.is_colocated:  # the next job must not take this worker's introduction for its own
            clear_control(self._servers.by_task[task.task_name].target, task.device)
        return Outcome(call.result, call.error, call.worker, call.made[-1])

    def close(self) -> None:
        """Ends the cluster; later clusters use its servers only if all its workers ended well."""
        if all(call.ended_well for call in self._calls):
            self._servers.leave()
        else:
            self._servers.end()

    def __enter__(self) -> InProcessCluster:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class _Call:
    """A call in a thread, with its result or exception."""

    def __init__(self, function: Any):
        self.result: Any = None
        self.error: BaseException | None = None
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    @property
    def ended_well(self) -> bool:
        """Whether the call has ended without an exception."""
        return not self._thread.is_alive() and self.error is None

    def join(self, deadline_secs: float) -> None:
        self._thread.join(deadline_secs)
        if self._thread.is_alive():
            raise AssertionError(f"still running after {deadline_secs:.0f} s")


def load_once(config: TrainConfig, num_workers: int) -> components_lib.Components:
    """Loads components that all workers of a cluster may share, with one build of the model, as `api/in_process.py`."""
    components = components_lib.load(config, num_workers)
    if num_workers > 1:
        components.trace_model()  # now, because threads that ask for it at the same time would each build the model
    return components


def wait_until(condition: Callable[[], bool], deadline_secs: float = DEADLINE_SECS) -> None:
    """Polls until `condition` holds."""
    deadline = time.monotonic() + deadline_secs
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {deadline_secs:.0f} s")
        time.sleep(0.01)


def config_of(model: str, dataset: str, options: Sequence[str] = (), **fields: Any) -> TrainConfig:
    """A `TrainConfig` for tests, with short timeouts; models and datasets are classes of `tests.testing.components`.

    A model or dataset of another module is given as `package.module:Class`. Each step is a separate call: a call of
    several steps would copy the ops of a step, which is a tenth of the time of a test.
    """
    waits = {"start_timeout_secs": 60.0, "stall_timeout_secs": 60.0, "recover_timeout_secs": 0.0}
    fields = {**waits, "report_secs": 0.2, "steps_per_call": 1, **fields}
    config = TrainConfig(
        model=model if ":" in model else f"tests.testing.components:{model}",
        dataset=dataset if ":" in dataset else f"tests.testing.components:{dataset}",
        dataset_option=tuple(options),
        **fields,
    )
    config.check()
    return config
