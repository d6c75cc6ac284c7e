"""The doctor beside real tasks: before a job, during it, and with a frozen task; it does not disturb the job."""

from __future__ import annotations

import signal

import pytest

from tests.testing.processes import END_SECS, START_SECS, UNLIMITED
from tests.testing.repetitions import repetitions

DONE, FAILED = 0, 1


def ask(run, *flags):
    """Runs the doctor with the run's addresses; returns its exit code, and its findings without the rest of stderr."""
    hosts = [f"--ps_hosts={','.join(run.ps_hosts)}", f"--worker_hosts={','.join(run.worker_hosts)}"]
    doctor = run.start_command("doctor", *hosts, "--isolation=test", *flags, log_name=f"doctor-{len(run.tasks)}")
    code = doctor.wait(START_SECS)
    return code, [line for line in doctor.log.splitlines() if line.startswith(("ok", "warn", "will", "not "))]


def lines_of(findings, level, topic):
    return [line for line in findings if line.startswith(level) and line[11:].startswith(topic)]


def test_the_doctor_before_and_during_a_job(create_run):
    run = create_run(flags=(UNLIMITED, "--straggler=det:mean_ms=50"))  # to leave CPU time

    code, findings = ask(run)
    assert code == DONE
    assert lines_of(findings, "ok", "ports") and lines_of(findings, "not known", "tasks")

    ps = run.start_ps()
    ps.wait_for_log("serving on")
    chief, worker = run.start_worker(0), run.start_worker(1)
    run.wait_for_step(5)
    code, findings = ask(run, f"--logdir={run.logdir}", "--learning_rate=0.1")
    assert code == DONE, findings
    assert "worker-0 training, worker-1 training" in lines_of(findings, "ok", "job")[0]
    assert "model (hash " in lines_of(findings, "ok", "workers")[0]
    assert "4 connections" in lines_of(findings, "ok", "reach")[0]  # 1 ps x 2 workers, both ways

    worker.freeze()
    code, findings = ask(run, "--learning_rate=0.7")
    worker.thaw()
    assert code == FAILED
    assert "--learning_rate: chief 0.1, this command 0.7" in lines_of(findings, "will fail", "settings")[0]
    assert f"worker-1 ({run.worker_hosts[1]})" in lines_of(findings, "will fail", "tasks")[0]

    run.wait_for_step(max(run.last_step(0), run.last_step(1)) + 5)  # the doctor did not disturb the training
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS + START_SECS) == 128 + signal.SIGTERM
    ps.wait(START_SECS)
    worker.wait(START_SECS)


@pytest.mark.parametrize(
    "flags",
    repetitions(
        [("--model=mlp", "--model_option=num_stages=2", "--placement=model_parallel"), ("--update=all_reduce",)]
    ),
)
def test_the_doctor_asks_workers_that_need_each_other_about_each_other(create_run, flags):
    run = create_run(flags=(UNLIMITED, "--straggler=det:mean_ms=50,worker=0", *flags))
    ps, chief, worker = run.start_all()
    run.wait_for_step(5, workers=[0])
    code, findings = ask(run)
    assert code == DONE, findings
    assert "worker-0 training, worker-1 training" in lines_of(findings, "ok", "job")[0]
    assert "6 connections, workers to workers among them" in lines_of(findings, "ok", "reach")[0]
    chief.send(signal.SIGTERM)
    assert chief.wait(END_SECS) == 128 + signal.SIGTERM
    for task in (ps, worker):
        assert task.wait(END_SECS) == FAILED


def test_a_worker_that_a_ps_cannot_reach_does_not_start_and_names_the_address(create_run):
    run = create_run(num_workers=1)
    right, run.worker_hosts = run.worker_hosts, ["no-such-host.invalid:2222"]
    ps = run.start_ps()
    ps.wait_for_log("serving on")
    run.worker_hosts = right
    worker = run.start_worker(0, "--start_timeout_secs=3")
    assert worker.wait(START_SECS) == FAILED
    assert f"ps-0 ({run.ps_hosts[0]}) does not reach worker-0 ({right[0]})" in worker.log
    assert "errors resolving no-such-host.invalid:2222" in worker.log
    ps.send(signal.SIGTERM)
    assert ps.wait(END_SECS) == 128 + signal.SIGTERM
