"""The endpoint as a process: it answers, its latency is measured, and SIGTERM ends it cleanly."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import serving
from ps_trainer.checkpoints import writer


@pytest.mark.process
def test_an_endpoint_is_measured_and_ends_cleanly(tmp_path, capsys):
    values = {"logits/kernel": np.zeros([64, 10], np.float32), "logits/bias": np.zeros(10, np.float32)}
    writer.write(tmp_path / "checkpoints", 5, values | {"global_step": np.int64(5)})
    (tmp_path / "config.json").write_text(json.dumps({"train": {"model": "softmax", "dataset": "digits"}}))
    out = tmp_path / "out.json"
    assert serving.main([str(tmp_path), "--connections=1,2", "--requests=6", f"--out={out}"]) == 0
    measured = json.loads(out.read_text())
    assert [(row["connections"], row["requests"]) for row in measured["rows"]] == [(1, 6), (2, 6)]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] and row["max_memory_mib"] > 10 for row in measured["rows"])
    assert measured["provenance"]["command"] in capsys.readouterr().out


def test_a_request_of_zeros_suits_the_signature():
    dims = [{"size": "-1"}, {"size": "2"}, {"size": "-1"}]
    inputs = {
        "a": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": dims}},
        "b": {"dtype": "DT_INT64", "tensor_shape": {"dim": dims[:1]}},
    }
    metadata = {"metadata": {"signature_def": {"signature_def": {"serving_default": {"inputs": inputs}}}}}
    assert json.loads(serving.zeros_of(metadata)) == {"instances": [{"a": [[0.0], [0.0]], "b": 0}]}


def test_a_missing_logdir_ends_with_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        serving.main([str(tmp_path / "none")])
    assert ended.value.code == 2
    assert "none is not a folder; name the --logdir of a run" in capsys.readouterr().err.splitlines()[-1]
