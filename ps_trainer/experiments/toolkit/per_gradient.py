"""`PerGradient`: n-softsync in which each gradient of an update is divided by its own staleness."""

from __future__ import annotations

from ps_trainer.simulation.replay import gradients, shared_parameters
from ps_trainer.simulation.replay.base import Entry
from ps_trainer.simulation.replay.gradients import Gradient, Values


class PerGradient(shared_parameters.Mean):
    """w ← optimizer(w, (1/c) Σ g_i / max(1, τ_i)), as Zhang et al. 2016 have it (their α₀/τ for each of c gradients).

    The velocity of momentum gets the divided gradient, as in the equation with the rate inside of the velocity.
    """

    def gradient_to_push(self, entry: Entry, gradient: Gradient, pulled: Values) -> Gradient:
        return gradients.scaled_gradient(gradient, 1.0 / max(entry.staleness, 1))
