"""What the plots of the experiment on the distribution of gradient staleness show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "histograms": Caption(
        shows=(
            "Shares of gradients by their staleness, a row for each kind of step times, a column for each number"
            " of workers; dotted: n − 1; black line: the geometric distribution (A7)."
        ),
        expected=(
            "one bar at n − 1 for nearly even steps, a hill around n − 1 for lognormal ones; for exponential ones"
            " bars that fall from 0 on and follow the black line."
        ),
    ),
    "moments": Caption(
        shows=(
            "Mean and standard deviation of the staleness against the number of workers; black lines: the models,"
            " n − 1 (A6) and √(n(n − 1)) (A7)."
        ),
        expected=(
            "means of all kinds of step times on the line n − 1; standard deviations near 0 for even steps, on the"
            " line for exponential ones, between them for lognormal ones."
        ),
    ),
    "by_worker": Caption(
        shows=(
            "Mean staleness of each worker's gradients, the last worker four times slower; black lines: the"
            " others' rate over its own (A8)."
        ),
        expected=("bars that end at their black lines, at 2.25 for three workers and at 12 for the slow one."),
    ),
    "softsync": Caption(
        shows=(
            "Circles: mean staleness in updates against the gradients per update, 8 workers; black line: (n − 1)/c"
            " (A6)."
        ),
        expected=("circles on the line: 7, 3.5, 1.75, 0.875 for c = 1, 2, 4, 8."),
    ),
}
