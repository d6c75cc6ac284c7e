"""The words on the page of the experiment on asynchronous against synchronous SGD."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.pilots import PILOT_SEEDS
from ps_trainer.experiments.toolkit.real_clusters import REAL_TIMES
from ps_trainer.experiments.toolkit.virtual_training import TARGET_ACCURACY, WINDOW_EXAMPLES

from .cases import ALPHAS, NUM_REAL_WORKERS, TARGET_LOSS

TEXTS = PageTexts(
    question="Which reaches the same accuracy first, asynchronous or synchronous training?",
    answers={
        "time_uneven": "with exponential step times asynchronous SGD is [first|not first]",
        "time_even": "with nearly even step times [synchronous SGD is at least as fast|asynchronous SGD is first]",
        "examples_global": "with the same batch per update asynchronous SGD needs [no fewer|fewer] examples",
    },
    best_plot="throughput",
    background=(
        "A synchronous update waits for the slowest of n workers. Asynchronous workers wait for nobody, so they compute"
        " more gradients in the same time. The ratio is large where step times vary, and 1 where they do not. But"
        " asynchronous gradients are stale: others have changed the parameters in the meantime. So asynchronous SGD may"
        " need more examples. The time to an accuracy is the product of both effects."
    ),
    formula=(
        "gradients per second, asynchronous : synchronous = E[max] / E[X]          (A2)\n"
        "\n"
        "= 1 − α + α·H_n  if the share α of a step is exponential\n"
        "H_2 = 1.5, H_4 = 2.08, H_8 = 2.72, H_16 = 3.38"
    ),
    finding=(
        "Dean et al. (section 5, Figs 4 and 5) train a speech network of about 42 million parameters. The time to a"
        " fixed accuracy of 16 % falls from one replica to asynchronous Downpour SGD with 20 replicas. It falls further"
        " to Downpour with Adagrad and 200 replicas. Chen et al. (abstract) say that asynchronous training makes the"
        " most updates per second, and that it adds noise. Against synchronous SGD with backup workers they find the"
        " opposite: that one converges faster, and to better test accuracies."
    ),
    setup=(
        "A perceptron with 32 hidden units on digits, 4 and 8 workers, batches of 32, or of 32/n for the same batch per"
        f" update. Of a step's mean time the share α is exponential: {', '.join(f'{alpha:g}' for alpha in ALPHAS)}."
        f" Each arm has the best learning rate of one grid on the seeds {PILOT_SEEDS[0]} and {PILOT_SEEDS[1]}; ten"
        f" others judge. Examples count until the mean accuracy of the last {WINDOW_EXAMPLES} is {TARGET_ACCURACY:.0%}."
        f" In virtual time, pulls and pushes take no time. Real clusters are up to {NUM_REAL_WORKERS} processes, which"
        f" sleep for 0.3 to 1.2 s in a step. They log no accuracy, so their trainings end at a loss of {TARGET_LOSS:g}."
    ),
    reasons={
        "throughput": "This ratio is a property of the drawn step times, so it checks the simulator.",
        "examples": "[|A synchronous update averages the batches of n workers, which may be more than it can use. Why"
        " it depends on the step times of asynchronous workers (column “examples”) was not found.]",
        "examples_global": "With the same batch per update, the arms differ in staleness and in the learning rate that"
        " suits it.",
        "time_even": "Nearly even steps cost little waiting, less than the additional examples of asynchronous SGD"
        " (column “examples”).",
        "time_uneven": "Asynchronous workers do not wait for the slowest of n exponential steps. The column “examples”"
        " shows how many more or fewer they need.",
        "real_throughput": f"[|{REAL_TIMES}]",
        "real_rates": f"[|{REAL_TIMES}]",
        "real_time": "Asynchronous workers do not wait for the slowest of n exponential steps. The column “examples”"
        " shows how many more or fewer they need.",
    },
    intervals="Student's t on the log ratios of the same seeds; Welch's t on logarithms where seeds are not paired, or"
    " a bootstrap of medians where one of them gave up",
    limits=(
        "Times are of the same batch per worker. A synchronous worker with the n-th part of it has shorter steps.",
        "An arm that misses the target counts with all examples that it may see, which is a lower bound.",
        "Real time counts from the end of the first step, because a cluster still builds its graph in that step.",
        "The sources train networks of millions of parameters on up to thousands of machines. Here, trainings have at"
        " most 8 workers, and none compares final test accuracies.",
    ),
)
