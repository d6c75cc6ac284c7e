"""Surroundings of every command: exit codes for errors, Python path, logging."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, MutableMapping
from typing import NoReturn

from ps_trainer.errors import EXIT_DONE, Interrupted, PsTrainerError

_EXIT_CTRL_C = 130
_EXIT_CLOSED_PIPE = 141  # 128 + SIGPIPE, as of a program that does not handle the signal
_CLONE = str(pathlib.Path(__file__).resolve().parents[2])


class HelpRequested(Exception):
    """The command has shown the help that the user asked for, and ends."""


def run_main(command: Callable[[], int]) -> int:
    """Runs a command and returns its exit code.

    An error of this package becomes one line on stderr. Any other exception is a defect: it propagates, so that Python
    prints its traceback and exits with 1.

    Args:
        command: Function that does the work and returns an exit code.

    Returns:
        0 done, 1 failed, 2 wrong usage, 130 or 143 after a signal, 141 if stdout is a pipe that its reader has closed.
    """
    _add_working_folder()
    try:
        try:
            return command()
        except HelpRequested:
            return EXIT_DONE
        finally:
            sys.stdout.flush()  # so that a closed pipe shows within this function
    except PsTrainerError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return error.exit_code
    except Interrupted as interruption:
        print(interruption, file=sys.stderr, flush=True)
        return interruption.exit_code
    except KeyboardInterrupt:
        # Ctrl-C before the command has set its signal handlers, for example during an import.
        print("ended by SIGINT", file=sys.stderr, flush=True)
        return _EXIT_CTRL_C
    except BrokenPipeError:
        # The reader of stdout, such as `head`, has ended. A later flush of stdout must not fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_CLOSED_PIPE


def leave(code: int) -> NoReturn:
    """Ends the process with `code`, without Python's teardown.

    TensorFlow's servers cannot be shut down; their threads make the teardown slow, and it can hang.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def start_logging() -> None:
    """Sends log lines from INFO up to stderr, in absl's format."""
    from absl import flags, logging

    flags.FLAGS.mark_as_parsed()  # absl.logging refuses to read its flags before they are parsed; the defaults suffice
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)


@contextlib.contextmanager
def importing_tensorflow(environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Imports TensorFlow; hides stderr meanwhile and inside of the block, and prints the hidden text after a failure.

    TensorFlow's C++ code prints some lines that no setting turns off. The others are silenced below errors, unless the
    user chose a level.
    """
    from ps_trainer.runtime import tensorflow_import

    environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    # The descriptor and not `sys.stderr`, because C++ code writes to the descriptor. A file and not a pipe, because a
    # full pipe would block the writer.
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as sink:
        os.dup2(sink.fileno(), 2)
        failed = False
        try:
            tensorflow_import.load()
            yield
        except Exception:  # Ctrl-C needs no reason
            failed = True
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            if failed:
                sink.seek(0)
                os.write(2, sink.read())


def start_tensorflow() -> None:
    """Imports TensorFlow for a command that, like a ps task, computes nothing on GPUs."""
    from ps_trainer.runtime import environment

    environment.prepare(is_ps=True)
    with importing_tensorflow():
        pass


def _add_working_folder() -> None:
    """Lets `--model=my_file:MyModel` find modules of the working folder, as `python -m` does by itself.

    The working folder comes last on the path, so that its modules never replace installed modules. Only the clone of a
    script such as `run_worker.py` comes later: the clone's `models` must not hide the user's `models`.
    """
    if getattr(sys.flags, "safe_path", False) or os.getcwd() in sys.path:
        return
    sys.path.append(os.getcwd())
    if sys.path[0] == _CLONE:
        sys.path.append(sys.path.pop(0))
