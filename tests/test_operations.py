"""The files in examples/operations: the loop obeys exit codes, each pod gets its role, and the watch sees faults."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess

import pytest
import yaml

from examples.operations import watch_run
from ps_trainer.runtime import job_runner

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


def test_the_loop_passes_on_sigterm_that_comes_while_it_starts_the_task():
    task = "trap 'exit 143' TERM; kill -TERM $PPID; for _ in {1..200}; do sleep 0.05; done"
    command = ["bash", LOOP, "bash", "-c", task]
    # The signal comes before the loop knows the number of the task in about one of 15 starts.
    for _ in range(40):
        assert subprocess.run(command, timeout=DEADLINE_SECS, check=False).returncode == 143


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
    assert job["template"]["spec"]["terminationGracePeriodSeconds"] > job_runner.EXIT_SECS


def test_the_documents_give_the_grace_period_of_the_code():
    """The code ends a task itself after EXIT_SECS; supervisors wait longer."""
    unit = (OPERATIONS / "ps_trainer@.service").read_text(encoding="utf-8")
    assert f"ends within {job_runner.EXIT_SECS:.0f} s of SIGTERM" in unit
    for page, words in (("howto/supervisor.md", "s"), ("reference/exit-codes.md", "seconds")):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert f"within {job_runner.EXIT_SECS:.0f} {words}" in text


def write_metrics(logdir, task, *records):
    folder = logdir / "metrics"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"wall_time": time, **record}) for time, record in records]
    (folder / f"{task}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def state(text, **more):
    return {"kind": "state", "state": text, **more}


def train(step, **more):
    return {"kind": "train", "global_step": step, "steps_per_sec": 2.5, **more}


def watch(capsys, logdir, *flags, now=1000.0):
    code = watch_run.main([str(logdir), *flags], now)
    out = capsys.readouterr().out
    assert code == (1 if out else 0)
    return out


def test_a_run_that_trains_or_is_done_gives_no_alarm(tmp_path, capsys):
    write_metrics(tmp_path, "worker-0", (900, state("training")), (990, train(7)))
    write_metrics(tmp_path, "worker-1", (10, train(6)), (11, state("done")))
    write_metrics(tmp_path, "ps-0", (1, state("serving on localhost:2222")))
    assert watch(capsys, tmp_path) == ""


def test_a_silent_worker_is_reported(tmp_path, capsys):
    write_metrics(tmp_path, "worker-0", (900, train(7)), (950, {"kind": "reached", "global_step": 8}))
    assert watch(capsys, tmp_path) == "worker-0: no report for 100 s, last at global step 7\n"
    assert watch(capsys, tmp_path, "--max_silence_secs=100") == ""


def test_a_failed_task_is_reported_until_it_is_back(tmp_path, capsys):
    failed = (990, state("failed: ended by SIGTERM"))
    write_metrics(tmp_path, "worker-0", (980, train(7)), failed)
    write_metrics(tmp_path, "ps-0", (990, state("ended after a worker's failure", peer_failure=True)))
    expected = "ps-0: ended after a worker's failure\nworker-0: failed: ended by SIGTERM\n"
    assert watch(capsys, tmp_path) == expected
    write_metrics(tmp_path, "worker-0", failed, (995, state("waiting for the ps tasks")))
    write_metrics(tmp_path, "ps-0", (995, state("serving on localhost:2222")))
    assert watch(capsys, tmp_path) == ""


def test_stale_gradients_and_missing_files_are_reported(tmp_path, capsys):
    assert watch(capsys, tmp_path) == f"no worker has written a line below {tmp_path}/metrics\n"
    write_metrics(tmp_path, "worker-0", (999, train(7, staleness_mean=9.0)))
    assert watch(capsys, tmp_path, "--max_staleness=9") == ""
    assert watch(capsys, tmp_path, "--max_staleness=8") == "worker-0: mean staleness 9.0 exceeds 8\n"


def test_only_whole_lines_of_the_end_of_a_file_are_read(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(watch_run, "_TAIL_BYTES", 200)
    write_metrics(tmp_path, "worker-0", *((time, train(time)) for time in range(890, 900)))
    with (tmp_path / "metrics" / "worker-0.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"wall_time": 99')
    assert watch(capsys, tmp_path) == "worker-0: no report for 101 s, last at global step 899\n"


@pytest.mark.parametrize(
    "line",
    [
        *(b"{", b"[1]", b'{"kind": "\xff"}', b'{"kind": "train"}'),
        *(b'{"kind": "train", "wall_time": "x"}', b'{"kind": "state", "wall_time": 1, "state": 3}'),
        b'{"kind": "train", "wall_time": 1, "staleness_mean": []}',
    ],
)
def test_a_damaged_file_is_named_and_the_other_tasks_are_watched(tmp_path, capsys, line):
    write_metrics(tmp_path, "worker-0", (100, train(7)))
    (tmp_path / "metrics" / "worker-1.jsonl").write_bytes(line + b"\n")
    assert watch_run.main([str(tmp_path)], 1000.0) == 2
    out, err = capsys.readouterr()
    assert out == "worker-0: no report for 900 s, last at global step 7\n"
    assert err.startswith(f"{tmp_path}/metrics/worker-1.jsonl is damaged (") and err.count("\n") == 1


def test_a_file_that_cannot_be_read_is_named_and_the_other_tasks_are_watched(tmp_path, capsys):
    write_metrics(tmp_path, "worker-0", (100, train(7)))
    (tmp_path / "metrics" / "worker-1.jsonl").mkdir()
    assert watch_run.main([str(tmp_path)], 1000.0) == 2
    out, err = capsys.readouterr()
    assert out == "worker-0: no report for 900 s, last at global step 7\n"
    assert (
        err.startswith(f"{tmp_path}/metrics/worker-1.jsonl cannot be read (Is a directory); ") and err.count("\n") == 1
    )


def test_a_textfile_that_cannot_be_written_is_named(tmp_path, capsys):
    write_metrics(tmp_path, "worker-0", (100, train(7)))
    assert watch_run.main([str(tmp_path), f"--textfile={tmp_path}/no/run.prom"], 1000.0) == 2
    out, err = capsys.readouterr()
    assert out == "worker-0: no report for 900 s, last at global step 7\n"
    assert (
        err == f"--textfile={tmp_path}/no/run.prom cannot be written (No such file or directory); give another file\n"
    )


def test_the_textfile_has_the_last_figures_of_each_worker(tmp_path, capsys):
    write_metrics(tmp_path, "worker-0", (998, train(7, loss=0.5)), (999, train(8)))
    write_metrics(tmp_path, "worker-1", (997, train(6)), (998, {"kind": "eval", "global_step": 9, "metrics": {}}))
    watch(capsys, tmp_path, f"--textfile={tmp_path / 'run.prom'}")
    assert (tmp_path / "run.prom").read_text() == (
        "# TYPE ps_trainer_global_step gauge\n"
        'ps_trainer_global_step{task="worker-0"} 8\n'
        'ps_trainer_global_step{task="worker-1"} 6\n'
        "# TYPE ps_trainer_steps_per_sec gauge\n"
        'ps_trainer_steps_per_sec{task="worker-0"} 2.5\n'
        'ps_trainer_steps_per_sec{task="worker-1"} 2.5\n'
        "# TYPE ps_trainer_loss gauge\n"
        'ps_trainer_loss{task="worker-0"} 0.5\n'
        "# TYPE ps_trainer_wall_time gauge\n"
        'ps_trainer_wall_time{task="worker-0"} 999\n'
        'ps_trainer_wall_time{task="worker-1"} 997\n'
    )
