"""The files in examples/operations: the loop obeys exit codes, the manifest gives each pod its role."""

from __future__ import annotations

import pathlib
import signal
import subprocess

import pytest
import yaml

from ps_trainer.runtime import supervise

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPERATIONS = ROOT / "examples" / "operations"
LOOP = OPERATIONS / "supervise.sh"
DEADLINE_SECS = 60


@pytest.mark.parametrize("code", [0, 2, 130])
def test_the_loop_ends_with_a_final_exit_code(code, tmp_path):
    starts = tmp_path / "starts"
    command = ["bash", LOOP, "bash", "-c", f"echo start >>{starts}; exit {code}"]
    assert subprocess.run(command, timeout=DEADLINE_SECS, check=False).returncode == code
    assert starts.read_text() == "start\n"


@pytest.mark.parametrize("end", ["exit 1", "exit 143", "kill -KILL $$"])
def test_the_loop_starts_the_same_command_again(end, tmp_path):
    starts = tmp_path / "starts"
    script = f'echo "$1" >>{starts}; [ $(wc -l <{starts}) = 2 ] && exit 0; {end}'
    command = ["bash", LOOP, "bash", "-c", script, "name", "an argument"]
    assert subprocess.run(command, timeout=DEADLINE_SECS, check=False).returncode == 0
    assert starts.read_text() == "an argument\n" * 2


def test_the_loop_passes_sigterm_on_and_ends(tmp_path):
    task = "trap 'echo asked; exit 143' TERM; echo ready; while true; do sleep 0.05; done"
    with subprocess.Popen(["bash", LOOP, "bash", "-c", task], stdout=subprocess.PIPE, text=True) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline() == "ready\n"
        loop.send_signal(signal.SIGTERM)
        assert loop.stdout.readline() == "asked\n"
        assert loop.wait(DEADLINE_SECS) == 143


def test_the_loop_obeys_sigterm_between_two_starts(tmp_path):
    with subprocess.Popen(["bash", LOOP, "bash", "-c", "exit 1"], stderr=subprocess.PIPE, text=True) as loop:
        assert loop.stderr is not None
        assert "exit code 1, starts again in 1 s" in loop.stderr.readline()
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(DEADLINE_SECS) == 1


@pytest.mark.parametrize("pod", [0, 1, 2])
def test_the_manifest_gives_each_pod_its_role(pod, tmp_path):
    documents = {d["kind"]: d for d in yaml.safe_load_all((OPERATIONS / "kubernetes.yaml").read_text(encoding="utf-8"))}
    job, name = documents["Job"]["spec"], documents["Job"]["metadata"]["name"]
    container = job["template"]["spec"]["containers"][0]
    stub = tmp_path / "ps_trainer"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "JOB_COMPLETION_INDEX": str(pod)}
    command = [*container["command"], *container["args"]]
    said = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_SECS, check=True)
    flags = dict(line.removeprefix("--").split("=", 1) for line in said.stdout.splitlines()[1:])
    lists = {job_name: flags[f"{job_name}_hosts"].split(",") for job_name in ("ps", "worker")}
    port = container["ports"][0]["containerPort"]
    assert lists["ps"] + lists["worker"] == [f"{name}-{i}.{name}:{port}" for i in range(job["completions"])]
    assert lists[flags["job_name"]][int(flags["task_index"])] == f"{name}-{pod}.{name}:{port}"
    # The names exist only if Service, subdomain and labels fit together.
    labels = job["template"]["metadata"]["labels"]
    assert job["template"]["spec"]["subdomain"] == documents["Service"]["metadata"]["name"] == name
    assert documents["Service"]["spec"]["selector"] == labels
    assert documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] > supervise.EXIT_SECS


def test_the_documents_give_the_grace_period_of_the_code():
    """The code ends a task itself after EXIT_SECS; supervisors wait longer."""
    unit = (OPERATIONS / "ps_trainer@.service").read_text(encoding="utf-8")
    assert f"ends within {supervise.EXIT_SECS:.0f} s of SIGTERM" in unit
    for page, words in (("how-to/supervisor.md", "s"), ("reference/exit-codes.md", "seconds")):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert f"within {supervise.EXIT_SECS:.0f} {words}" in text
