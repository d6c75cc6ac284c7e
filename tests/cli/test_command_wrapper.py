"""Tests of ps_trainer.cli.command_wrapper."""

from __future__ import annotations

import os
import pathlib
import signal
import sys

import pytest

from ps_trainer import errors
from ps_trainer.cli import command_wrapper


def raising(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (errors.UsageError("--a=1: write\n  --a=2"), 2, "error: --a=1: write --a=2\n"),
        (errors.PsLostError("ps-0 is gone"), 1, "error: ps-0 is gone\n"),
        (errors.Interrupted(signal.SIGTERM), 128 + 15, "ended by SIGTERM\n"),
        (errors.Interrupted(signal.SIGINT), 128 + 2, "ended by SIGINT\n"),
        (KeyboardInterrupt(), 128 + 2, "ended by SIGINT\n"),
        (command_wrapper.HelpRequested(), 0, ""),
    ],
)
def test_turns_an_error_into_one_line_and_its_exit_code(error, code, message, capsys):
    assert command_wrapper.run_main(raising(error)) == code
    assert capsys.readouterr().err == message


def test_returns_the_commands_own_exit_code():
    assert command_wrapper.run_main(lambda: 7) == 7


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        command_wrapper.run_main(lambda: 1 // 0)


def test_finds_modules_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", ["/somewhere"])
    monkeypatch.chdir(tmp_path)
    command_wrapper.run_main(lambda: 0)
    command_wrapper.run_main(lambda: 0)
    assert sys.path == ["/somewhere", str(tmp_path)]


def test_modules_of_the_working_folder_come_before_those_of_the_scripts_clone(tmp_path, monkeypatch):
    clone = str(pathlib.Path(command_wrapper.__file__).resolve().parents[2])
    monkeypatch.setattr(sys, "path", [clone, "/somewhere"])
    monkeypatch.chdir(tmp_path)
    command_wrapper.run_main(lambda: 0)
    assert sys.path == ["/somewhere", str(tmp_path), clone]


def test_an_import_of_tensorflow_hides_output_of_any_code(capfd):
    with command_wrapper.importing_tensorflow():
        os.write(2, b"noise\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_an_import_of_tensorflow_shows_the_output_when_the_block_fails(capfd):
    with pytest.raises(ImportError), command_wrapper.importing_tensorflow():
        os.write(2, b"reason\n")
        raise ImportError
    assert capfd.readouterr().err == "reason\n"


def test_ctrl_c_during_an_import_of_tensorflow_shows_no_noise(capfd):
    with pytest.raises(KeyboardInterrupt), command_wrapper.importing_tensorflow():
        os.write(2, b"noise\n")
        raise KeyboardInterrupt
    assert capfd.readouterr().err == ""


def test_a_log_level_of_the_user_stays():
    for given, used in (({}, "2"), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, "0")):
        with command_wrapper.importing_tensorflow(given):
            assert given == {"TF_CPP_MIN_LOG_LEVEL": used}
