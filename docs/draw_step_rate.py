"""Draws step-rate.svg and peer-rates.svg in docs/images/, from `step_rate.csv` and `peers.csv` in benchmarks/results/.

python docs/draw_step_rate.py            # writes the file
python docs/draw_step_rate.py --check    # exits with 1 if the file is out of date

`python -m benchmarks.step_rate` writes such CSV files, the second with `--peers`; benchmarks/README.md says where the
stored ones come from.
"""

from __future__ import annotations

import csv
import pathlib
import sys
from collections.abc import Mapping

from draw_diagrams import BLUE, FOLDER, GREEN, GREY, ORANGE, Drawing, write_or_check

DATA = FOLDER.parent.parent / "benchmarks" / "results" / "step_rate.csv"
WORKLOADS = {"deep": "80 small variables", "wide": "8 large variables"}
CONTENDERS = {"stock": ("hand-written TF1 script", ORANGE), "packed": ("ps_trainer", BLUE)}
NUM_PS = "1"

PEER_DATA = DATA.with_name("peers.csv")
PEER_WORKLOADS = ("deep", "wide", "scalar", "large", "table")
BARE_OPS = "bare_ops"
PEERS = {
    "async": ("ps_trainer async", BLUE),
    "colocated": ("ps_trainer colocated", "#56B4E9"),
    "sync": ("ps_trainer sync", GREEN),
    "stock": ("TF1 script", ORANGE),
    "torch_ddp": ("PyTorch DDP", GREY),
    "paddle_ps": ("Paddle ps", "#CC79A7"),
}

LEFT, WIDTH, HEIGHT = 210.0, 720, 345
BAR, GROUP = 22.0, 62.0


def step_rate(rows: list[Mapping[str, str]]) -> str:
    """Two bars for each workload and mode, with the lowest and the highest of the repetitions.

    Args:
        rows: Rows of the benchmark's CSV file.
    """
    rates = {(row["workload"], row["mode"], row["who"]): row for row in rows if row["ps"] == NUM_PS}
    largest = max(float(row["steps_per_sec_max"]) for row in rates.values())
    scale = (WIDTH - LEFT - 140) / largest
    drawing = Drawing(WIDTH, HEIGHT, "Steps per second of a worker: hand-written TF1 script and ps_trainer")
    drawing.text(20, 30, "Steps per second of a worker (2 workers, 1 ps task, 2 cores)")
    for number, (name, colour) in enumerate(CONTENDERS.values()):
        drawing.bar(LEFT + 220 * number, 45, 14, 14, colour)
        drawing.text(LEFT + 22 + 220 * number, 57, name)
    for group, (workload, mode) in enumerate((w, m) for w in WORKLOADS for m in ("async", "sync")):
        top = 78 + GROUP * group
        drawing.text(LEFT - 14, top + BAR + 5, f"{WORKLOADS[workload]}, {mode}", anchor="end")
        for number, (who, (_, colour)) in enumerate(CONTENDERS.items()):
            row = rates[workload, mode, who]
            rate, lowest, highest = (float(row[f"steps_per_sec{part}"]) for part in ("", "_min", "_max"))
            y = top + BAR * number
            drawing.bar(LEFT, y, scale * rate, BAR - 3, colour)
            drawing.whisker(LEFT + scale * lowest, LEFT + scale * highest, y + (BAR - 3) / 2)
            label = f"{rate:.0f}" if who == "stock" else f"{rate:.0f}  ({float(row['ratio_to_stock']):.1f} times)"
            drawing.text(LEFT + scale * highest + 8, y + 15, label)
    drawing.text(20, HEIGHT - 8, "Bar: median of 3 runs that took turns; line: lowest to highest.", colour=GREY)
    return drawing.svg()


def peer_rates(rows: list[Mapping[str, str]]) -> str:
    """Bars for ps_trainer and other systems on each workload, as shares of the rate of bare TensorFlow ops.

    Args:
        rows: Rows of the benchmark's CSV file, with `--peers`.
    """
    rates = {(row["workload"], row["who"]): row for row in rows}
    workloads = [workload for workload in PEER_WORKLOADS if (workload, BARE_OPS) in rates]
    present = [[who for who in PEERS if (workload, who) in rates] for workload in workloads]
    widest = max(
        _share(rates, workload, who, "_max") for workload in workloads for who in PEERS if (workload, who) in rates
    )
    left, height = 130.0, 114 + sum(16 * len(names) + 14 for names in present)
    scale = (WIDTH - left - 110) / widest
    drawing = Drawing(WIDTH, int(height), "Steps per second as a share of bare TensorFlow ops")
    drawing.text(20, 30, "Steps per second as a share of what bare TensorFlow ops reach (2 workers, 1 ps task)")
    shown = [PEERS[who] for who in PEERS if any(who in names for names in present)]
    for number, (name, colour) in enumerate(shown):
        row, column = divmod(number, 4)
        drawing.bar(20 + 178 * column, 45 + 19 * row, 14, 14, colour)
        drawing.text(40 + 178 * column, 57 + 19 * row, name)
    top = 94.0
    for workload, names in zip(workloads, present, strict=True):
        drawing.text(left - 12, top + 8 * len(names) + 5, workload, anchor="end")
        for who in names:
            share, lowest, highest = (_share(rates, workload, who, part) for part in ("", "_min", "_max"))
            drawing.bar(left, top, scale * share, 13, PEERS[who][1])
            drawing.whisker(left + scale * lowest, left + scale * highest, top + 6.5)
            row = rates[workload, who]
            rate = float(row["steps_per_sec"]) * int(row["workers"])
            drawing.text(left + scale * highest + 8, top + 12, f"{rate:,.0f} steps/s")
            top += 16
        top += 14
    drawing.line(left + scale, 86, left + scale, top - 8)
    drawing.text(left + scale, top + 8, "bare ops", anchor="middle", colour=GREY)
    return drawing.svg()


def _share(rates: Mapping[tuple[str, str], Mapping[str, str]], workload: str, who: str, part: str) -> float:
    return float(rates[workload, who][f"steps_per_sec{part}"]) / float(rates[workload, BARE_OPS]["steps_per_sec"])


def main(argv: list[str]) -> int:
    """Writes or checks the file; returns the exit code."""
    drawings = {}
    for name, path, draw in (("step-rate.svg", DATA, step_rate), ("peer-rates.svg", PEER_DATA, peer_rates)):
        if not path.exists():  # results of --peers may not be published yet
            continue
        with path.open(encoding="utf-8", newline="") as file:
            drawings[FOLDER / name] = draw(list(csv.DictReader(file)))
    return write_or_check(drawings, pathlib.Path(__file__).name, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
