"""Makes docs/images/live-table.svg: the live table of a real run, as the terminal showed it.

python docs/draw_screenshot.py

The script starts `ps_trainer local` on a pseudo-terminal, keeps everything that it prints, and exports one frame with
Rich: the last one of the first nine tenths in which every worker trains. Linux only. The numbers depend on the machine,
so no test compares the file.
"""

from __future__ import annotations

import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from fcntl import ioctl

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "live-table.svg"
NUM_WORKERS, MAX_STEPS = 3, 3000
COMMAND = (
    f"ps_trainer local --num_ps=2 --num_workers={NUM_WORKERS} --num_evaluators=1 --model=cnn --dataset=digits"
    f" --update=async --learning_rate=0.03 --max_steps={MAX_STEPS} --save_checkpoint_secs=5 --report_secs=1"
)
COLUMNS, LINES = 100, 40
# Rich redraws in place: it erases the old lines one by one, and returns to the first of them.
ERASE_FRAME = re.compile(r"\r?(?:\x1b\[\d*A|\x1b\[2K|\r)+")
PROGRESS = re.compile(r"\] ([\d,]+)/[\d,]+ steps")
# The fonts that Rich names are loaded from the network; a picture in a page may not do that.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def record(command: list[str]) -> str:
    """Runs a command on a pseudo-terminal and returns what it printed.

    Raises:
        CalledProcessError: The command failed.
    """
    reader, writer = pty.openpty()
    ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=writer, stdout=writer, stderr=writer)
    os.close(writer)
    parts = []
    while True:
        try:
            part = os.read(reader, 65536)
        except OSError:  # Linux reports the end of a pseudo-terminal as an error
            break
        if not part:
            break
        parts.append(part)
    os.close(reader)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)
    return b"".join(parts).decode()


def choose_frame(output: str) -> str:
    """The last complete frame of the first nine tenths in which every worker trains."""
    frames = [frame for frame in ERASE_FRAME.split(output.replace("\r\n", "\n")) if "evaluation at" in frame]
    training = [f for f in frames if len(re.findall(r"^ worker-\d +training ", plain(f), re.MULTILINE)) == NUM_WORKERS]
    return next(f for f in reversed(training) if int(PROGRESS.search(plain(f))[1].replace(",", "")) <= 0.9 * MAX_STEPS)


def plain(frame: str) -> str:
    """The text of a frame, without colours."""
    return Text.from_ansi(frame).plain


def export(frame: str) -> str:
    """The frame as an SVG picture of a terminal."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(Text(f"$ {COMMAND}\n"))
    console.print(Text.from_ansi(frame))
    svg = console.export_svg(title="ps_trainer local", theme=MONOKAI, unique_id="live")
    return FONTS.sub("", svg)


def main() -> None:
    """Makes a run and writes the picture."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*COMMAND.split()[1:], f"--logdir={folder}/run"]
        output = record([sys.executable, "-m", "ps_trainer", *arguments])
    PICTURE.write_text(export(choose_frame(output)), encoding="utf-8")


if __name__ == "__main__":
    main()
