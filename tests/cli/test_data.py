"""`ps_trainer data`: its output and exit codes, in this process."""

from __future__ import annotations

import re

from ps_trainer.cli import main


def test_generate_names_the_files_written(tmp_path, capfd):
    out = tmp_path / "set"
    flags = ["--out", str(out), "--option=num_train=3", "--option", "num_test=2"]
    assert main.main(["ps_trainer", "data", "generate", "planted_ratings", *flags]) == 0
    path = out / "u.data"
    assert f"{path}  {path.stat().st_size} bytes" in capfd.readouterr().out
    assert len(path.read_text().splitlines()) == 3 + 2


def test_generate_lists_sets_with_their_options(capfd):
    assert main.main(["ps_trainer", "data", "generate", "list"]) == 0
    out = capfd.readouterr().out
    assert "planted_weights" in out and "--option num_planted=50" in out


def test_info_says_how_a_set_is_read_and_fails_for_an_unknown_one(tmp_path, capfd):
    folder = tmp_path / "set"
    flags = ["--out", str(folder), "--option=num_train=3", "--option", "num_test=2"]
    assert main.main(["ps_trainer", "data", "generate", "planted_ratings", *flags]) == 0
    assert main.main(["ps_trainer", "data", "info", str(folder), "--all"]) == 0
    assert f"read by --dataset=movielens --data_dir={folder}\n" in capfd.readouterr().out
    (folder / "u.data").write_text("nothing\0\n" * 2)
    assert main.main(["ps_trainer", "data", "info", str(folder)]) == 2
    assert "u.data: line 2: not user, item, rating" in capfd.readouterr().err


def test_info_takes_the_option_that_its_error_names(tmp_path, capfd):
    rows = "".join(f"{at},word {at},{'ab'[at % 2]}\n" for at in range(5000))
    (tmp_path / "train.csv").write_text("x,name,kind\n" + rows)
    assert main.main(["ps_trainer", "data", "info", str(tmp_path)]) == 2
    (advice,) = re.findall(r"--dataset_option=columns=name:ignore", capfd.readouterr().err)
    assert main.main(["ps_trainer", "data", "info", str(tmp_path), advice]) == 0
    assert advice in capfd.readouterr().out
