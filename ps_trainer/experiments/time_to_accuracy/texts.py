"""The words on the page of the experiment on the time to an accuracy."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.pilots import PILOT_SEEDS

from .cases import TARGET_LOSS

TEXTS = PageTexts(
    question="How much sooner do several workers reach an accuracy than one?",
    answers={
        "async_sooner": "in virtual time, more asynchronous workers of the same batch are [there|not always there]"
        " sooner than one",
        "sync_sooner": "more synchronous workers are [there|not always there] sooner than one",
        "halves": "two synchronous workers [need|do not need] about half of one worker's updates",
        "wastes": "16 [need more|do not need many more] examples than one",
        "fixed_batch": "workers that share one batch [need|do not need] as many examples as one worker",
        "real_sooner": "on real clusters more workers are [at a loss sooner than one|not always at a loss sooner than"
        " one]",
    },
    best_plot="speedups",
    background=(
        "Strong scaling keeps the work of an update: n workers share the batch of one, so each computes for the n-th"
        " part of the time. What does not become shorter limits the gain, such as pulls and pushes (Amdahl's law)."
        " Weak scaling keeps the work of a worker: each has the whole batch, so an update has n batches. It gains as"
        " far as fewer updates with larger batches go as far. Synchronous workers also wait for the slowest step;"
        " asynchronous ones push stale gradients instead."
    ),
    formula=(
        "speed-up S(n) = time of one worker / time of n workers\n"
        "strong, synchronous:  S(n) = (1 + c) / ((1 − α + α H_n)/n + c)\n"
        "weak, synchronous:    S(n) = n (1 + c) / (1 − α + α H_n + c) · E(1)/E(n)\n"
        "\n"
        "E(n)  examples to the accuracy\n"
        "c  time of a step besides computing, in mean steps of one worker\n"
        "α  share of a step that is exponential; the slowest of n takes 1 − α + α H_n"
    ),
    finding=(
        "Dean et al. (section 5, Figs 4 and 5) train a speech network. Asynchronous training with 20 replicas"
        " reaches an accuracy sooner than one replica; with Adagrad and 200 replicas it is fastest. Goyal et al."
        " (section 1) train ResNet-50 with 256 synchronous GPUs in 1 hour, and with 8 in 29 hours, at the same"
        " accuracy; each GPU has 32 images in both. Shallue et al. (Fig. 1) find one form for all problems: at first"
        " twice the batch halves the steps to a goal. Then the gain diminishes, until larger batches save nothing."
    ),
    setup=(
        "A perceptron with 32 hidden units on digits trains to a test accuracy of 93 % in virtual time. Strong scaling:"
        " 32 examples an update; weak scaling: 8 a worker. A step of one worker takes 400 ms, of which a fifth is"
        " exponential; beside it, a step costs 2.4 ms (page `backup_workers`)."
        f" The learning rate of each arm is the fastest of five on the seeds {PILOT_SEEDS[0]} and {PILOT_SEEDS[1]};"
        " claims are judged on ten others. A training gives up after 12 epochs. On real clusters each worker sleeps in"
        f" a step, and trains to a mean loss of {TARGET_LOSS:g}. All times are in mean steps of one worker."
    ),
    reasons={
        "async_sooner": "No worker waits: n compute n times the gradients, which outweighs staleness.",
        "sync_sooner": "Waiting for the slowest of few similar steps costs less than the others' work gains.",
        "halves": "Probably the noise of the gradient limits an update of so small a batch; it was not measured.",
        "wastes": "Probably noise limits an update of 128 examples less, so that a more exact gradient goes hardly"
        " further; it was not measured.",
        "update_time": "This follows from the drawn step times, so it checks the simulator.",
        "small_pushes": "The others make n − 1 small updates meanwhile, which together are less than one whole update.",
        "async_first": "[They do not wait for the slowest step.|What they gain by not waiting, their stale gradients"
        " lose.]",
    },
    doubts={
        "fixed_batch": "The arms draw other batches, and the pilot seeds chose other learning rates for some of them"
        " (column).",
        "small_pushes": "Probably staleness costs some examples; the seeds differ too much to tell whether a quarter.",
        "async_first": "With few workers little waiting is saved, and staleness probably costs about as much (table).",
    },
    intervals="Welch's t on logarithms, or a bootstrap of medians where a seed misses the accuracy; order statistics"
    " for medians over the cases",
    limits=(
        "Steps of a real cluster log a loss and no accuracy, so its goal is a loss. Its learning rates are not tuned:"
        " they were fast ones in virtual time.",
        "Steps vary little: with heavy tails synchronous workers wait longer (page `async_vs_sync`).",
        "Links are not shared: with large models transfers limit the gain (page `scaling_curve`).",
        "The first crossing of the accuracy counts, as noisy as tests on 360 digits are.",
        "The sources train for hours on up to hundreds of machines.",
    ),
)
