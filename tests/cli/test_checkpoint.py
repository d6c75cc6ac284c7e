"""`ps_trainer checkpoint`: its output and exit codes, in this process."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest

from ps_trainer.checkpoints import worker_file
from ps_trainer.cli import main
from tests.checkpoints.checkpoint_files import DATA, INDEX, values_of, write
from tests.testing.cluster import InProcessCluster, config_of

MODEL = "--model=tests.testing.components:Embedded"
DATASET = "--dataset=tests.testing.components:Rows"


@pytest.fixture
def command(capfd):
    """Runs a checkpoint command; returns exit code, stdout and stderr."""

    def call(*args):
        code = main.main(["ps_trainer", "checkpoint", *map(str, args)])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def logdir(tmp_path):
    """A run's logdir with the checkpoints of steps 1 and 2."""
    write(tmp_path / "checkpoints", 1, 2)
    (tmp_path / "config.json").write_text(json.dumps({"train": {"model": "mlp", "optimizer": "momentum"}}))
    return tmp_path


class TestInfo:
    @pytest.mark.parametrize(
        "path",
        [
            "",
            "checkpoints",
            "checkpoints/model.ckpt-2",
            f"checkpoints/model.ckpt-2{INDEX}",
            f"checkpoints/model.ckpt-2{DATA}",
        ],
    )
    def test_lists_every_tensor_with_shape_type_and_bytes(self, command, logdir, path):
        code, out, _ = command("info", logdir / path)
        assert code == 0
        assert "step 2, written 2" in out
        assert re.search(r"dense/w +\[2, 3\] +float32 +24  variable\n", out)
        assert re.search(r"dense/w/Momentum +\[2, 3\] +float32 +24  slot of dense/w\n", out)
        assert re.search(r"global_step +\[\] +int64 +8  clock", out)
        assert "4 tensors: variables 36 bytes, slots 24 bytes" in out
        assert "--model=mlp --optimizer=momentum" in out

    def test_for_a_folder_the_newest_loadable_one_is_shown(self, command, logdir):
        os.truncate(logdir / "checkpoints" / f"model.ckpt-2{DATA}", 5)
        code, out, _ = command("info", logdir)
        assert code == 0 and "step 1, written" in out

    @pytest.mark.parametrize("content", [None, "", "{", "[]", '{"train": 3}'])
    def test_without_a_usable_config_no_recorded_flags_are_shown(self, command, logdir, content):
        (logdir / "config.json").unlink()
        if content is not None:
            (logdir / "config.json").write_text(content)
        code, out, _ = command("info", logdir)
        assert code == 0 and "recorded: nothing" in out

    def test_lists_the_saved_states_of_single_workers(self, command, logdir):
        folder, values = logdir / "checkpoints", {"residual": np.zeros(4, np.float32)}
        worker_file.write(worker_file.path_of(folder, 1, 5), worker_file.SavedWorkerState(values, 2, 17, 5))
        (folder / "worker-2-4.npz").write_text("garbage")
        np.savez(folder / "worker-3.npz", **values, global_step=np.int64(2))
        _, out, _ = command("info", logdir)
        assert "worker-1-5.npz: step 2, after 5 of its pushes, 1 tensors, 16 bytes" in out
        assert "worker-2-4.npz: BROKEN" in out
        assert "worker-3.npz: step 2, NOT USED, as it is old, 1 tensors, 16 bytes" in out

    def test_a_damaged_checkpoint_is_an_error_with_its_cause(self, command, logdir):
        os.truncate(logdir / "checkpoints" / f"model.ckpt-2{INDEX}", 5)
        code, _, err = command("info", logdir / "checkpoints" / "model.ckpt-2")
        assert code == 2 and "model.ckpt-2.index is damaged" in err

    @pytest.mark.parametrize("path", ["absent", "checkpoints/model.ckpt-3", "checkpoints/model.ckpt"])
    def test_a_missing_path_is_an_error(self, command, logdir, path):
        code, _, err = command("info", logdir / path)
        assert code == 2 and "does not exist" in err

    def test_an_empty_folder_is_an_error(self, command, tmp_path):
        code, _, err = command("info", tmp_path)
        assert code == 2 and "holds no checkpoint" in err


class TestVerify:
    def test_whole_checkpoints_are_0(self, command, logdir):
        code, out, _ = command("verify", logdir)
        assert code == 0
        assert re.search(r"model.ckpt-1 +4 +[\d,]+  whole\n", out) and re.search(
            r"model.ckpt-2 +4 +[\d,]+  whole\n", out
        )
        assert "state file: names model.ckpt-2" in out and "continues from model.ckpt-2" in out

    def test_a_damaged_newest_is_1_and_named_with_its_cause(self, command, logdir):
        os.truncate(logdir / "checkpoints" / f"model.ckpt-2{DATA}", 5)
        code, out, _ = command("verify", logdir / "checkpoints")
        assert code == 1
        assert re.search(r"model.ckpt-2 .*BROKEN: .*its data file is truncated", out)
        assert "continues from model.ckpt-1" in out

    def test_a_damaged_older_one_is_0(self, command, logdir):
        os.truncate(logdir / "checkpoints" / f"model.ckpt-1{DATA}", 5)
        code, out, _ = command("verify", logdir)
        assert code == 0 and re.search(r"model.ckpt-1 .*BROKEN", out)

    def test_data_without_index_that_is_newer_is_1(self, command, logdir):
        (logdir / "checkpoints" / f"model.ckpt-9{DATA}").write_bytes(b"x")
        code, out, _ = command("verify", logdir)
        assert code == 1 and re.search(r"model.ckpt-9 .*BROKEN: model.ckpt-9.index is missing", out)

    def test_a_newer_one_that_only_the_state_file_names_is_1(self, command, logdir):
        (logdir / "checkpoints" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-300"')
        code, out, _ = command("verify", logdir)
        assert code == 1 and re.search(r"model.ckpt-300 .*the state file names it, but it is missing", out)

    def test_none_loadable_is_1_and_the_output_says_what_a_run_would_do(self, command, logdir):
        for step in (1, 2):
            (logdir / "checkpoints" / f"model.ckpt-{step}{DATA}").write_bytes(b"")
        code, out, _ = command("verify", logdir)
        assert code == 1 and "no checkpoint can be loaded" in out

    @pytest.mark.parametrize(
        ("content", "message"), [(None, "is missing"), (b"", "is empty"), (b"\xff", "is not text"), (b"x", "names no")]
    )
    def test_a_bad_state_file_is_reported(self, command, logdir, content, message):
        (logdir / "checkpoints" / "checkpoint").unlink()
        if content is not None:
            (logdir / "checkpoints" / "checkpoint").write_bytes(content)
        code, out, _ = command("verify", logdir)
        assert code == 0 and f"state file: {message}" in out and "the next run repairs it" in out

    def test_leftovers_and_checkpoints_of_another_name_are_reported(self, command, logdir):
        (logdir / "checkpoints" / f"writing-model.ckpt-3{DATA}").write_bytes(b"x")
        for suffix in (INDEX, DATA):
            (logdir / "checkpoints" / f"best{suffix}").write_bytes(
                (logdir / "checkpoints" / f"model.ckpt-1{suffix}").read_bytes()
            )
        code, out, _ = command("verify", logdir)
        assert code == 0
        assert f"writing-model.ckpt-3{DATA}" in out
        assert re.search(r"best .*NOT USED: .*rename its files to model.ckpt-1\.\*", out)

    def test_changes_nothing(self, command, logdir):
        (logdir / "checkpoints" / "checkpoint").unlink()
        (logdir / "checkpoints" / f"writing-model.ckpt-3{DATA}").write_bytes(b"x")
        before = sorted((path.name, path.stat().st_mtime_ns) for path in (logdir / "checkpoints").iterdir())
        command("verify", logdir)
        command("info", logdir)
        assert sorted((path.name, path.stat().st_mtime_ns) for path in (logdir / "checkpoints").iterdir()) == before

    @pytest.mark.parametrize("path", ["absent", "config.json"])
    def test_no_folder_is_an_error(self, command, logdir, path):
        code, _, err = command("verify", logdir / path)
        assert code == 2 and "is not a folder" in err

    def test_an_empty_folder_is_an_error(self, command, tmp_path):
        code, _, err = command("verify", tmp_path)
        assert code == 2 and "holds no checkpoint" in err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The logdir of a real run of 5 steps with Adam: a table and a dense layer."""
    logdir = tmp_path_factory.mktemp("trained")
    config = config_of(
        "Embedded", "Rows", optimizer="adam", learning_rate=0.01, batch_size=4, max_steps=5, logdir=str(logdir)
    )
    with InProcessCluster(1, 1) as cluster:
        cluster.run(config)
    return logdir


class TestPlan:
    def test_lists_the_restored_tensors_under_another_number_of_ps(self, command, trained):
        code, out, _ = command("plan", trained, MODEL, DATASET, "--optimizer=adam", "--num_ps=3", "--max_steps=9")
        assert code == 0
        assert "model.ckpt-5 fits" in out
        assert "3 model variables (table, logits/kernel, logits/bias); 6 optimizer slots" in out
        assert "each of the 3 ps tasks starts at step 5" in out
        assert "continues from step 5 to --max_steps=9" in out
        assert "placement on 3 ps" in out and "bytes per ps" in out

    def test_names_ignored_tensors(self, command, trained):
        code, out, _ = command("plan", trained, MODEL, DATASET, "--optimizer=sgd")
        assert code == 0
        assert "0 optimizer slots" in out and "ignored, as this run has no such variables: logits/bias/Adam [" in out
        assert "--optimizer=sgd was adam in the last run there" in out

    def test_names_the_rules_state_that_is_kept_and_reset(self, command, trained):
        code, out, _ = command("plan", trained, MODEL, DATASET, "--optimizer=adam", "--update=sync", "--max_steps=5")
        assert code == 0
        assert "initialised, as no checkpoint holds it: the update rule's own state: sync/" in out
        assert "makes no step, as --max_steps=5 is reached" in out

    def test_another_optimizer_would_be_rejected_with_names_and_shapes(self, command, trained):
        code, out, _ = command("plan", trained, MODEL, DATASET, "--optimizer=momentum")
        assert code == 1
        assert "does not fit" in out and "table/Momentum [23, 4]" in out and "--logdir" in out

    def test_another_model_would_be_rejected_with_names_and_shapes(self, command, trained):
        code, out, _ = command("plan", trained, "--model=softmax", "--dataset=digits", "--optimizer=sgd")
        assert code == 1
        assert re.search(r"logits/kernel has the shape \[\d+, \d+\] .* the run needs \[64, 10\]", out)

    def test_the_run_acts_as_the_plan_says(self, command, trained):
        """The same comparison decides in a real run, which is rejected with the same text."""
        config = config_of("Embedded", "Rows", optimizer="momentum", batch_size=4, max_steps=9, logdir=str(trained))
        _, out, _ = command("plan", trained, MODEL, DATASET, "--optimizer=momentum")
        with InProcessCluster(1, 1) as cluster, pytest.raises(Exception, match="it lacks .*table/Momentum") as caught:
            cluster.run(config)
        assert re.search(r"it lacks [^\n]*", out)[0] in str(caught.value)

    def test_a_folder_without_checkpoints_means_step_0(self, command, tmp_path):
        code, out, _ = command("plan", tmp_path, "--model=softmax", "--optimizer=adam")
        assert code == 0
        assert "the run starts at step 0" in out and "initialised: 2 model variables, 4 optimizer slots" in out

    def test_a_workers_own_state_is_reported(self, command, tmp_path):
        write_softmax(tmp_path)
        saved = worker_file.SavedWorkerState({"residual": np.zeros(4, np.float32)}, 3, 17, 3)
        worker_file.write(worker_file.path_of(tmp_path, 0, 3), saved)
        code, out, _ = command(
            "plan", tmp_path, "--model=softmax", "--gradient_transform=error_feedback", "--gradient_transform=top_k"
        )
        assert code == 0
        assert "from that file worker-<index>-<pushes>.npz which fits" in out
        assert "worker-0-3.npz: step 3" in out

    def test_none_loadable_is_the_error_that_the_run_would_give(self, command, logdir):
        for step in (1, 2):
            (logdir / "checkpoints" / f"model.ckpt-{step}{DATA}").write_bytes(b"")
        code, _, err = command("plan", logdir, "--model=softmax")
        assert code == 2 and "none can be loaded" in err

    @pytest.mark.parametrize(
        ("flag", "message"),
        [
            ("--model=cn", "did you mean cnn?"),
            ("--optimizer=adm", "did you mean adam?"),
            ("--num_ps=0", "--num_ps=0: num_ps must be at least 1"),
            ("--num_workers=0", "--num_workers=0: num_workers must be at least 1"),
            ("--num_pss=1", "unknown flag --num_pss"),
            ("--batch_size=x", "--batch_size"),
        ],
    )
    def test_a_wrong_flag_is_an_error(self, command, logdir, flag, message):
        code, _, err = command("plan", logdir, flag)
        assert code == 2 and message in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "missing action; choose from info, verify, plan"),
        (("inof", "x"), "did you mean info?"),
        (("info",), "give a folder"),
        (("verify",), "give a folder"),
        (("plan",), "give a folder"),
        (("plan", "--model=cnn"), "give a folder"),
        (("info", "x", "--model=cnn"), "takes one folder and no flags"),
        (("verify", "x", "y"), "unexpected 'y'"),
    ],
)
def test_a_wrong_command_line_is_an_error(command, args, message):
    code, _, err = command(*args)
    assert code == 2 and message in err


@pytest.mark.parametrize("args", [("--help",), ("plan", "--help"), ("info", "x", "-h"), ("plan", "x", "--help")])
def test_help_is_printed(command, args):
    code, out, _ = command(*args)
    assert code == 0 and "checkpoint plan DIR" in out


def write_softmax(folder):
    """Writes a checkpoint of the softmax model on digits, at step 3."""
    from ps_trainer.checkpoints import writer

    values = {"logits/kernel": np.zeros([64, 10], np.float32), "logits/bias": np.zeros([10], np.float32)}
    assert set(values) & set(values_of(3)) == set()
    writer.write(folder, 3, values | {"global_step": np.int64(3)})
