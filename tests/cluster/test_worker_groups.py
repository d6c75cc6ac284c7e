"""The workers that compute each stage for each training worker."""

from __future__ import annotations

import pytest

from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.worker_groups import count_groups, group_of, members_of_groups
from ps_trainer.errors import OptionError


def cluster_of(num_workers, index=0, job_name="worker", **jobs):
    hosts = tuple(f"w{i}:1" for i in range(num_workers))
    return ClusterConfig(jobs={"ps": ("p:1",), "worker": hosts, **jobs}, job_name=job_name, task_index=index)


def test_with_one_stage_every_worker_trains_in_the_cluster_as_it_is():
    cluster = cluster_of(3, 2)
    group = group_of(cluster, 1)
    assert (group.cluster, group.stage, group.members) == (cluster, 0, (2,))


def test_the_first_workers_train_and_the_others_follow_stage_by_stage():
    groups = [group_of(cluster_of(6, index), 3) for index in range(6)]
    assert [(group.stage, group.members) for group in groups] == [
        (0, (0, 2, 4)), (0, (1, 3, 5)), (1, (0, 2, 4)), (1, (1, 3, 5)), (2, (0, 2, 4)), (2, (1, 3, 5)),
    ]  # fmt: skip
    assert members_of_groups(6, 3) == [(0, 2, 4), (1, 3, 5)]
    assert groups[3].devices == ("/job:worker/task:1", "/job:worker/task:3", "/job:worker/task:5")
    assert groups[3].addresses == ("w1:1", "w3:1", "w5:1")
    assert groups[3].names == ("worker-1", "worker-3", "worker-5")


def test_a_training_worker_sees_only_training_workers():
    seen = group_of(cluster_of(6, 1), 3).cluster
    assert (seen.num_workers, seen.worker_index, seen.is_chief, seen.device) == (2, 1, False, "/job:worker/task:1")
    assert group_of(cluster_of(6, 2), 3).cluster is None


def test_a_chief_of_its_own_is_the_first_worker():
    chief = group_of(cluster_of(3, 0, "chief", chief=("c:1",)), 2)
    assert (chief.stage, chief.names) == (0, ("chief-0", "worker-1"))
    assert chief.cluster.jobs == {"ps": ("p:1",), "chief": ("c:1",), "worker": ("w0:1",)}
    alone = group_of(cluster_of(1, 0, "chief", chief=("c:1",)), 2)
    assert (alone.names, alone.cluster.num_workers) == (("chief-0", "worker-0"), 1)


def test_a_remainder_of_workers_is_rejected():
    assert count_groups(4, 2) == 2
    with pytest.raises(
        OptionError, match="num_workers=5 is not a multiple of the model's 2 stages.*start 4 or 6 workers"
    ):
        group_of(cluster_of(5), 2)
