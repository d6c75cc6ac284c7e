"""The words on the page of the experiment on backup workers among many workers."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

from .cases import TARGET

TEXTS = PageTexts(
    question="Do many workers train better and sooner with backup workers than asynchronously?",
    answers={
        "accuracy": "64 workers [end|do not end] at a better test accuracy with backup workers than asynchronously",
        "sooner_than_async": "they [reach|do not reach] an accuracy sooner than asynchronous ones",
        "sooner_than_sync": "64 workers are [sooner|not sooner] at an accuracy with backup workers than without them",
        "accuracy_of_large": "64 workers with batches of 4, more than an update can use, [end|do not end] at a better"
        " accuracy with backup workers than asynchronously",
        "sooner_of_large": "and [are sooner|are not sooner] at an accuracy",
        "accuracy_of_some": "16 workers with batches of 4 [end|do not end] at a better accuracy (a claim that was added"
        " after the run)",
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
        "Trainings: a perceptron with 32 hidden units on digits in virtual time, 20 epochs of used gradients, lognormal"
        " steps (σ = 0.5). Batches have 4 examples, with 64 workers also 1. Of 4, 16 and 64 workers 1, 1 and 4 are"
        " backup workers. Each arm has the best of six rates of two pilot seeds; ten others judge, or 40 (batches of"
        f" 1). Final accuracy: mean of the last quarter; time counts to {TARGET:.0%}. Traffic: 50 + b workers,"
        " TensorFlow's token queue, Inception-v3: 95 MB, 17 ps tasks, 1 GB/s, computing 1.14 s. A step takes a quarter"
        " longer with probability 4/50, or all are lognormal (σ = 0.2)."
    ),
    reasons={
        "accuracy": "[Stale gradients need a small learning rate. Asynchronous trainings that fail in spite of it make"
        " the difference larger; the limits below say how much.|]",
        "accuracy_of_large": "[|With batches of 4 synchronous training makes a quarter of the updates that it makes"
        " with batches of 1, and ends lower (table). So the batches cost more here than staleness does.]",
        "sooner_of_large": "[|Larger batches shorten the way of asynchronous workers far more than that of synchronous"
        " ones (table), whose updates have more examples than they can use.]",
        "accuracy_of_some": "[Probably staleness costs more here than fewer updates do; neither was varied alone.|]",
        "sooner_than_async": "[A small learning rate costs more examples than waiting costs time.|Asynchronous workers"
        " compute more gradients in the same time, which probably outweighs their staleness.]",
        "sooner_than_sync": "The slowest of 64 lognormal steps takes far longer than the 60th.",
        "fifth": "Its transfers share the links with those of all others, which costs more than it saves: without"
        " transfers the median falls.",
        "varied": "Each further worker brings the N-th gradient earlier, by more than its traffic costs.",
    },
    doubts={
        "accuracy": "Asynchronous seeds differ much (“± SE”). At twice this learning rate, training fails in the pilot"
        " runs.",
        "sooner_than_async": "Times of asynchronous seeds differ much (p10, p90).",
    },
    intervals="Student's t of the differences of the same seeds; Welch's t on the logarithms of times, or a bootstrap"
    " of medians where a seed misses the accuracy",
    limits=(
        "In a summary, Chen et al. train Inception with 100 workers. Here the task is so small that 64 batches of 4"
        " waste examples. So the claims of the literature are about batches of 1. The learning rate is constant.",
        "The step times of the sources are not known. The stragglers are chosen as the source explains its result, so"
        " the claim about the fifth backup worker shows that the explanation suffices, not that it is the only one.",
        "The test set has 360 digits; differences are paired over the seeds, which see the same ones. The other seeds,"
        " whose test error chooses the rates, see them, too.",
        "Batches of 1 were chosen after batches of 4 had refuted both claims, and before they were run. Ten seeds left"
        " accuracy (0.0083 [-0.0019, 0.0185]) and time (1.07 [0.81, 1.41]) undecided, so 40 new ones judge.",
        "With batches of 1 two of 40 asynchronous trainings fail (accuracies 0.16 and 0.79) and raise the mean"
        " difference from 0.014 to 0.037. 36 of 40 are worse than with backup workers, by 0.012 at the median.",
        "After 20 epochs with batches of 4 the accuracy of 64 workers still rises; the source speaks of convergence.",
        "The claim about 16 workers was added after its result had been seen, on the same seeds. With 4 workers the two"
        " hardly differ (table).",
        "The median update counts, as in the source. The mean update becomes shorter with each backup worker (table).",
    ),
)
