"""What the plots of the experiment on the null step show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "source_scale": Caption(
        shows=("Simulated batches per second against the number of workers, 16 ps tasks; stars: the source's."),
        expected=(
            "scalar and sparse lines fall by less than ten times over 100 workers; dense lines are flat up to 16"
            " workers, as many as ps tasks, and fall as 1/n beyond; the source's stars lie above the dense lines by"
            " up to two, where pull and push overlap in part."
        ),
    ),
    "processes": Caption(
        shows=("Measured batches per second against the number of workers, one ps task."),
        expected=(
            "sparse points near the scalar ones whatever the table's size, dense ones lower the larger the model."
        ),
    ),
    "shaped": Caption(
        shows=(
            "Measured batches per second against the number of workers, one ps task; each host has a link of"
            " limited speed."
        ),
        expected=(
            "sparse points near the scalar ones whatever the table's size; dense ones lower the larger the model,"
            " and falling as 1/n where the link decides."
        ),
    ),
    "bandwidth": Caption(
        shows=(
            "Median dense steps against the prediction (A10); black: both alike; crosses: with the time from the"
            " first worker to the last added."
        ),
        expected=(
            "points near the diagonal; those of several workers may lie below it, as who has its parameters first"
            " pushes while others still pull."
        ),
    ),
}
