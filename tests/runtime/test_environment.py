"""Environment variables that a task sets before it imports TensorFlow, and the user's, which it keeps."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from ps_trainer.runtime.environment import prepare

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def prepared(is_ps=False, **environ):
    prepare(environ, is_ps=is_ps)
    return environ


PROXY = "grpc.enable_http_proxy"
LOOKUPS = "grpc.dns_min_time_between_resolutions_ms"
WINDOW = "grpc.http2.lookahead_bytes=33554432"


def channel_options(**environ):
    return prepared(**environ)["TF_GRPC_DEFAULT_OPTIONS"].split(",")


def test_channels_skip_the_proxy_look_up_a_moved_task_and_keep_the_order_of_messages():
    assert channel_options() == [f"{PROXY}=0", f"{LOOKUPS}=1000", WINDOW]


def test_the_users_channel_options_stay():
    own = "grpc.keepalive_time_ms=301000"
    assert channel_options(TF_GRPC_DEFAULT_OPTIONS=own) == [own, f"{PROXY}=0", f"{LOOKUPS}=1000", WINDOW]


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (f"{PROXY}=1", [f"{PROXY}=1", f"{LOOKUPS}=1000", WINDOW]),
        (f"{LOOKUPS}=5000", [f"{LOOKUPS}=5000", f"{PROXY}=0", WINDOW]),
        (f"{LOOKUPS} = 5000,{PROXY}=1", [f"{LOOKUPS} = 5000", f"{PROXY}=1", WINDOW]),
    ],
)
def test_an_option_that_the_user_has_set_is_kept_and_the_others_added(given, result):
    assert channel_options(TF_GRPC_DEFAULT_OPTIONS=given) == result


def test_convolutions_use_onednn_unless_the_user_says_otherwise():
    assert prepared()["TF_ENABLE_ONEDNN_OPTS"] == "1"
    assert prepared(TF_ENABLE_ONEDNN_OPTS="0")["TF_ENABLE_ONEDNN_OPTS"] == "0"


def test_preparing_twice_changes_nothing():
    environ = prepared()
    assert prepared(**environ) == environ


def test_the_users_variables_are_kept():
    own = {name: "user's" for name in prepared() if name != "TF_GRPC_DEFAULT_OPTIONS"}
    assert own.items() <= prepared(**own).items()


def test_a_ps_hides_gpus_and_a_worker_does_not():
    assert prepared(is_ps=True, CUDA_VISIBLE_DEVICES="0")["CUDA_VISIBLE_DEVICES"] == ""
    assert prepared(CUDA_VISIBLE_DEVICES="0")["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in prepared()


def test_tensorflow_is_not_imported():
    code = "import sys; import ps_trainer.runtime.environment; print('tensorflow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
