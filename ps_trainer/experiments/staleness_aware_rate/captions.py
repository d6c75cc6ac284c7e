"""What the plots of the experiment on staleness-aware learning rates show, and what was expected of them."""

from __future__ import annotations

from ps_trainer.experiments.frame.captions import Caption

CAPTIONS = {
    "losses": Caption(
        shows=(
            "Training loss against epochs, a panel for each learning rate; each n has one colour in both; black:"
            " synchronous updates."
        ),
        expected=(
            "with α₀ the curves of large n stay high or leave the picture; with α₀/τ all lie together with the"
            " black one."
        ),
    ),
    "errors": Caption(
        shows=(
            "Test error against n; black line: synchronous updates, with a grey band of two standard errors of the"
            " test set to each side."
        ),
        expected=("with α₀ the error of guessing; with α₀/n and α₀/τ errors within the grey band."),
    ),
}
