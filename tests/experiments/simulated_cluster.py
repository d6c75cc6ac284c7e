"""A stand-in for real clusters: its logs come from the simulator, and a test may break the simulator's rules for it."""

from __future__ import annotations

import bisect

from ps_trainer.experiments.harness.cpu import CpuUse
from ps_trainer.experiments.harness.runs import Results, RunResult
from ps_trainer.experiments.toolkit import virtual_run
from ps_trainer.experiments.toolkit.clusters import Cluster, Training, flags_of
from ps_trainer.experiments.toolkit.stock_clusters import StockCluster
from ps_trainer.simulation.rules import schedule_table
from tests.testing.step_records import step_record

OVERHEAD_SECS = 0.004  # overhead of a step, besides its delay
SERVICE_SECS = 0.001  # of it, the time for which a ps task serves a worker


class SimulatedCluster:
    """Replaces `Cluster.train`.

    Args:
        rules: Name of `--update` -> broken rule of the cluster.
        losses: Losses of the steps in the order of their ends; the last one repeats. A NaN ends the run.

    Attributes:
        trained: Trained clusters, in order.
    """

    def __init__(self, monkeypatch, rules=None, losses=(2.0,)):
        self.trained = []
        self._rules = rules or {}
        self._losses = losses
        monkeypatch.setattr(Cluster, "train", lambda cluster, folder: self.train(cluster))
        monkeypatch.setattr(StockCluster, "train", lambda cluster, folder: self.train(_as_cluster(cluster)))

    def train(self, cluster):
        self.trained.append(cluster)
        pairs = [flag.removeprefix("--").split("=", 1) for flag in cluster.flags]
        flags = dict(pairs)
        whole = dict(schedule_table.RULES)
        schedule_table.RULES.update(self._rules)
        try:
            schedule = virtual_run.run(
                flags["update"],
                [value for name, value in pairs if name == "update_option"],
                num_workers=cluster.num_workers,
                compute=[value for name, value in pairs if name == "straggler"],
                num_updates=int(flags["max_steps"]),
                seed=int(flags["seed"]),
                latency_secs=(OVERHEAD_SECS - SERVICE_SECS) / 2,
                ps_secs=SERVICE_SECS,
            ).schedule
        finally:
            schedule_table.RULES.update(whole)
        return Training(self._summary(schedule), self._steps(schedule, int(flags["batch_size"])), 12.0)

    def _steps(self, schedule, batch_size):
        steps, updates = schedule.steps, schedule.update_secs.tolist()
        records, begun = [], {}
        for i in reversed(range(len(steps.worker))):  # a worker's step ends when its next one begins
            worker = int(steps.worker[i])
            end = begun.get(worker, float(steps.t_push_done[i]))
            begun[worker] = float(steps.t_start[i])
            is_dropped = bool(steps.update[i] < 0)
            records.append(
                step_record(
                    worker=worker,
                    local_step=int(steps.local_step[i]) + 1,
                    global_step=bisect.bisect_right(updates, end),
                    staleness=None if is_dropped else int(steps.staleness[i]),
                    dropped=int(is_dropped),
                    t_start=begun[worker],
                    # The simulator's push arrives half a transfer after the computation, and is then served.
                    t_computed=float(steps.t_push_done[i]) - SERVICE_SECS,
                    t_applied=float(steps.t_push_done[i]),
                    t_end=end,
                    wall_time=1e9 + end,
                    injected_delay=float(steps.t_compute_done[i] - steps.t_pull_done[i]),
                    examples=batch_size,
                )
            )
        records.sort(key=lambda record: record.t_end)
        return [record._replace(loss=self._losses[min(i, len(self._losses) - 1)]) for i, record in enumerate(records)]

    def _summary(self, schedule):
        steps, workers = schedule.steps, {}
        for worker in range(schedule.num_workers):
            updates = steps.update[steps.worker == worker]
            workers[str(worker)] = {"pushes": len(updates), "gradients_dropped": int((updates < 0).sum())}
        return {"metrics": {"accuracy": 0.95}, "workers": workers}


def _as_cluster(stock):
    """The script's cluster as one of ours, whose rule is the simulator's of the stock class."""
    settings = dict(stock.settings)
    rule = {
        "update": "stock_sync",
        "update_option": [f"replicas_to_aggregate={settings.pop('replicas_to_aggregate')}"],
        "max_steps": stock.num_updates,
    }
    return Cluster(num_workers=stock.num_workers, flags=flags_of({**settings, **rule}))


def real_results_of(experiment, runs, folder, delayed_share=0.003, is_calibrated=True):
    """`Results` of real runs and their calibrations, whose tasks waited for cores for this share of a step."""
    needed = {one.key: one for run in runs if (one := experiment.needed_by(run)) is not None} if is_calibrated else {}
    figures = {key: experiment.execute(one, folder).figures for key, one in needed.items()}
    for run in runs:
        other = experiment.needed_by(run)
        figures[run.key] = experiment.execute(run, folder, figures.get(other.key) if other else None).figures

    def result(run):
        return RunResult(run, figures[run.key], 9.0, CpuUse(0.3, 1.0, 1.0, delayed_share), folder)

    return Results(map(result, (*needed.values(), *runs)))
