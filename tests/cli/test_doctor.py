"""`ps_trainer doctor` before a job, without TensorFlow."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from ps_trainer.cli import doctor, main
from ps_trainer.cluster import network
from ps_trainer.cluster.ports import pick_free_ports


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    for name in ("TF_CONFIG", "http_proxy", "https_proxy", "grpc_proxy", "TF_GRPC_DEFAULT_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(network, "interfaces", lambda: {"eth0": ["10.0.0.1"]})


@pytest.fixture
def hosts():
    first, second = pick_free_ports(2)
    return [f"--ps_hosts=localhost:{first}", f"--worker_hosts=localhost:{second}"]


def run(capsys, *args):
    code = main.main(["ps_trainer", "doctor", *args])
    return code, capsys.readouterr().out.splitlines()


def test_before_a_healthy_job(capsys, hosts, tmp_path):
    code, lines = run(capsys, *hosts, "--isolation=vpn", f"--logdir={tmp_path}", "--model=mlp", "--keep_serving")
    assert code == 0
    assert [line.split()[0] for line in lines[:-1]] == ["ok"] * 5
    assert lines[-1].startswith("not known  tasks       no task runs, so none could report its cluster")
    assert list(tmp_path.iterdir()) == []


def test_takes_the_cluster_from_tf_config(capsys, monkeypatch):
    first, second = pick_free_ports(2)
    jobs = {"ps": [f"localhost:{first}"], "worker": [f"localhost:{second}"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": {"type": "worker", "index": 0}}))
    code, lines = run(capsys)
    assert code == 0
    assert f"free on this machine: ps-0 (localhost:{first}), worker-0 (localhost:{second})" in "\n".join(lines)


def test_a_certain_failure_gives_exit_code_1(capsys, hosts, tmp_path):
    (tmp_path / "file").write_text("")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        args = [f"--ps_hosts=localhost:{port},no-such-host.invalid:1", hosts[1], f"--logdir={tmp_path / 'file'}"]
        code, lines = run(capsys, *args)
    failing = [line for line in lines if line.startswith("will fail")]
    assert code == 1 and len(failing) == 3
    assert "no-such-host.invalid does not resolve" in failing[0]
    assert f"ps-0: port {port} of localhost:{port} is in use" in failing[1]
    assert "is not a folder" in failing[2]


def test_a_proxy_is_named_with_the_way_it_is_handled(capsys, hosts, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert "http_proxy=http://proxy:3128 is set; tasks bypass it" in "\n".join(run(capsys, *hosts)[1])
    monkeypatch.setenv("TF_GRPC_DEFAULT_OPTIONS", "grpc.enable_http_proxy=1")
    assert any(line.startswith("warning    proxies") for line in run(capsys, *hosts)[1])


@pytest.mark.parametrize("args", [[], ["--ps_hosts=h"], ["--worker_hosts=h:1"], ["--batch_size=0"]])
def test_wrong_input_ends_with_2(capsys, args):
    assert main.main(["ps_trainer", "doctor", *args]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_tensorflow_is_not_imported_where_no_task_runs(hosts):
    code = f"import sys; from ps_trainer.cli import doctor; doctor.main_doctor(['d', *{hosts!r}])"
    code += "; print('tensorflow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "False"


def test_the_doctor_has_help(capsys):
    assert doctor.main_doctor(["ps_trainer doctor", "--help"]) == 0
    assert "--ps_hosts" in capsys.readouterr().out
