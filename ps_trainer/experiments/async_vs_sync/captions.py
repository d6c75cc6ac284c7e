"""What the plots of the experiment on asynchronous and synchronous SGD show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "throughput": Caption(
        shows=(
            "Circles: measured ratio of gradients per second, against the number of workers; lines: the model 1 −"
            " α + α H_n."
        ),
        expected=(
            "circles on their lines, which are nearly flat for even steps and grow as log n for exponential ones."
        ),
    ),
    "losses": Caption(
        shows=(
            "Median training loss of each arm at its best learning rate: at the left against examples, at the right"
            " against virtual time. A run stops when its accuracy, not its loss, reaches the target. A colour stands"
            " for a kind of updates, a line style for α."
        ),
        expected="staleness and large batches cost examples; waiting for the slowest worker costs time.",
    ),
    "real_throughput": Caption(
        shows=(
            "Circles: ratio of gradients per second of real clusters; crosses: simulations with the same delays;"
            " lines: the model 1 − α + α H_n."
        ),
        expected=("circles on the crosses and on the lines, within the noise of few steps."),
    ),
}
