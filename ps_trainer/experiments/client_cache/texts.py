"""The words on the page of the experiment on cached reads."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.pilots import PILOT_SEEDS

from .cases import BOUNDS, FRESH_BOUND, NUM_WORKERS

TEXTS = PageTexts(
    question="Do workers that read slightly old parameters from a cache reach an objective sooner?",
    answers={
        "computes": "workers with a cache [spend|hardly spend] more of their time computing than behind a barrier",
        "sooner_than_barrier": "they are [at|not at] the objective sooner than behind a barrier",
        "sooner_than_async": "they are [at least 5 % sooner|not 5 % sooner] there than asynchronous workers",
    },
    best_plot="times",
    background=(
        "Under stale synchronous parallel (SSP), a worker may be at most s steps ahead of the slowest. It may also read"
        " old parameters: from a copy on its own host that holds all updates up to s steps before, and its own ones."
        " Only when the copy is older, the worker pulls another. A larger s saves waiting and transfers, so workers"
        " compute more. But gradients of older parameters are worth less. The best s is a compromise."
    ),
    formula=(
        "a worker that has made c steps\n"
        "  waits  while c − min c > s          min c: steps of the slowest worker now\n"
        "  pulls  if c − copied > s            copied: min c at its last pull\n"
        "  reads  copy + own updates since then\n"
        "\n"
        "s = 0 adds up n gradients of one point; an averaging barrier divides them by n"
    ),
    finding=(
        "Ho et al. (abstract) let workers read older values from a local cache instead of waiting for them. They report"
        " that this significantly increases the share of time in which workers compute. On several problems SSP"
        " converges faster than fully synchronous and asynchronous schemes."
    ),
    setup=(
        f"{NUM_WORKERS} workers in virtual time with lognormal steps (σ = 0.5), and one ps task with a shared link. A"
        " pull alone takes an eighth of a mean step, and a whole one if all pull. Arms: cached reads with s of"
        f" {', '.join(map(str, BOUNDS))}; fresh reads, which pull in each step, with s = {FRESH_BOUND}; an averaging"
        " barrier; asynchronous workers. Matrix factorization by SGD on planted ratings, to a squared error of 0.1 (the"
        " noise is 0.04). Logistic regression by FTRL, with an ℓ1 penalty, on Zipf-distributed clicks, to a log loss of"
        f" 0.62. The seeds {PILOT_SEEDS[0]} and {PILOT_SEEDS[1]} choose bounds and rates; ten others judge."
    ),
    reasons={
        "sooner_than_async": "[|Here asynchronous workers pull fresh parameters in each step, and never wait. A cache"
        " adds little to the share of time in which they compute, and its old copies cost gradients.]",
        "computes": "Part of the steps begin without a pull, and a lead hides the slow steps of others.",
        "sooner_than_barrier": "The workers compute for a larger share of the time. With matrix factorization this"
        " outweighs what older parameters cost. With logistic regression the averaging barrier also needs more"
        " gradients (table), because FTRL hardly goes further with an averaged gradient than with a single one.",
        "quality": "A copy lacks up to s steps of each other worker.",
        "bound": "The rule pulls, and before that waits, whenever a copy could be older.",
    },
    doubts={
        "cache": "Workers with a cache compute for a larger share of the time, but need more gradients (table). For"
        " logistic regression the two nearly cancel.",
    },
    intervals="Welch's t on logarithms, or a bootstrap of medians where a seed misses the objective",
    limits=(
        "The sources' problems have up to millions of parameters; these have a few thousand.",
        "A push ends a step here. Ho et al.'s clients send their updates in the background.",
        f"Asynchronous workers, and those with fresh reads (s = {FRESH_BOUND}), pull in each step. A cache without any"
        " bound would never be refreshed.",
        "After its own FTRL gradient, a worker's cache gets the change that the ps task made. A real client would have"
        " to compute it.",
        "The link is slow on purpose: without transfers a cache saves nothing.",
        "Both problems have the same step times, so the shares of computing are the same, too.",
        "By SGD, cached reads at s = 0, and an averaging barrier with 8 times the rate, make the same updates.",
        "With FTRL, an update of averaged gradients goes hardly further than one of a single gradient. So on clicks the"
        " averaging barrier is far slower than cached reads with s = 0, which sum up the same gradients.",
        "On clicks the learning rate of the largest bound is the smallest of its grid, so a smaller one may be faster.",
    ),
)
