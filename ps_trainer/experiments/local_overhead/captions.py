"""What the plots of the experiment on what a ps task costs show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "overhead": Caption(
        shows=(
            "Time against the size of the model, both axes logarithmic: circles, what a step with a ps task takes"
            " more than one without; crosses, the step without; black line, the fitted a + b·M."
        ),
        expected=(
            "a constant for small models and growth in proportion to the size for large ones, so that the circles"
            " follow the black line."
        ),
    ),
}
