"""The words on the page of the experiment on staleness and model quality."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import Outcomes, PageTexts
from ps_trainer.experiments.toolkit.virtual_training import TARGET_ACCURACY, WINDOW_EXAMPLES

TEXTS = PageTexts(
    question="What does staleness do to training?",
    answers=(
        Outcomes(
            "slower",
            "at one learning rate staler gradients take more updates to the same accuracy",
            "at one learning rate staler gradients do not always take more updates to the same accuracy",
        ),
        Outcomes(
            "boundary",
            "on a quadratic the largest stable rate falls about as 1/(1 + τ)",
            "on a quadratic the largest stable rate does not fall as 1/(1 + τ)",
        ),
        Outcomes("depth", "a deeper model suffers more", "a deeper model does not always suffer more"),
        Outcomes(
            "adagrad",
            "Adagrad suffers less than momentum and Adam",
            "Adagrad does not suffer less than momentum and Adam",
        ),
    ),
    best_plot="grid",
    background=(
        "A stale gradient belongs to parameters that are τ updates old. It corrects an error that other updates may"
        " have corrected already, so that training overshoots. On a quadratic, the parameters follow a linear recursion"
        " with a delay, whose largest stable learning rate is known exactly. A smaller rate is stable again, but needs"
        " more updates. So staleness costs updates or stability, unless the learning rate is already small."
    ),
    formula=(
        "w(t + 1) = w(t) − η · w(t − τ)   is stable if   η < 2 sin(π / (2 (2τ + 1)))\n"
        "\n"
        "η  learning rate times curvature; limits: 2 for τ = 0, 1 for τ = 1, 0.35 for τ = 4"
    ),
    finding=(
        "Chen et al. (section 2) train with old gradients, and their test error rises with the staleness. Dai et al."
        " find that deeper models slow down more, and that SGD and Adagrad tolerate more staleness than momentum, Adam"
        " and RMSProp. Both findings are taken from summaries. The exact limit for a constant delay is the condition of"
        " Levin and May."
    ),
    setup=(
        "Softmax regression and perceptrons with 1, 2 and 4 hidden layers of 32 units on digits, with batches of 32."
        " One stream of batches has gradients of parameters that are a given number of updates old: constant, uniform"
        f" or geometric. Updates are counted until the mean accuracy of the last {WINDOW_EXAMPLES} training examples is"
        f" {TARGET_ACCURACY:.0%}. After 600 updates a run has failed. A quadratic gives the largest stable rates."
    ),
    reasons=(
        Outcomes("slower", "An old gradient corrects an error that other updates have corrected already."),
        Outcomes(
            "boundary_geometric",
            refuted="Geometric staleness acts on the mean of the parameter as momentum, which alone would be stable up"
            " to the rate 2 (1 + 2τ). The random choice of the old version adds noise, and this noise limits the rate."
            " It feeds in η²w² per update, while the momentum damps at 1/(1 + τ). So the limit falls as 1/√(1 + τ).",
        ),
        Outcomes(
            "depth",
            "One learning rate is a larger part of the largest stable one in a deep model than in a shallow one.",
        ),
        Outcomes(
            "ramp",
            refuted="A ramp does not move the limit of stability. The loss falls while the present staleness is inside"
            " of the limit, and rises once it is outside. A ramp can help only where the beginning alone is hard.",
        ),
        Outcomes("adagrad", "Adagrad divides its rate by the gradients so far, so a rate that is too large shrinks."),
    ),
    limits=(
        "A run that fails counts in medians with the updates after which it gave up, which is a lower bound. A model"
        " that fails with staleness in most seeds counts as infinitely slow, and pairs that both fail are left out.",
        "Depths are compared at one learning rate, which is another part of the limit of each depth.",
        "The ramps have rates and staleness beyond the limit of the whole run, where no ramp can help.",
        "No run reaches the target in fewer updates than its window of examples takes.",
        "The sources' networks were convolutional. Their measure, the test error, differs here by less than the noise"
        " of 360 digits.",
    ),
)
