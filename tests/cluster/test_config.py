"""Tests of ps_trainer.cluster.config."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ps_trainer.cluster.config import FLAGS, ONE_PROCESS, ClusterConfig
from ps_trainer.errors import EXIT_USAGE, ClusterConfigError

JOBS = {"ps": ("p0:1", "p1:1"), "worker": ("w0:1", "w1:1")}


def create(jobs=None, job_name="worker", task_index=0, source=FLAGS):
    return ClusterConfig(jobs=JOBS if jobs is None else jobs, job_name=job_name, task_index=task_index, source=source)


def test_describes_a_worker():
    cluster = create(task_index=1)
    assert (cluster.num_ps, cluster.num_workers) == (2, 2)
    assert (cluster.worker_index, cluster.is_chief) == (1, False)
    assert (cluster.own_address, cluster.ps_addresses) == ("w1:1", ("p0:1", "p1:1"))
    assert (cluster.task_name, cluster.device) == ("worker-1", "/job:worker/task:1")


def test_has_its_own_port_and_those_of_all_other_tasks():
    cluster = create({"ps": ["[::1]:1", "p:2"], "chief": ["c:3"], "worker": ["w:3", "w:4"]}, "worker", task_index=0)
    assert cluster.own_port == 3
    assert sorted(cluster.peer_ports) == [1, 2, 3, 4]  # the chief has port 3 on its own host


@pytest.mark.parametrize(
    ("jobs", "spans_hosts"),
    [
        ({"ps": ["a:1"], "worker": ["a:2", "A:3"]}, False),
        ({"ps": ["localhost:1"], "worker": ["127.0.0.1:2", "[::1]:3"]}, False),
        ({"ps": ["a:1"], "worker": ["a:2", "b:2"]}, True),
        ({"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222"]}, True),
        (ONE_PROCESS, False),
    ],
)
def test_knows_by_the_addresses_whether_tasks_are_on_several_hosts(jobs, spans_hosts):
    assert create(jobs).spans_hosts == spans_hosts


def test_worker_0_is_chief_without_a_chief_job():
    assert create(task_index=0).is_chief


def test_the_chief_job_comes_first_among_the_workers():
    jobs = {**JOBS, "chief": ["c:1"]}
    assert create(jobs).worker_tasks == (("chief", 0), ("worker", 0), ("worker", 1))
    chief, worker = create(jobs, "chief"), create(jobs, "worker")
    assert (chief.worker_index, chief.is_chief) == (0, True)
    assert (worker.worker_index, worker.is_chief) == (1, False)
    assert chief.num_workers == 1 + 2


def test_a_chief_alone_trains():
    cluster = create({"ps": ["p:1"], "chief": ["c:1"]}, "chief")
    assert (cluster.num_workers, cluster.is_chief) == (1, True)


def test_master_is_another_name_for_chief():
    cluster = create({"ps": ["p:1"], "master": ["m:1"], "worker": ["w:1"]}, "master")
    assert (cluster.job_name, cluster.own_address, cluster.is_chief) == ("chief", "m:1", True)
    assert list(cluster.jobs) == ["ps", "chief", "worker"]


@pytest.mark.parametrize("jobs", [JOBS, {**JOBS, "evaluator": ["e:1"]}])
@pytest.mark.parametrize("task_index", [0, 3])
def test_an_evaluator_belongs_to_no_job_and_has_no_address(jobs, task_index):
    cluster = create(jobs, "evaluator", task_index)
    assert cluster.as_dict() == {"ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"]}
    assert (cluster.task_name, cluster.device, cluster.is_chief) == (f"evaluator-{task_index}", "", False)
    with pytest.raises(ValueError, match=f"evaluator-{task_index} runs no server"):
        _ = cluster.own_address


@pytest.mark.parametrize("job_name", ["ps", "evaluator"])
def test_only_tasks_that_train_have_a_worker_index(job_name):
    with pytest.raises(ValueError, match=f"{job_name}-0 does not train"):
        _ = create(job_name=job_name).worker_index


def test_returns_the_jobs_in_the_form_of_json_and_cluster_spec():
    expected = {"ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"]}
    assert json.loads(json.dumps(create().as_dict())) == expected


def test_is_frozen_and_equal_whatever_its_source():
    cluster = create()
    assert cluster == create(source="TF_CONFIG")
    assert cluster != create(task_index=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cluster.task_index = 1


@pytest.mark.parametrize(
    ("changes", "field", "fix"),
    [
        ({"job_name": "server"}, "--job_name='server'", "allowed are ps, worker, chief, evaluator"),
        ({"job_name": "chief"}, "--job_name=chief", "the cluster has no job 'chief', only ps, worker"),
        ({"task_index": 2}, "--task_index=2", "worker has 2 address(es) (w0:1, w1:1); allowed are 0..1"),
        ({"task_index": -1}, "--task_index=-1", "tasks count from 0"),
        ({"job_name": "evaluator", "task_index": -1}, "--task_index=-1", "tasks count from 0"),
        ({"task_index": True}, "--task_index=True", "not a whole number"),
        ({"task_index": "1"}, "--task_index='1'", "not a whole number"),
        ({"jobs": {"ps": ["p:1"], "workers": ["w:1"]}}, "--workers_hosts", "allowed are ps, worker, chief, evaluator"),
        ({"jobs": {"worker": ["w:1"]}}, "--ps_hosts is missing", "at least one ps task"),
        ({"jobs": {"ps": [], "worker": ["w:1"]}}, "--ps_hosts is empty", "at least one host:port"),
        ({"jobs": {"ps": ["p:1"]}}, "--worker_hosts is missing", "at least one worker"),
        ({"jobs": {"ps": ["p:1"], "worker": []}}, "--worker_hosts is empty", "at least one host:port"),
        ({"jobs": {"ps": ["p:1"], "worker": ["w:1"], "chief": ["a:1", "b:1"]}}, "--chief_hosts", "has one chief"),
        ({"jobs": {"ps": "p:1", "worker": ["w:1"]}}, "--ps_hosts='p:1'", "write a list"),
        ({"jobs": {"ps": [1], "worker": ["w:1"]}}, "--ps_hosts[0]=1", "write host:port"),
        (
            {"jobs": {"ps": ["p:1"], "worker": {"1": "w:1"}}},
            "--worker_hosts",
            "write a list with the address of every task",
        ),
        ({"jobs": {"ps": ["p:1"], "worker": ["w:1", "w"]}}, "--worker_hosts[1]='w'", "for example w:2222"),
        ({"jobs": ["p:1"]}, "flags cluster", "write job names with a list"),
    ],
)
def test_rejects_a_wrong_description_with_field_and_fix(changes, field, fix):
    with pytest.raises(ClusterConfigError) as caught:
        create(**changes)
    assert str(caught.value).startswith(field)
    assert fix in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE


def test_names_both_places_of_a_duplicate_address():
    jobs = {"ps": ["localhost:2222"], "worker": ["h:1", "127.0.0.1:2222"]}
    expected = r"^--worker_hosts\[1\]='127.0.0.1:2222' is the same address as --ps_hosts\[0\]='localhost:2222'"
    with pytest.raises(ClusterConfigError, match=expected):
        create(jobs)


def test_names_fields_in_the_terms_of_the_source():
    with pytest.raises(ClusterConfigError, match=r"^TF_CONFIG cluster\.ps\[0\]='p': the port is missing"):
        create({"ps": ["p"], "worker": ["w:1"]}, source="TF_CONFIG")
    with pytest.raises(ClusterConfigError, match=r"^TF_CONFIG task\.index=7 is out of range"):
        create(task_index=7, source="TF_CONFIG")


def test_rejects_chief_and_master_together():
    with pytest.raises(ClusterConfigError, match="both cluster.chief and cluster.master"):
        create({"ps": ["p:1"], "chief": ["c:1"], "master": ["m:1"]}, source="TF_CONFIG")


def colocated(jobs, job_name="worker", task_index=0, source=FLAGS):
    return ClusterConfig(jobs=jobs, job_name=job_name, task_index=task_index, is_colocated=True, source=source)


class TestColocated:
    """Workers that hold the parameters."""

    def test_each_worker_holds_a_share_the_chief_the_first(self):
        cluster = colocated({"chief": ["c:1"], "worker": ["w:1", "w:2"]}, task_index=1)
        assert cluster.ps_tasks == cluster.worker_tasks == (("chief", 0), ("worker", 0), ("worker", 1))
        assert cluster.ps_addresses == ("c:1", "w:1", "w:2")
        assert cluster.ps_names == ("chief-0", "worker-0", "worker-1")
        assert cluster.ps_devices[2] == "/job:worker/task:1/device:CPU:0"
        assert cluster.ps_filters == ("/job:chief", "/job:worker")
        assert (cluster.num_ps, cluster.ps_index) == (0, 2)
        assert [cluster.is_ps(ps) for ps in range(3)] == [False, False, True]
        assert cluster.as_dict() == {"chief": ["c:1"], "worker": ["w:1", "w:2"]}

    def test_an_evaluator_holds_none(self):
        cluster = colocated({"worker": ["w:1"]}, "evaluator")
        assert not cluster.is_ps(0)
        with pytest.raises(ValueError, match="evaluator-0 serves no parameters"):
            _ = cluster.ps_index

    def test_ps_tasks_must_not_be_given(self):
        with pytest.raises(ClusterConfigError, match="so --ps_hosts must not be given; remove it, or --placement"):
            colocated(JOBS)

    def test_without_them_the_placement_must_be_said(self):
        with pytest.raises(ClusterConfigError, match="--ps_hosts is missing; .*or --placement=colocated to every task"):
            create({"worker": ["w:1"]})
