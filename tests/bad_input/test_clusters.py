"""Bad clusters: addresses, TF_CONFIG, cluster files; the message names the field and the cause."""

from __future__ import annotations

import json

import pytest

from ps_trainer.cli import task

pytestmark = pytest.mark.usefixtures("without_tensorflow")

# An address of a ps task -> the words of the message after the address.
ADDRESSES = {
    "h0": "the port is missing; write host:port, for example h0:2222",
    "h0:": "the port is missing",
    ":2222": "the host is missing; write host:port, for example localhost:2222",
    "2222": "the port is missing; write host:port, for example 2222:2222",
    "h0:http": "port 'http' is not a number",
    "h0:-1": "port '-1' is not a number",
    "h0:22 22": "port '22 22' is not a number",
    "h0:2222/": "port '2222/' is not a number",
    "h0:²": "port '²' is not a number",
    "h0:0": "with port 0 the system chooses a port that the other tasks cannot know",
    "h0:65536": "port 65536 is out of range; allowed are 1..65535",
    f"h0:{'9' * 5000}": "is out of range; allowed are 1..65535",
    "grpc://h0:2222": "an address has no scheme; write 'h0:2222'",
    "http://h0:2222/": "an address has no scheme",
    "unix:/tmp/socket": "TensorFlow's server does not support unix sockets",
    "unix-abstract:x": "TensorFlow's server does not support unix sockets",
    "::1:2222": "more than one colon; write host:port, an IPv6 host as [::1]:2222",
    "[::1]": "the port is missing; write [::1]:port",
    "[::1]2222": "the port is missing",
    "[::1:2222": "not an IPv6 address in brackets",
    "[h0]:2222": "not an IPv6 address in brackets",
    "[]:2222": "not an IPv6 address in brackets",
    "h0;h1:2222": "'h0;h1' is not a host name or IP address",
    "user@h0:2222": "'user@h0' is not a host name or IP address",
    "-h0:2222": "'-h0' is not a host name or IP address",
    "h*:2222": "'h*' is not a host name or IP address",
    "h0 h1:2222": "'h0 h1' is not a host name or IP address",
    "höst:2222": "'höst' is not a host name or IP address",
    "$HOST:2222": "'$HOST' is not a host name or IP address",
    "${HOST}:$PORT": "'${HOST}' is not a host name or IP address",
}


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address[:20])
def test_addresses(refuse, address):
    message = refuse(task.main_ps, [f"--ps_hosts={address}", "--worker_hosts=w:1"], ADDRESSES[address])
    assert f"--ps_hosts[0]={address!r}: " in message


LISTS = [
    ("", "w:1", "--ps_hosts is empty"),
    ("p:1", "", "--worker_hosts is empty"),
    ("p:1,", "w:1", "--ps_hosts[1]='': the address is empty; remove the extra comma"),
    (",p:1", "w:1", "--ps_hosts[0]='': the address is empty"),
    ("p:1;q:1", "w:1", "more than one colon"),
    ("p:1 q:1", "w:1", "more than one colon"),
    ("['p:1']", "w:1", "not an IPv6 address in brackets"),
    ("p:1,p:1", "w:1", "--ps_hosts[1]='p:1' is the same address as --ps_hosts[0]='p:1'"),
    ("p:1", "P.:1", "--worker_hosts[0]='P.:1' is the same address as --ps_hosts[0]='p:1'"),
    ("localhost:1", "127.0.0.1:1", "is the same address as --ps_hosts[0]='localhost:1'"),
    ("localhost:1", "[::1]:01", "is the same address as --ps_hosts[0]='localhost:1'"),
]


@pytest.mark.parametrize(("ps", "workers", "words"), LISTS)
def test_lists_of_addresses(refuse, ps, workers, words):
    refuse(task.main_ps, [f"--ps_hosts={ps}", f"--worker_hosts={workers}"], words)


JOBS = {"ps": ["p:1"], "worker": ["w:1", "v:1"]}
TASK = {"type": "worker", "index": 0}


def config(cluster=JOBS, task=TASK):
    return json.dumps({"cluster": cluster, "task": task})


TF_CONFIGS = [
    ("{", "TF_CONFIG is not JSON: Expecting property name"),
    ("worker", "TF_CONFIG is not JSON: Expecting value"),
    ("{'cluster': {}}", "names and addresses need double quotes"),
    (config() + "}", "TF_CONFIG is not JSON: Extra data"),
    (config()[:-1] + ",}", "TF_CONFIG is not JSON"),
    ("\ufeff" + config(), "TF_CONFIG is not JSON"),
    ("[]", 'TF_CONFIG: got []; write {"cluster": {"ps": […], "worker": […]}, …}'),
    ("3", "TF_CONFIG: got 3; write"),
    ('"worker"', "TF_CONFIG: got 'worker'; write"),
    ("null", "TF_CONFIG: got None; write"),
    ("{}", "TF_CONFIG has no cluster"),
    ("[" * 100_000, "TF_CONFIG is nested too deeply"),
    ('{"task": {"index": ' + "9" * 5000 + "}}", "TF_CONFIG contains a number with too many digits"),
    ('{"ps": ["p:1"], "worker": ["w:1"]}', 'TF_CONFIG has ps, worker at the top; write {"cluster"'),
    ('{"cluster": {"ps": ["p:1"], "ps": ["q:1"]}}', "TF_CONFIG: the key 'ps' is given twice"),
    (config(cluster=[]), "TF_CONFIG has no cluster"),
    (config(cluster="p:1"), "TF_CONFIG cluster: got 'p:1'; write job names with a list"),
    (config(cluster={"worker": ["w:1"]}), "TF_CONFIG cluster.ps is missing"),
    (config(cluster={"ps": ["p:1"]}), "TF_CONFIG cluster.worker is missing"),
    (config(cluster=JOBS | {"gpu": ["g:1"]}), "TF_CONFIG cluster.gpu: unknown job 'gpu'"),
    (config(cluster=JOBS | {"Worker": ["g:1"]}), "TF_CONFIG cluster.Worker: unknown job 'Worker'"),
    (config(cluster=JOBS | {"": ["g:1"]}), "unknown job ''"),
    (config(cluster=JOBS | {"ps": "p:1"}), "TF_CONFIG cluster.ps='p:1': write a list of host:port"),
    (config(cluster=JOBS | {"ps": {"0": "p:1"}}), "TF_CONFIG cluster.ps: got index: address pairs"),
    (config(cluster=JOBS | {"ps": []}), "TF_CONFIG cluster.ps is empty"),
    (config(cluster=JOBS | {"ps": None}), "TF_CONFIG cluster.ps=None: write a list"),
    (config(cluster=JOBS | {"ps": [1]}), "TF_CONFIG cluster.ps[0]=1 is not a string"),
    (config(cluster=JOBS | {"ps": [["p:1"]]}), "TF_CONFIG cluster.ps[0]=['p:1'] is not a string"),
    (config(cluster=JOBS | {"ps": ["p"]}), "TF_CONFIG cluster.ps[0]='p': the port is missing"),
    (config(cluster=JOBS | {"ps": ["p:\ud800"]}), "TF_CONFIG cluster.ps[0]='p:\\ud800': port"),
    (config(cluster=JOBS | {"ps": ["w:1"]}), "is the same address as TF_CONFIG cluster.ps[0]='w:1'"),
    (config(cluster=JOBS | {"chief": ["c:1", "d:1"]}), "TF_CONFIG cluster.chief has 2 addresses"),
    (config(cluster=JOBS | {"chief": ["c:1"], "master": ["d:1"]}), "both cluster.chief and cluster.master are given"),
    (config(task=["worker", 0]), "TF_CONFIG task=['worker', 0]: write"),
    (config(task="worker"), "TF_CONFIG task='worker': write"),
    (config(task={"type": "gpu"}), "TF_CONFIG task.type='gpu': unknown job"),
    (config(task={"type": ["worker"], "index": 0}), "TF_CONFIG task.type=['worker']: unknown job"),
    (config(task={"type": "chief", "index": 0}), "TF_CONFIG task.type=chief: the cluster has no job 'chief'"),
    (config(task={"type": "worker", "index": 2}), "TF_CONFIG task.index=2 is out of range: worker has 2"),
    (config(task={"type": "worker", "index": -1}), "TF_CONFIG task.index=-1 is negative"),
    (config(task={"type": "worker", "index": 1.0}), "TF_CONFIG task.index=1.0 is not a whole number"),
    (config(task={"type": "worker", "index": True}), "TF_CONFIG task.index=True is not a whole number"),
    (config(task={"type": "worker", "index": "one"}), "TF_CONFIG task.index='one' is not a whole number"),
    (config(task={"type": "worker", "index": "9" * 5000}), "is not a whole number"),
    (config(task={"type": "worker"}), "--task_index is missing: the job worker has 2 tasks"),
    (config(task={"index": 0}), "--job_name is missing"),
]


@pytest.mark.parametrize(("text", "words"), TF_CONFIGS, ids=lambda value: value[:30])
def test_tf_config(refuse, monkeypatch, text, words):
    monkeypatch.setitem(task.os.environ, "TF_CONFIG", text)
    refuse(task.main_task, [], words)


DISAGREEING = [
    ({"ps": ["q:1"], "worker": ["w:1", "v:1"]}, TASK, [], "flags and TF_CONFIG disagree on ps: --ps_hosts=p:1"),
    ({"ps": ["p:1"], "worker": ["w:1"]}, TASK, [], "flags and TF_CONFIG disagree on worker"),
    (JOBS | {"chief": ["c:1"]}, TASK, [], "flags and TF_CONFIG disagree on chief: --chief_hosts=none"),
    (JOBS, TASK, ["--task_index=1"], "disagree on this task: --task_index=1, TF_CONFIG task.index=0"),
    (JOBS, TASK, ["--job_name=ps"], "disagree on this task: --job_name=ps, TF_CONFIG task.type=worker"),
]


@pytest.mark.parametrize(("jobs", "own", "flags", "words"), DISAGREEING)
def test_sources_that_disagree(refuse, monkeypatch, jobs, own, flags, words):
    monkeypatch.setenv("TF_CONFIG", config(jobs, own))
    refuse(task.main_task, ["--ps_hosts=p:1", "--worker_hosts=w:1,v:1", *flags], words)


FILES = [
    (b"", "is not JSON: Expecting value"),
    (b"\xff\xfe{\0}\0", "cannot be read: not UTF-8 text"),
    (b"\xef\xbb\xbf{}", "is not JSON"),
    (b"ps: [p:1]\nworker: [w:1]\n", "is not JSON"),
    (b'{"ps": ["p:1"], "worker": ["w:1",]}', "is not JSON"),
    (b'{"ps": ["p:1"], "worker": ["w:1"', "is not JSON"),
    (b'["p:1"]', "got ['p:1']; write"),
    (b"{}", "cluster.ps is missing"),
    (b'{"cluster": null}', "has no cluster; give --ps_hosts="),
    (b'{"cluster": {"ps": ["p:1"]}}', "cluster.worker is missing"),
    (b'{"ps": ["p:1"], "worker": ["w:1"], "name": "job"}', "cluster.name: unknown job 'name'"),
    (b'{"ps": ["p"], "worker": ["w:1"]}', "cluster.ps[0]='p': the port is missing"),
    (b'{"ps": ["p:1"], "ps": ["p:1"], "worker": ["w:1"]}', "the key 'ps' is given twice"),
    (b" " * (2**22 + 1), "has more than 4194304 characters"),
]


@pytest.mark.parametrize(("content", "words"), FILES, ids=lambda value: str(value)[:30])
def test_cluster_files(refuse, tmp_path, content, words):
    path = tmp_path / "cluster.json"
    path.write_bytes(content)
    message = refuse(task.main_task, [f"--cluster_file={path}", "--job_name=worker", "--task_index=0"], words)
    assert str(path) in message


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/no/such", "No such file"), ("/", "Is a directory"), ("", "Is a directory"), ("x" * 300, "File name too long")],
    ids=["missing", "folder", "empty", "long"],
)
def test_cluster_files_that_cannot_be_read(refuse, path, reason):
    refuse(task.main_worker, [f"--cluster_file={path}"], f"--cluster_file={path}: cannot be read: {reason}")
