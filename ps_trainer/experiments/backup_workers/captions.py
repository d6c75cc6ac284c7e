"""What the plots of the experiment on backup workers show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "step_times": Caption(
        shows=(
            "Median over seeds of the mean time per update against backup workers, a panel for each kind of step"
            " times; shaded: 10th to 90th percentile of updates; crosses: models of each rule; dashed: stragglers"
            " that are cancelled (A3)."
        ),
        expected=(
            "the time falls most with the first backup worker and less with each further one; circles on the"
            " crosses of their rule, and above the dashed line but for the slow worker."
        ),
    ),
    "speedups": Caption(
        shows=(
            "Speed-up over no backup workers, with the work of the backup workers counted: t(0)/t(b) · N/(N + b)."
            " Black line: no gain."
        ),
        expected=(
            "with heavy tails a highest point above 1 at some backup workers; with shifted exponential steps no"
            " point above 1."
        ),
    ),
    "paper_scale": Caption(
        shows=(
            "The same at the papers' numbers of workers, token queue only; star and dotted line: what was published."
        ),
        expected=("with the fitted steps a flat line around its highest point, near the published one."),
    ),
    "arrivals": Caption(
        shows=(
            "Share of updates of which the k-th gradient has arrived, against the time since the update before;"
            " drawn through the 5th to 95th percentiles, minimum and maximum."
        ),
        expected=(
            "the curves of the last gradients stand further apart than those of the first ones: an update waits"
            " longest for its last few gradients."
        ),
    ),
    "real_step_times": Caption(
        shows=("Circles: mean time per update of real clusters; crosses: simulations with the same delays."),
        expected=(
            "circles on the crosses, or a few percent above, for all step times and all numbers of backup workers."
        ),
    ),
}
