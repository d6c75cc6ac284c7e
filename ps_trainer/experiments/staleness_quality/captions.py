"""What the plots of the experiment on staleness and model quality show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "boundary": Caption(
        shows=(
            "Largest stable learning rate against one plus the mean staleness τ, both axes logarithmic; black"
            " line: the exact rate for constant staleness; dotted: 1.8/√(1 + τ)."
        ),
        expected=(
            "constant staleness on the exact line, uniform staleness above it, both falling about as 1/(1 + τ),"
            " and so the geometric one."
        ),
    ),
    "grid": Caption(
        shows=("Each cell is the median of the updates to the target; a dash: most runs do not reach the target."),
        expected=("a corner of dashes at large rates and large staleness."),
    ),
    "updates": Caption(
        shows=(
            "Median of the updates to the target, bars from the 10th to the 90th percentile. Triangles at the cap:"
            " most runs gave up there, so their updates are that many or more."
        ),
        expected=("the updates rise with the staleness; the same mean costs most when it is constant."),
    ),
    "depth": Caption(
        shows=(
            "Median of the updates over those of the same model without staleness. Triangles: most runs gave up"
            " there, so the true value is that much or more."
        ),
        expected=("the more hidden layers, the earlier and the steeper the line rises."),
    ),
}
