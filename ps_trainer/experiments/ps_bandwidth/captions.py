"""What the plots of the experiment on bandwidth show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "round": Caption(
        shows=(
            "Time of a round in units of M/B, the model's bytes over a link's speed, with the 10th and 90th"
            " percentile; lines: the models (A10, A11, A12)."
        ),
        expected=(
            "points on their lines: with one ps task the time grows by 2 per worker, with two half as fast, with"
            " as many ps tasks as workers it stays at 2; the ring and ps tasks on the workers' own hosts lie"
            " together below 2; asynchronous workers lie below the lines of synchronous ones."
        ),
    ),
    "d2l": Caption(
        shows=(
            "Time of a round over its time with a share of the model on each worker's host: in the book's example"
            " of 160 MB, and here."
        ),
        expected=("the book's ratios: four with one ps task on a worker's host, 5.3 with one on a host of its own."),
    ),
    "largest_variable": Caption(
        shows=(
            "Time of a round in units of M/B, the model's bytes over a link's speed; black: predicted from the"
            " largest share of a ps task."
        ),
        expected=("whole on one ps task the variable makes a round several times as long as in parts."),
    ),
    "bytes": Caption(
        shows=(
            "Bytes that the busiest host receives in a round, in multiples of the model's bytes M; black:"
            " predicted, nM/p at a ps task and 2(n − 1)M/n in a ring."
        ),
        expected=("each bar ends at its black line."),
    ),
}
