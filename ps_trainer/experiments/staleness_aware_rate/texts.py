"""The words on the page of the experiment on learning rates that follow the staleness."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

from .cases import NEAR_RATE, NUM_REAL_LEARNERS, REAL_RATE, SMALL_RATE

TEXTS = PageTexts(
    question="Does it help to divide the learning rate by the staleness?",
    answers={
        "fails_small": "at the same small α₀, training without the division [fails|does not fail] at the largest"
        " staleness",
        "aware_small": "with α₀/τ, training [ends|does not always end] where synchronous training ends",
        "cnn_aware": "a convolutional network with α₀/τ [ends|does not end] there",
        "tuned_dispersed": "with the best rate of each, and widely spread staleness, α₀/τ ends [lower|higher] than one"
        " rate for all",
        "tuned": "and [ends|does not always end] where synchronous training with its best rate ends",
        "aware": "from the largest rate of synchronous training, α₀/τ [ends there|does not always end there]",
    },
    best_plot="errors",
    background=(
        "In n-softsync, the ps task makes an update of every c = λ/n gradients of λ learners. A larger n means more"
        " updates, of staler gradients: the mean staleness is about n. On a quadratic the largest stable learning rate"
        " falls nearly as 1/τ, and momentum lowers it further. The staleness-aware rule divides the rate by the"
        " staleness of each gradient. Fresh gradients keep the full rate, and stale ones move the parameters less."
    ),
    formula=(
        "α = α₀ / max(1, τ)\n"
        "\n"
        "α₀    learning rate of synchronous updates; the mean of τ is about n\n"
        "α₀/n  the same rate for every gradient, whatever its staleness is"
    ),
    finding=(
        "Zhang et al. (section 4, Figs 3 and 4) train a convolutional network on CIFAR-10 with 30 learners, batch 4 and"
        " momentum 0.9. With α₀ = 0.001, 15- and 30-softsync fail at a test error of 90 %. With α₀/τ, every n ends near"
        " 18 %, and the curves cannot be told apart. On ImageNet with 18 learners, α₀ fails for n = 9 and 18. Gupta et"
        " al. study the same protocols."
    ),
    setup=(
        "A perceptron with 32 hidden units on digits, momentum 0.9, λ = 30 learners with batches of 4. Runs have 12"
        " epochs, or 24 with the small α₀. Tuned arms have the rate with the smallest training loss on two pilot seeds."
        " A convolutional network trains for 48 epochs; all its arms have the α₀ that is best for α₀/τ. In virtual"
        " time, each gradient is divided by its own staleness before the mean of an update and before the momentum."
        f" Real clusters are λ = {NUM_REAL_LEARNERS} processes that sleep for 400 ms, with α₀ = {REAL_RATE:g}. There,"
        " `--update=staleness_aware` (“α₀/τ of the rule”) divides the optimizer's whole step, velocity included."
    ),
    reasons={
        "fails_small": "On a quadratic the largest stable rate falls nearly as 1/τ, so probably the full rate is far"
        " above it here, too. That of the network was not measured.",
        "fails": "The full rate is at the limit without staleness, and probably the limit falls with the staleness.",
        "aware_small": "On a quadratic the largest stable rate falls nearly as 1/τ, so that α₀/τ keeps the same"
        " distance from it for every n. That of the network was not measured.",
        "aware": "[|In 1-softsync the staleness is about 1, where α₀/τ is α₀. With momentum μ, the limit on a"
        " quadratic is 2 (1 + μ) without staleness and 1 − μ at a staleness of 1. At μ = 0.9, 38 times less.]",
        "global": "The mean staleness is about n (column). How little it varies was not measured here.",
        "dispersed": "Gradients that are staler than the mean move the parameters less, and fresh ones more. That this"
        " is the cause was not measured.",
        "tuned": "[|The columns “rate” and “training loss” show the arms. On a quadratic, momentum raises the limit"
        " of synchronous updates and lowers that of α₀/τ, which is probably why its best rate is smaller.]",
        "tuned_dispersed": "[|With α₀/τ the training loss at the end is higher, too (column “training loss”): it has"
        " learned less in as many epochs, with the rate that is best for it. Why was not measured.]",
        "cnn_aware": "[Both arms train until they have learned the examples (column “training loss”).|The column"
        " “training loss” shows how far each arm has learned the examples. The cause was not measured.]",
        "cnn_fails": "Probably that α₀ is far above the rate that staleness λ can stand, which was not measured for"
        " this network.",
        "batch": "The mean of λ gradients of batches of μ is the gradient of a batch of λμ.",
    },
    doubts={
        "batch": "At the larger rate, ten seeds vary too much to decide within one percentage point.",
        "dispersed": "Ten seeds vary too much for a difference as small as this.",
    },
    intervals="Student's t of the differences between the same seeds",
    limits=(
        "Two arms end alike if the 90 % t interval of their difference, of the same seeds, is within 1 point. All arms"
        " see the same 360 test digits, so the claims are about these.",
        f"The small α₀ ({SMALL_RATE:g}) is below the best rate of synchronous training; that at the limit is"
        f" {NEAR_RATE:g}. Nearly even steps vary by 5 % at most; exponential ones spread the staleness widely. Only the"
        " tuned arms have a rate of their own.",
        "The convolutional network learns digits of 8 × 8 pixels; the source's learns CIFAR-10.",
        "How far the sources' α₀ = 0.001 is below the limit of their network was not measured.",
        "n-softsync makes n times as many updates per epoch as synchronous training. With α₀/n and α₀/τ, the parameters"
        " move about as far per epoch.",
    ),
)
