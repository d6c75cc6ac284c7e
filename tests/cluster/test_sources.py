"""Tests of ps_trainer.cluster.sources."""

from __future__ import annotations

import json

import pytest

from ps_trainer.cluster import sources
from ps_trainer.cluster.config import ClusterConfig
from ps_trainer.cluster.sources import ClusterFlags
from ps_trainer.errors import ClusterConfigError

HOSTS = {"ps_hosts": "p0:1,p1:1", "worker_hosts": "w0:1,w1:1"}
JOBS = {"ps": ["p0:1", "p1:1"], "worker": ["w0:1", "w1:1"]}
WORKER_1 = ClusterConfig(jobs=JOBS, job_name="worker", task_index=1)


def tf_config(jobs=None, job="worker", index=1, **more):
    return json.dumps({"cluster": jobs or JOBS, "task": {"type": job, "index": index}, **more})


@pytest.fixture
def write_file(tmp_path):
    def write(content):
        path = tmp_path / "cluster.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write


def test_every_source_gives_the_same_cluster(write_file):
    assert sources.from_flags("p0:1, p1:1", "w0:1,w1:1", None, "worker", 1) == WORKER_1
    assert sources.from_tf_config(tf_config()) == WORKER_1
    assert sources.from_file(write_file(JOBS), "worker", 1) == WORKER_1
    assert sources.from_file(write_file({"cluster": JOBS}), "worker", 1) == WORKER_1
    assert sources.from_file(write_file(tf_config()), None, None) == WORKER_1


def test_an_empty_chief_flag_means_no_chief_as_in_tf1_scripts():
    assert sources.from_flags("p0:1,p1:1", "w0:1,w1:1", "", "worker", 1) == WORKER_1


def test_tf_config_may_call_the_chief_master():
    jobs = {"ps": ["p:1"], "worker": ["w:1"]}
    assert sources.from_tf_config(tf_config({**jobs, "master": ["m:1"]}, "master", 0)) == sources.from_tf_config(
        tf_config({**jobs, "chief": ["m:1"]}, "chief", 0)
    )


@pytest.mark.parametrize("jobs", [JOBS, {**JOBS, "evaluator": ["e:1"]}])
def test_tf_config_may_list_the_evaluator_or_leave_it_out(jobs):
    cluster = sources.from_tf_config(tf_config(jobs, "evaluator", 0, environment="cloud"))
    assert (cluster.task_name, cluster.as_dict()) == ("evaluator-0", JOBS)


def test_tf_config_may_write_the_index_as_text():
    assert sources.from_tf_config(tf_config(index="1")) == WORKER_1


def test_the_index_may_be_left_out_in_a_job_of_one_task():
    assert sources.from_flags("p:1", "w0:1,w1:1", None, "ps", None).task_index == 0
    assert sources.from_flags("p:1", "w0:1,w1:1", None, "evaluator", None).task_index == 0
    with pytest.raises(ClusterConfigError, match=r"--task_index is missing: the job worker has 2 tasks; give 0\.\.1"):
        sources.from_flags("p:1", "w0:1,w1:1", None, "worker", None)


def test_takes_addresses_from_one_source_and_the_task_from_another(write_file):
    by_file = ClusterFlags(cluster_file=write_file(JOBS), job_name="worker", task_index=1)
    assert sources.resolve(by_file, {}) == WORKER_1
    by_file = ClusterFlags(cluster_file=write_file(JOBS))
    environ = {"TF_CONFIG": json.dumps({"task": {"type": "worker", "index": 1}})}
    assert sources.resolve(by_file, environ) == WORKER_1
    assert sources.resolve(ClusterFlags(task_index=1), {"TF_CONFIG": tf_config()}) == WORKER_1


def test_sources_that_agree_may_all_be_given(write_file):
    flags = ClusterFlags(**HOSTS, job_name="worker", task_index=1, cluster_file=write_file(JOBS))
    cluster = sources.resolve(flags, {"TF_CONFIG": tf_config()})
    assert (cluster, cluster.source) == (WORKER_1, "flags")
    cluster = sources.resolve(ClusterFlags(cluster_file=write_file(JOBS)), {"TF_CONFIG": tf_config()})
    assert (cluster, cluster.source) == (WORKER_1, "TF_CONFIG")


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_tf_config_counts_as_not_given(text):
    assert sources.resolve(ClusterFlags(**HOSTS, job_name="worker", task_index=1), {"TF_CONFIG": text}) == WORKER_1


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            {**HOSTS, "worker_hosts": "w0:1"},
            "flags and TF_CONFIG disagree on worker: --worker_hosts=w0:1, TF_CONFIG cluster.worker=w0:1,w1:1",
        ),
        (
            {**HOSTS, "chief_hosts": "c:1"},
            "flags and TF_CONFIG disagree on chief: --chief_hosts=c:1, TF_CONFIG cluster.chief=none",
        ),
        (
            {"job_name": "ps"},
            "flags and TF_CONFIG disagree on this task: --job_name=ps, TF_CONFIG task.type=worker",
        ),
        (
            {"task_index": 0},
            "flags and TF_CONFIG disagree on this task: --task_index=0, TF_CONFIG task.index=1",
        ),
    ],
)
def test_rejects_sources_that_disagree_and_names_both(flags, expected):
    with pytest.raises(ClusterConfigError) as caught:
        sources.resolve(ClusterFlags(**flags), {"TF_CONFIG": tf_config()})
    assert expected in str(caught.value)
    assert "make them equal or remove one of the two" in str(caught.value)


def test_rejects_a_file_that_disagrees_with_tf_config(write_file):
    path = write_file({**JOBS, "ps": ["p0:1"]})
    with pytest.raises(ClusterConfigError, match=f"TF_CONFIG and cluster file {path} disagree on ps"):
        sources.resolve(ClusterFlags(cluster_file=path), {"TF_CONFIG": tf_config()})


def test_the_command_decides_the_job_when_no_source_does():
    flags = ClusterFlags(**HOSTS, task_index=1)
    assert sources.resolve(flags, {}, roles=("ps",), default_role="ps").task_name == "ps-1"
    with pytest.raises(ClusterConfigError, match="--job_name is missing"):
        sources.resolve(flags, {})


def test_rejects_a_job_that_the_command_does_not_run():
    with pytest.raises(ClusterConfigError, match=r"TF_CONFIG task\.type=worker, but this command runs only ps; use"):
        sources.resolve(ClusterFlags(), {"TF_CONFIG": tf_config()}, roles=("ps",), default_role="ps")
    flags = ClusterFlags(**HOSTS, job_name="ps")
    with pytest.raises(ClusterConfigError, match="--job_name=ps, but this command runs only worker or chief"):
        sources.resolve(flags, {}, roles=("worker", "chief"), default_role="worker")


def test_without_any_source_the_error_says_what_to_give():
    with pytest.raises(ClusterConfigError, match="not described; give --ps_hosts=localhost:2222 --worker_hosts="):
        sources.resolve(ClusterFlags(), {})
    with pytest.raises(ClusterConfigError, match="TF_CONFIG has no cluster; give --ps_hosts="):
        sources.resolve(ClusterFlags(), {"TF_CONFIG": "{}"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'cluster': {}}", "TF_CONFIG is not JSON: .* at line 1, column 2.*double quotes"),
        ("[]", r"TF_CONFIG: got \[\]; write"),
        ('{"cluster": {"ps": ["a:1"], "ps": ["b:1"]}}', "TF_CONFIG: the key 'ps' is given twice"),
        ('{"ps": ["a:1"]}', 'TF_CONFIG has ps at the top; write {"cluster"'),
        ('{"cluster": 3}', "TF_CONFIG cluster: got 3; write job names"),
        (tf_config(job="gpu"), "TF_CONFIG task.type='gpu': unknown job"),
        (tf_config(index=2), r"TF_CONFIG task.index=2 is out of range: worker has 2 address"),
        (tf_config(index=1.5), "TF_CONFIG task.index=1.5 is not a whole number"),
        (tf_config({**JOBS, "worker": {"1": "w1:1"}}), "TF_CONFIG cluster.worker: got index: address pairs"),
        (tf_config({**JOBS, "gpu": ["g:1"]}), "TF_CONFIG cluster.gpu: unknown job 'gpu'"),
        (tf_config({**JOBS, "worker": ["w0:1", "p0:1"]}), r"TF_CONFIG cluster.worker\[1\]='p0:1' is the same address"),
        (json.dumps({"cluster": JOBS, "task": ["worker", 0]}), "TF_CONFIG task=.*: write"),
    ],
)
def test_rejects_a_wrong_tf_config(text, expected):
    with pytest.raises(ClusterConfigError, match=expected):
        sources.from_tf_config(text)


def test_rejects_an_unreadable_cluster_file(tmp_path, write_file):
    with pytest.raises(ClusterConfigError, match="--cluster_file=.*missing.json: cannot be read: No such file"):
        sources.from_file(tmp_path / "missing.json", "ps", 0)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterConfigError, match="cannot be read: not UTF-8"):
        sources.from_file(tmp_path / "binary", "ps", 0)
    with pytest.raises(ClusterConfigError, match="cluster file .* is not JSON"):
        sources.from_file(write_file('{"ps": ['), "ps", 0)


def test_rejects_an_empty_element_in_an_address_list():
    with pytest.raises(ClusterConfigError, match=r"--worker_hosts\[1\]='': the address is empty; remove the extra"):
        sources.from_flags("p:1", "w0:1,", None, "worker", 0)
    with pytest.raises(ClusterConfigError, match="--ps_hosts is empty"):
        sources.from_flags("", "w0:1", None, "worker", 0)


def test_tf_config_without_ps_tasks_describes_workers_that_hold_the_parameters():
    text = json.dumps({"cluster": {"worker": ["h:1", "h:2"]}, "task": {"type": "worker", "index": 1}})
    cluster = sources.resolve(ClusterFlags(), {"TF_CONFIG": text}, is_colocated=True)
    assert cluster.is_colocated
    assert cluster.ps_tasks == (("worker", 0), ("worker", 1))


def test_no_ps_task_can_be_started_where_the_workers_hold_the_parameters():
    flags = ClusterFlags(worker_hosts="h:1,h:2", task_index=0)
    with pytest.raises(ClusterConfigError, match="there is no ps task; start the workers only"):
        sources.resolve(flags, {}, roles=("ps",), default_role="ps", is_colocated=True)
