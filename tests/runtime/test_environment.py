"""Environment variables that a task sets before TensorFlow, and those of the user that it leaves."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from ps_trainer.runtime.environment import prepare

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def prepared(is_ps=False, **environ):
    prepare(is_ps, environ)
    return environ


def test_a_proxy_is_kept_off_the_tasks_channels():
    assert prepared()["TF_GRPC_DEFAULT_OPTIONS"] == "grpc.enable_http_proxy=0"


def test_the_users_channel_options_stay():
    environ = prepared(TF_GRPC_DEFAULT_OPTIONS="grpc.keepalive_time_ms=301000")
    assert environ["TF_GRPC_DEFAULT_OPTIONS"] == "grpc.keepalive_time_ms=301000,grpc.enable_http_proxy=0"


def test_a_user_who_wants_the_proxy_has_it():
    assert prepared(TF_GRPC_DEFAULT_OPTIONS="grpc.enable_http_proxy=1") == prepared() | {
        "TF_GRPC_DEFAULT_OPTIONS": "grpc.enable_http_proxy=1"
    }


def test_preparing_twice_changes_nothing():
    environ = prepared()
    assert prepared(**environ) == environ


def test_what_the_user_has_set_is_kept():
    own = {name: "user's" for name in prepared() if name != "TF_GRPC_DEFAULT_OPTIONS"}
    assert own.items() <= prepared(**own).items()


def test_a_ps_leaves_gpus_alone_and_a_worker_does_not():
    assert prepared(is_ps=True, CUDA_VISIBLE_DEVICES="0")["CUDA_VISIBLE_DEVICES"] == ""
    assert prepared(CUDA_VISIBLE_DEVICES="0")["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in prepared()


def test_tensorflow_is_not_imported():
    code = "import sys; import ps_trainer.runtime.environment; print('tensorflow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
