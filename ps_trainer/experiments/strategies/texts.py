"""The words on the page of the experiment on strategies."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

from .cases import PERIOD

LEAST_MS, MOST_MS = 20, 90  # mean steps of the models

_MODELS_DIFFER = "Models differ much more than seeds do (column “test metric”)."

TEXTS = PageTexts(
    question="How do the strategies of training compare in speed, quality and resources, for six kinds of models?",
    answers={
        "async_speed": "asynchronous workers are [faster|not faster] than synchronous ones",
        "backup_speed": "a backup worker [makes|does not make] synchronous updates faster",
        "sync_quality": "with momentum, two synchronous workers [train|do not train] as well as one process",
        "async_quality": "two asynchronous workers [do|do not], on average",
        "local_bytes": f"local SGD [sends|does not send] 1/{PERIOD} of the bytes",
        "table_bytes": "with large tables, [less|more] than half of the model's bytes travels in a step",
    },
    best_plot="strategies",
    background=(
        "One process trains without messages. Synchronous workers push to a ps task and wait for each other;"
        " asynchronous ones do not wait, and their gradients are stale. A backup worker replaces the slowest one of an"
        " update. A ring all-reduce needs no ps task. The hybrid sends rows of tables through the ps task and the rest"
        " around the ring. Local SGD averages replicas after several steps. Each strategy pays in another way: in"
        " time, in quality, in processor time, in memory, or in traffic."
    ),
    formula=(
        "speed of n synchronous workers = n b / (T (1 − α + α H_n) + c)   examples per second\n"
        "traffic of a worker and step: 2 M (ps), 2 · 2(n − 1)/n M (ring), 2 M/H (local SGD)\n"
        "\n"
        "b  examples of a worker's batch;  H  local steps between two averages\n"
        "T  mean step, of which the share α is exponential;  c  cost besides computing"
    ),
    finding=(
        "Chen et al. (abstract): asynchronous training makes the most updates, at the cost of noise; synchronous"
        " training waits for stragglers, which backup workers mitigate. Goyal et al. (section 2.1) keep the accuracy"
        " of small batches by a learning rate in proportion to the batch. In a summary of Abadi et al. (section"
        " 4.2), a step reads and updates only the rows of an embedding table that its batch uses. Stich (abstract)"
        " averages only once in a while, and proves for convex problems the rate of synchronous updates. Kim et al."
        " (abstract) combine parameter servers and all-reduce by the sparsity of the parameters."
    ),
    setup=(
        "Each model trains with each strategy that can train it, from the same number of used gradients: in one"
        " process; on two workers; on three, one a backup. Workers share two cores, so a step lasts several"
        f" times as long as its computation: {LEAST_MS} to {MOST_MS} ms of which a fifth is exponential."
        " Learning rates are those of one process, doubled where momentum follows the mean of two gradients."
        " Each worker has the batch of one process. Data"
        " are digits, drawn glyphs, tones, number words, planted clicks and planted synonyms. The test metric is"
        " accuracy, AUC, exact match, the share of synonyms recovered, or 1 − label error rate."
    ),
    reasons={
        "async_speed": "They do not wait for the slower of two steps.",
        "backup_speed": "Two of three steps are over before two of two are.",
        "sync_quality": "Goyal et al. argue: as long as the parameters hardly move, one double step goes as far as"
        " two.",
        "table_bytes": "A step reads and updates the rows of its batch.",
        "local_bytes": "Nothing travels in a local step.",
        "adaptive_quality": "[|They make half of the updates, and the learning rate stays that of one process. Whether"
        " a larger one helps was not tried.]",
        "async_quality": "[|The column “test metric” shows which models lose. Probably so short trainings make them"
        " sensitive; learning curves were not recorded.]",
        "cpu": "Sending, receiving and applying take processor time that one process does not need.",
    },
    doubts={
        **dict.fromkeys(("sync_quality", "adaptive_quality", "async_quality"), _MODELS_DIFFER),
        "local_quality": "The seeds of one model differ more than the models do.",
    },
    intervals="Welch's t on the logarithms of speeds and CPU times; Student's t of the differences of test metrics;"
    " order statistics for medians over the models",
    limits=(
        "Trainings are short, and no model is trained to its end. Differences of test metrics are means over the models"
        " and seeds, with t intervals; the models' metrics differ in scale.",
        "Steps are stretched, so the speed is nearly that of machines whose cores nobody shares, and whose network is"
        " free. For how long tasks waited for the two cores was not counted.",
        "With two workers a ring moves as many bytes as a ps task; its advantage begins with more.",
        "Learning rates are not tuned for a strategy.",
        "Forked tasks share memory, which counts for each of them.",
        "A ring and synchronous workers with a ps task make the same updates but for rounding. In the residual network"
        " their losses differ by 0.000002 after one update and by 0.0004 after four, so a seed may end elsewhere.",
    ),
)
