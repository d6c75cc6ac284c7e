"""The stated origin of numbers, and the changes after which they must be measured again."""

from __future__ import annotations

import json

import pytest

from ps_trainer.experiments.harness import provenance


def test_provenance_names_command_versions_and_machine():
    origin = provenance.provenance(["python", "-m", "benchmarks.step_rate", "--out_dir=a b"])
    assert origin["command"] == "python -m benchmarks.step_rate '--out_dir=a b'"
    assert origin["versions"]["tensorflow"].startswith("2.")
    assert origin["cores"] >= 1
    assert origin["cpu"]
    assert len(origin["load_average"]) == 3
    json.dumps(origin)


def test_origin_in_a_sentence_names_command_date_commit_versions_and_machine():
    origin = provenance.provenance(["python", "-m", "benchmarks.update_rules"])
    sentence = provenance.origin_sentence({**origin, "commit": "0123456789", "has_uncommitted_changes": True})
    for part in ("`python -m benchmarks.update_rules`", origin["started"][:10], "0123456 with uncommitted changes"):
        assert part in sentence
    assert f"tensorflow {origin['versions']['tensorflow']}" in sentence
    assert f"{origin['cores']} cores, {origin['cpu']}" in sentence
    assert "commit unknown," in provenance.origin_sentence({**origin, "commit": None, "has_uncommitted_changes": False})


@pytest.mark.parametrize(
    ("commit", "has_changes", "committed"), [("0123", False, "0123"), ("0123", True, ""), (None, False, "")]
)
def test_code_with_uncommitted_changes_has_no_commit(commit, has_changes, committed):
    assert provenance.committed({"commit": commit, "has_uncommitted_changes": has_changes}) == committed


@pytest.mark.parametrize("error", [FileNotFoundError, None])
def test_provenance_works_without_git(tmp_path, monkeypatch, error):
    if error:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.provenance(["x"])["commit"] is None
