"""The words on the page of the experiment on staleness and model quality."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.virtual_training import TARGET_ACCURACY, WINDOW_EXAMPLES

from .records import FASTEST_OVER_RATE, OPTIMIZER_TAU

TEXTS = PageTexts(
    question="What does staleness do to training?",
    answers={
        "slower": "at one learning rate staler gradients [take|do not always take] more updates to the same accuracy",
        "boundary": "on a quadratic the largest stable rate [falls about|does not fall] as 1/(1 + τ) for constant and"
        " for uniform staleness",
        "depth_at_one_rate": "at one learning rate four hidden layers [suffer|do not always suffer] more than softmax"
        " regression",
        "depth": "[at the same share of their fastest rate, too|at the same share of their fastest rate they do not"
        " always suffer more]",
    },
    best_plot="updates",
    background=(
        "A stale gradient belongs to parameters that are τ updates old. It corrects an error that other updates may"
        " have corrected already, so that training overshoots. On a quadratic, the parameters follow a linear recursion"
        " with a delay, whose largest stable learning rate is known exactly. A smaller rate is stable again, but needs"
        " more updates. So staleness costs updates or stability, unless the learning rate is already small."
    ),
    formula=(
        "w(t + 1) = w(t) − η · w(t − τ)   is stable if   η < 2 sin(π / (2 (2τ + 1)))\n"
        "for geometric τ the mean of w² shrinks if about η < √2 / √(1 + τ)\n"
        "\n"
        "η  learning rate times curvature; limits of constant τ: 2, 1, 0.35 for τ = 0, 1, 4"
    ),
    finding=(
        "In a summary of Dai et al., staleness slows deeper networks down more. Adam, momentum and RMSProp are more"
        " sensitive to it than other optimizers. Chen et al. (abstract) name noise as the cost of asynchronous updates."
        " The exact limit for a constant delay is the condition of Levin and May."
    ),
    setup=(
        "Staleness is constant, uniform or geometric. A search finds the largest stable rate on a quadratic. Trainings:"
        " softmax regression and perceptrons with 1, 2 and 4 hidden layers of 32 units on digits, with batches of 32."
        f" Updates count until the mean accuracy of the last {WINDOW_EXAMPLES} training examples is"
        f" {TARGET_ACCURACY:.0%}. Pilot seeds choose learning rates; others judge. Depths are compared at one rate, and"
        f" at 1/{FASTEST_OVER_RATE} of the fastest. A run gives up after 10 times a pilot seed's updates without"
        f" staleness; for optimizers, with τ = {OPTIMIZER_TAU}, after 20 times. The ramp takes 300 of 1,500 updates; to"
        f" fail is to end below {TARGET_ACCURACY:.0%}."
    ),
    reasons={
        "slower": "An old gradient corrects an error that other updates have corrected already.",
        "boundary_geometric": "The random choice of the old version adds noise, which feeds in η²w² per update, while"
        " the momentum that geometric staleness brings damps at 1/(1 + τ). Single sequences stay small up to larger"
        " rates.",
        "depth_at_one_rate": "The fastest rate of four hidden layers is smaller than that of softmax regression (table"
        " of the pilot seeds), so one rate is a larger part of it. Why two layers suffer more than one, whose fastest"
        " rate is the same, was not found.",
        "depth": "[|Softmax regression is about as fast over a wide range of rates, and the fastest of them is large."
        " So the same share of it is a larger rate than that of a perceptron.]",
        "rmsprop": "[|Without staleness RMSProp needs the most updates of all, with it neither the most nor the fewest"
        " (table). Why was not found.]",
        "ramp": "[|Probably a ramp does not move the limit of stability, so that the rate is too large once the"
        " staleness is whole. This limit was not measured.]",
    },
    doubts={
        "slower": "With little staleness the medians hardly differ (table), so chance orders them.",
    },
    intervals="a bootstrap of medians over the seeds; Wilson's interval of the share rescued",
    limits=(
        "Of a run that gives up, only a lower bound is known. Medians and intervals take it as unknown: a value with ≥"
        " or ≤ is a bound, and pairs of two unknown medians are left out.",
        "Depths are compared at a share of the fastest rate and not of the largest stable one, which need not exist:"
        " softmax regression at a large rate acts like Rosenblatt's perceptron.",
        "Claims compare four hidden layers with none and with one; the tables have two as well.",
        "No run reaches the target in fewer updates than its window of examples takes.",
        "On the quadratic, uniform and geometric staleness have three seeds, and their medians no interval.",
        "The sources measure the test error; on 360 digits its noise is larger than"
        " the differences between these runs.",
    ),
)
