"""The words on the page of the experiment on backup workers among many workers."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.pilots import PILOT_SEEDS

from .cases import TARGET

TEXTS = PageTexts(
    question="Do many workers train better and sooner with backup workers than asynchronously?",
    answers={
        "accuracy": "64 workers [end|do not end] at a better test accuracy with backup workers than asynchronously",
        "accuracy_of_some": "16 workers [do|do not] (by a claim that was added after the run)",
        "sooner_than_async": "64 with backup workers [reach|do not reach] an accuracy sooner than asynchronous ones",
        "sooner_than_sync": "and they are [sooner|not sooner] there than synchronous ones without backup workers",
        "fifth": "where 4 of 50 workers are stragglers and links are shared, a fifth backup worker"
        " [makes|does not make] the median update slightly longer",
    },
    best_plot="accuracies",
    background=(
        "Asynchronous workers wait for nobody, but with n workers a gradient is n − 1 updates old on average. With many"
        " workers this forces a small learning rate. Synchronous gradients are fresh, but an update waits for the"
        " slowest of n workers. Backup workers are the compromise: the first n − b gradients make the update, and the"
        " last b are dropped. Each backup worker also pulls and pushes, which takes time where links are shared."
    ),
    formula=(
        "asynchronous:  staleness n − 1, n gradients in a mean step\n"
        "synchronous:   staleness 0, n gradients in the time of the slowest of n steps\n"
        "with backups:  staleness 0, n − b gradients in the time of the (n − b)-th of n steps\n"
        "time of an update's transfers ≥ (N + b) M / (p B) each way"
    ),
    finding=(
        "Chen et al. (abstract) find that synchronous training with backup workers converges faster than asynchronous"
        " training, and to better test accuracies. A summary names 96 workers with 4 backup workers as the best choice"
        " among 100. In a summary of Abadi et al. (section 6.3, Fig. 8c), 50 workers with 4 backup workers have the"
        " shortest median step. A fifth makes it slightly longer: the first discarded worker is then more often no"
        " straggler, and its traffic counts."
    ),
    setup=(
        "Trainings: a perceptron with 32 hidden units on digits in virtual time, batches of 4, 20 epochs of used"
        " gradients, lognormal steps (σ = 0.5). 1, 1 and 4 of 4, 16 and 64 workers are backup workers. Each arm has the"
        f" best of six rates on the seeds {PILOT_SEEDS[0]} and {PILOT_SEEDS[1]}; ten others judge. Final accuracy is"
        f" the mean of the last quarter; time counts to {TARGET:.0%}. Traffic: 50 workers and b more, TensorFlow's"
        " queue of tokens, sizes of Inception-v3: 95 MB, 17 ps tasks, 1 GB/s, computing 1.14 s. A step takes a"
        " quarter longer with a probability of 4/50, or all are lognormal (σ = 0.2)."
    ),
    reasons={
        "accuracy": "[Stale gradients need a small learning rate, with which the epochs do not suffice.|Both lose"
        " accuracy from 4 to 64 workers. Synchronous training loses more. It makes far fewer updates, which may be"
        " why.]",
        "accuracy_of_some": "[Probably staleness costs more here than fewer updates do; neither was varied alone.|]",
        "sooner_than_async": "[A small learning rate costs more examples than waiting costs time.|Asynchronous workers"
        " compute more gradients in the same time, which probably outweighs their staleness.]",
        "sooner_than_sync": "The slowest of 64 lognormal steps takes far longer than the 60th.",
        "fifth": "Its transfers share the links with those of all others, which costs more than it saves: without"
        " transfers the median falls.",
        "varied": "Each further worker brings the N-th gradient earlier, by more than its traffic costs.",
    },
    intervals="Student's t of the differences of the same seeds; Welch's t on the logarithms of times, or a bootstrap"
    " of medians where a seed misses the accuracy",
    limits=(
        "In a summary, Chen et al. train Inception with 100 workers. Here the task is so small that batches of 256"
        " waste examples, and the learning rate is constant.",
        "The step times of the sources are not known. The stragglers are chosen as the source explains its result, so"
        " the claim about the fifth backup worker shows that the explanation suffices, not that it is the only one.",
        "The test set has 360 digits; differences are paired over the seeds, which see the same ones. The other seeds,"
        " whose test error chooses the rates, see them, too.",
        "After 20 epochs the accuracy of 64 workers still rises; the source speaks of convergence.",
        "The claim about 16 workers was added after its result had been seen, on the same seeds. With 4 workers the two"
        " hardly differ (table).",
        "The median update counts, as in the source. The mean update becomes shorter with each backup worker (table).",
    ),
)
