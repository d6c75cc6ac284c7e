"""Draws docs/images/step-rate.svg, the chart of the README, from `benchmarks/results/step_rate.csv`.

python docs/draw_step_rate.py            # writes the file
python docs/draw_step_rate.py --check    # exits with 1 if the file is out of date

`python -m benchmarks.step_rate` writes such a CSV file; benchmarks/README.md says where the stored one comes from.
"""

from __future__ import annotations

import csv
import pathlib
import sys
from collections.abc import Mapping

from draw_diagrams import BLUE, FOLDER, GREY, ORANGE, Drawing, write_or_check

DATA = FOLDER.parent.parent / "benchmarks" / "results" / "step_rate.csv"
WORKLOADS = {"deep": "80 small variables", "wide": "8 large variables"}
CONTENDERS = {"stock": ("hand-written TF1 script", ORANGE), "packed": ("ps_trainer", BLUE)}
NUM_PS = "1"

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


def main(argv: list[str]) -> int:
    """Writes or checks the file; returns the exit code."""
    with DATA.open(encoding="utf-8", newline="") as file:
        text = step_rate(list(csv.DictReader(file)))
    return write_or_check({FOLDER / "step-rate.svg": text}, pathlib.Path(__file__).name, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
