"""Draws the diagrams of the pages as SVG files in docs/images/, from the descriptions in this file.

python docs/draw_diagrams.py            # writes the files
python docs/draw_diagrams.py --check    # exits with 1 if a file is out of date
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

FOLDER = pathlib.Path(__file__).resolve().parent / "images"
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
FONT = 'font-family="system-ui, sans-serif" font-size="14"'


class Drawing:
    """An SVG picture that grows shape by shape; positions are pixels from the top left corner."""

    def __init__(self, width: int, height: int, title: str):
        self._shapes = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            f' role="img" {FONT}>',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="white"/>',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            f'<path d="M0 0 L8 4 L0 8 z" fill="{GREY}"/></marker></defs>',
        ]

    def box(self, x: float, y: float, width: float, height: float, lines: Sequence[str], colour: str) -> None:
        """A rectangle with lines of text in its middle."""
        self._shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4" fill="{colour}" fill-opacity="0.15"'
            f' stroke="{colour}"/>'
        )
        for number, line in enumerate(lines):
            middle = y + height / 2 + 5 + 18 * (number - (len(lines) - 1) / 2)
            self.text(x + width / 2, middle, line, anchor="middle")

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", colour: str = "#222222") -> None:
        """A line of text; `anchor` is start, middle or end."""
        self._shapes.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A straight arrow."""
        self._shapes.append(
            f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{GREY}" stroke-width="1.5"'
            ' marker-end="url(#tip)"/>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A thin dashed line."""
        self._shapes.append(f'<line x1="{x}" y1="{y}" x2="{to_x}" y2="{to_y}" stroke="{GREY}" stroke-dasharray="3 4"/>')

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A filled rectangle."""
        self._shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" fill="{colour}"/>')

    def whisker(self, x: float, to_x: float, y: float) -> None:
        """A thin horizontal line with ends, for a range of values."""
        for path in (f"M{x:.1f} {y:g} H{to_x:.1f}", f"M{x:.1f} {y - 4:g} v8", f"M{to_x:.1f} {y - 4:g} v8"):
            self._shapes.append(f'<path d="{path}" stroke="#222222" fill="none"/>')

    def svg(self) -> str:
        """The whole picture."""
        return "\n".join([*self._shapes, "</svg>", ""])


def cluster() -> str:
    """Two ps tasks, three workers, and what travels between them."""
    drawing = Drawing(720, 300, "Workers pull parameters from every ps task and push gradients to it")
    for index, half in enumerate(("first half", "second half")):
        drawing.box(130 + 260 * index, 20, 220, 64, [f"ps {index}", f"{half} of the parameters"], BLUE)
    for index in range(3):
        name = "worker 0, the chief" if index == 0 else f"worker {index}"
        drawing.box(40 + 230 * index, 210, 180, 64, [name, f"part {index + 1} of 3 of the data"], ORANGE)
        for ps in range(2):
            drawing.arrow(222 + 260 * ps + 12 * index, 84, 112 + 230 * index + 22 * ps, 208)
            drawing.arrow(148 + 230 * index + 22 * ps, 210, 252 + 260 * ps + 12 * index, 86)
    drawing.text(20, 140, "pull: parameters", colour=BLUE)
    drawing.text(20, 160, "push: gradients", colour=ORANGE)
    return drawing.svg()


def timelines() -> str:
    """Three workers of different speed, asynchronous and synchronous."""
    drawing = Drawing(760, 345, "Asynchronous workers never wait; synchronous workers wait for the slowest")
    scale, left = 7.0, 110.0
    durations = (12.0, 18.0, 30.0)
    for top, title, is_sync in ((20, "asynchronous", False), (180, "synchronous", True)):
        drawing.text(10, top + 14, title)
        for worker, secs in enumerate(durations):
            y = top + 24 + 36 * worker
            drawing.text(left - 12, y + 19, f"worker {worker}", anchor="end")
            start = 0.0
            while start + secs <= 90:
                drawing.box(left + scale * start, y, scale * secs - 2, 28, ["gradient"], (BLUE, ORANGE, GREEN)[worker])
                start = start + max(durations) if is_sync else start + secs
        if is_sync:
            for update in (1, 2, 3):
                x = left + scale * max(durations) * update - 1
                drawing.line(x, top + 16, x, top + 136)
                drawing.text(x, top + 148, f"update {update}", anchor="end")
    return drawing.svg()


def staleness() -> str:
    """One gradient of worker 0, and the updates of others that make it stale."""
    drawing = Drawing(720, 210, "The staleness of a gradient counts the updates between its pull and its apply")
    drawing.text(20, 40, "ps task")
    drawing.line(100, 35, 700, 35)
    drawing.text(20, 150, "worker 0")
    drawing.box(150, 125, 400, 40, ["computes its gradient with the parameters of clock 7"], BLUE)
    drawing.arrow(150, 40, 150, 122)
    drawing.text(142, 90, "pull, clock 7", anchor="end")
    drawing.arrow(550, 125, 550, 40)
    drawing.text(560, 90, "push")
    for x, worker in ((240, 1), (340, 2), (450, 1)):
        drawing.text(x, 26, f"worker {worker} +1", anchor="middle", colour=ORANGE)
        drawing.line(x, 30, x, 46)
    drawing.text(552, 26, "apply at clock 10", colour=BLUE)
    drawing.text(150, 195, "staleness = 10 − 7 = 3: the three updates of other workers in between")
    return drawing.svg()


def restart() -> str:
    """Draws what the other tasks do while a worker, and then a ps task, is restarted."""
    drawing = Drawing(
        760, 420, "After the loss of a worker nothing is rolled back; after the loss of a ps task all parameters are"
    )
    drawing.text(10, 22, "worker 1 is killed, under async")
    _lane(drawing, 34, "ps 0, ps 1", [(0, 600, "keep the parameters", BLUE)])
    _lane(drawing, 74, "worker 0, chief", [(0, 600, "trains", GREEN)])
    _lane(
        drawing, 114, "worker 1", [(0, 150, "trains", GREEN), (150, 300, "restarts", GREY), (300, 600, "trains", GREEN)]
    )
    drawing.line(270, 30, 270, 165)
    drawing.text(270, 180, "SIGKILL", anchor="middle", colour=ORANGE)
    drawing.text(420, 180, "reads the parameters", anchor="middle")
    drawing.text(10, 222, "ps 0 is killed, under any rule")
    _lane(
        drawing, 234, "ps 0", [(0, 150, "step 502", BLUE), (150, 300, "restarts", GREY), (300, 600, "step 451", BLUE)]
    )
    _lane(
        drawing, 274, "ps 1", [(0, 150, "step 502", BLUE), (150, 300, "step 502", BLUE), (300, 600, "step 451", BLUE)]
    )
    before, waits = (0, 150, "trains", GREEN), (150, 300, "waits for ps 0", GREY)
    after = (400, 600, "trains from step 451", GREEN)
    _lane(drawing, 314, "worker 0, chief", [before, waits, (300, 400, "restores", ORANGE), after])
    _lane(drawing, 354, "worker 1", [before, waits, (300, 400, "waits", GREY), after])
    drawing.line(270, 230, 270, 395)
    drawing.text(270, 410, "SIGKILL", anchor="middle", colour=ORANGE)
    drawing.text(420, 410, "last checkpoint: step 451", anchor="middle")
    return drawing.svg()


def _lane(drawing: Drawing, y: float, name: str, spans: Sequence[tuple[float, float, str, str]]) -> None:
    """One task's row: its name, and (from, to, text, colour) of what it does."""
    drawing.text(110, y + 20, name, anchor="end")
    for start, end, text, colour in spans:
        drawing.box(120 + start, y, end - start - 2, 30, [text], colour)


def step() -> str:
    """One step of a worker, and the pull of its next step."""
    drawing = Drawing(
        760, 330, "The pull of the next step begins on the ps task as soon as it has applied the gradient"
    )
    drawing.text(10, 60, "ps task")
    drawing.text(10, 250, "worker")
    drawing.box(120, 228, 190, 36, ["compute the gradient"], GREEN)
    drawing.box(590, 228, 150, 36, ["compute"], GREEN)
    drawing.box(360, 38, 60, 36, ["apply"], BLUE)
    drawing.box(424, 38, 82, 36, ["clock + 1"], BLUE)
    drawing.box(510, 38, 50, 36, ["read"], BLUE)
    drawing.arrow(310, 228, 388, 78)
    drawing.text(330, 160, "push: gradient", anchor="end", colour=ORANGE)
    drawing.arrow(465, 78, 500, 226)
    drawing.text(476, 190, "global_step,", anchor="end")
    drawing.text(480, 208, "staleness", anchor="end")
    drawing.arrow(540, 78, 588, 226)
    drawing.text(572, 150, "pull: parameters", colour=BLUE)
    drawing.line(120, 270, 120, 300)
    drawing.line(590, 270, 590, 300)
    drawing.text(355, 315, "one step: one call of session.run", anchor="middle")
    drawing.arrow(228, 310, 122, 310)
    drawing.arrow(482, 310, 588, 310)
    drawing.text(120, 24, "clock 7 was read with the parameters; the gradient is applied at clock 9: staleness 2")
    return drawing.svg()


def messages() -> str:
    """The messages of one step with a variable each, and with one flat vector."""
    drawing = Drawing(
        760, 300, "The packed layout sends one message where the classic form sends one for each variable"
    )
    for left, title in (
        (30, "per_variable: a message per variable, each way"),
        (410, "packed: one flat vector, each way"),
    ):
        drawing.text(left, 22, title)
        drawing.box(left, 40, 90, 230, ["ps task"], BLUE)
        drawing.box(left + 230, 40, 90, 230, ["worker"], ORANGE)
    for y in range(60, 261, 80):
        drawing.arrow(122, y, 258, y)
        drawing.arrow(258, y + 40, 122, y + 40)
    for y, text, colour in ((80, "parameters", BLUE), (150, "gradient", ORANGE), (220, "step, staleness", GREY)):
        drawing.text(570, y, text, anchor="middle", colour=colour)
        ends = (640, 504) if text == "gradient" else (502, 636)
        drawing.arrow(ends[0], y + 10, ends[1], y + 10)
    drawing.text(190, 290, "6 of the 161 messages of a step with 80 variables", anchor="middle")
    drawing.text(570, 290, "all 3 messages of the same step", anchor="middle")
    return drawing.svg()


DIAGRAMS = {
    "cluster": cluster,
    "timelines": timelines,
    "staleness": staleness,
    "restart": restart,
    "step": step,
    "messages": messages,
}


def write_or_check(texts: Mapping[pathlib.Path, str], script: str, argv: list[str]) -> int:
    """Writes files, or checks with `--check` in `argv` that they are current.

    Args:
        texts: The content of each file.
        script: Name of the script that writes them, for the message.
        argv: Arguments of that script.

    Returns:
        The exit code: 1 if a checked file is out of date.
    """
    outdated = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" not in argv:
        for path in outdated:
            path.write_text(texts[path], encoding="utf-8")
        return 0
    for path in outdated:
        print(f"docs/images/{path.name} is out of date; run: python docs/{script}", file=sys.stderr)
    return 1 if outdated else 0


def main(argv: list[str]) -> int:
    """Writes or checks all files; returns the exit code."""
    texts = {FOLDER / f"{name}.svg": draw() for name, draw in DIAGRAMS.items()}
    return write_or_check(texts, pathlib.Path(__file__).name, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
