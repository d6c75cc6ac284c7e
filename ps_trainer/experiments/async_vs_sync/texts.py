"""The words on the page of the experiment on asynchronous against synchronous SGD."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.pilots import PILOT_SEEDS
from ps_trainer.experiments.toolkit.virtual_training import TARGET_ACCURACY, WINDOW_EXAMPLES

from .cases import NUM_REAL_WORKERS

TEXTS = PageTexts(
    question="Which reaches the same accuracy first, asynchronous or synchronous training?",
    answers={
        "time_uneven": "with exponential step times asynchronous SGD is [first|not first]",
        "time_even": "with nearly even step times [synchronous SGD is at least as fast|asynchronous SGD is first, too]",
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
        " to Downpour with Adagrad and 200 replicas. Chen et al. (abstract) find the opposite against synchronous SGD"
        " with backup workers: that one converges faster, and to better test accuracies."
    ),
    setup=(
        "A perceptron with 32 hidden units on digits. Steps last 100 ms on average, of which the share α is"
        f" exponential. Each arm has the learning rate of one grid that is best on the seeds {PILOT_SEEDS[0]} and"
        f" {PILOT_SEEDS[1]}. Claims are judged on ten others. Examples are counted until the mean"
        f" accuracy of the last {WINDOW_EXAMPLES} is {TARGET_ACCURACY:.0%}. In virtual time, pulls and pushes take no"
        f" time. Real clusters are up to {NUM_REAL_WORKERS} processes, which sleep for 0.3 to 1.2 s in a step. Their"
        " trainings end at a loss, because their steps log no accuracy."
    ),
    reasons={
        "throughput": "This ratio is a property of the drawn step times, so it checks the simulator.",
        "examples": "[|A synchronous update averages the batches of n workers. Where that is more than one update can"
        " use, the rest is wasted. Asynchronous SGD makes an update of each batch.]",
        "examples_global": "With the same batch per update, staleness is the only difference.",
        "time_even": "Nearly even steps cost no waiting, and stale gradients cost examples.",
        "time_uneven": "Waiting for the slowest of n exponential steps costs more than the staleness does.",
        "real_throughput": "[|Each ratio compares two runs. Where one of them waits for cores, the ratio shifts.]",
        "real_rates": "[|Several processes that wake at once wait for a core. The simulator has no such wait, and the"
        " simulations beside older runs had no cost of a step besides its delay.]",
        "real_time": "On the real cluster, too, the waiting costs more than the staleness does.",
    },
    intervals="Student's t on the log ratios of the same seeds; Welch's t on logarithms where seeds are not paired,"
    " with an open end where one of them gave up",
    limits=(
        "Times are of the same batch per worker. A synchronous worker with the n-th part of it has shorter steps.",
        "An arm that misses the target counts with all examples that it may see, which is a lower bound.",
        "Real time counts from the end of the first step, because a cluster still builds its graph in that step.",
        "The sources train networks of millions of parameters on up to thousands of machines. Here, trainings have at"
        " most 8 workers, and none compares final test accuracies.",
    ),
)
