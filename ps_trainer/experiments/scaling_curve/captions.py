"""What the plots of the experiment on the scaling curve show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "throughput": Caption(
        shows=(
            "Steps per second of all workers against their number, both axes logarithmic: lines are virtual time,"
            " circles real clusters; dotted: the ceilings of the ps tasks."
        ),
        expected=(
            "circles on their lines, which grow with the number of workers, bend at the knee and end at the"
            " ceiling; more ps tasks move all of that up and to the right; asynchronous lines end twice as high as"
            " synchronous ones."
        ),
    ),
    "paper_speedup": Caption(
        shows=(
            "Simulated throughput over that of one worker; dotted: perfect speed-up. Black markers are published"
            " speed-ups, each over its own system's single worker."
        ),
        expected=("both rules fall behind the dotted line, synchronous updates more."),
    ),
    "steps": Caption(
        shows=(
            "Step times over the asynchronous median. Boxes: 10th to 90th percentile, with the median. Dots: the"
            " 99th percentile."
        ),
        expected=(
            "at the median a synchronous step is little longer than an asynchronous one, and far above the median"
            " much longer."
        ),
    ),
    "paper_steps": Caption(
        shows=(
            "Step times over the asynchronous median. Boxes: 10th to 90th percentile, with the median. Dots: the"
            " 99th percentile. Rare: one step in 1,000 is five times as long."
        ),
        expected=(
            "at the median a synchronous step is little longer than an asynchronous one; far above the median it"
            " is much longer where long delays are rare."
        ),
    ),
}
