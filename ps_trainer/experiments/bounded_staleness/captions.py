"""What the plots of the experiment on bounded staleness show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "shares": Caption(
        shows=("Each bar is a worker's time, split into computing and waiting; marks: the model (A17)."),
        expected=(
            "the waiting part is largest at s = 0 and shrinks with each further clock of lead, most with the first"
            " ones; with one slow worker no finite bound helps."
        ),
    ),
    "rates": Caption(
        shows=(
            "Circles: clocks of a worker per mean step, against the bound; lines: the model (A17). 1 is the rate"
            " without a bound and without a slow worker."
        ),
        expected=(
            "circles on their lines, which rise most with the first clocks of lead; with one slow worker a flat"
            " line at its rate, 0.25."
        ),
    ),
    "objective": Caption(
        shows=(
            "Median of the updates, and of the time in mean steps, until the test loss is reached, each bound at"
            " its best learning rate."
        ),
        expected=("more updates with a larger bound, and the least time with a finite bound above 0."),
    ),
    "real_shares": Caption(
        shows=(
            "Each bar is the time of the workers of a real cluster: medians of the shares of computing,"
            " communicating and waiting, which need not add up to 1. Marks: where waiting begins in simulations"
            " with the same delays."
        ),
        expected=(
            "waiting is largest at s = 0 and shrinks with each clock of lead, as in the simulation; communicating"
            " does not depend on the bound."
        ),
    ),
}
