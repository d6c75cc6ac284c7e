"""`ps_trainer predict`: flags that it refuses."""

from __future__ import annotations

from ps_trainer.cli.predict import main_predict
from ps_trainer.errors import EXIT_USAGE


def test_the_predictions_do_not_replace_the_input(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("x\n1\n")
    flags = ["--logdir=run", "--input=rows.csv", f"--out={tmp_path}/rows.csv"]
    assert main_predict(flags) == EXIT_USAGE
    assert "rows.csv would replace the input; name another file" in capsys.readouterr().err
    assert (tmp_path / "rows.csv").read_text() == "x\n1\n"
