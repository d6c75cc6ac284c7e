"""The words on the page of the experiment on linear scaling."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.virtual_training import WINDOW_EXAMPLES

TEXTS = PageTexts(
    question="How must the learning rate grow with the number of synchronous workers?",
    answers={
        "same": "with k times the learning rate and a warm-up, [a|even a] few workers [need|do not need] as many"
        " examples as one",
        "unscaled": "with the learning rate of one worker they [need|do not always need] more",
        "breaks": "for 32 workers the rule [breaks|still holds]",
        "warmup": "without the warm-up large batches [need|do not always need] more examples",
    },
    best_plot="examples",
    background=(
        "Synchronous SGD with k workers takes the mean of k gradients, so it makes one update where one worker makes k."
        " As long as the parameters hardly move during these k updates, one update with k times the learning rate goes"
        " as far. The rule must break where k times the rate is more than the largest useful rate. It also breaks where"
        " the noise of a batch no longer limits an update. At the start the parameters move fast. So the rate begins"
        " small there, and grows over some epochs: the warm-up."
    ),
    formula=(
        "k updates:   w(t + k) = w(t) − η Σⱼ g(w(t + j); batch j)\n"
        "one update:  w(t + 1) = w(t) − k η · (1/k) Σⱼ g(w(t); batch j)\n"
        "             alike while g(w(t + j)) ≈ g(w(t))\n"
        "\n"
        "k  workers, each with a batch of b examples; a batch of all workers has k b\n"
        "η  learning rate of one worker"
    ),
    finding=(
        "Goyal et al. (section 2.1) state the rule: a batch k times as large takes k times the learning rate. Their"
        " rate grows to k times in the first 5 epochs (section 2.2). They train ResNet-50 on ImageNet with batches of"
        " up to 8,192 images without loss of accuracy (abstract). Larger batches lose accuracy."
    ),
    setup=(
        "A perceptron with 32 hidden units on digits, whose 1,437 training examples are spread over the workers. Rule"
        " `sync` averages the gradients of k workers with batches of 16. η = 0.05; on three other seeds one worker was"
        f" fastest with 0.2 to 0.4. A run ends when the mean accuracy of the last {WINDOW_EXAMPLES} examples is 97 %."
        " It gives up after 40 epochs. The warm-up lasts one epoch."
    ),
    reasons={
        "unscaled": "An update goes as far as that of one worker, and k times fewer updates are made.",
        "breaks": "32 η = 1.6 is far beyond the fastest rates of one worker, 0.2 to 0.4.",
        "warmup": "[|An epoch of small rates costs examples. It pays only where training fails without it.]",
        "root": "√k times the rate moves the parameters less far per example than k times.",
    },
    limits=(
        "A run that gives up counts with the examples of 40 epochs, which is a lower bound.",
        "The sources compare the accuracy at the end of a fixed number of epochs; here it is the way to an accuracy.",
        "SGD without momentum or weight decay, and a constant rate after the warm-up.",
        "The workers' gradients are computed one after the other, so nothing is said about time.",
    ),
)
