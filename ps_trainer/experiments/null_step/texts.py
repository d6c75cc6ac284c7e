"""The words on the page of the experiment on the null step."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

from .cases import ROWS_PER_STEP

TEXTS = PageTexts(
    question="How long does a synchronous step take if the workers compute nothing?",
    answers={
        "linear": "through links of limited speed, the time of a dense step grows [with|more slowly than] the size of"
        " all parameters",
        "rows_only": "a sparse step moves [at most|more than] twice the bytes of its rows and ids",
        "table_size": "[its time changes by at most 10 % with a table 16 times as large|the times of sparse steps from"
        " a small and a large table differ by more than 10 %]",
    },
    best_plot="source_scale",
    background=(
        "A null step pulls parameters, computes nothing and pushes an update. What remains is the cost of messages, of"
        " bytes and of waiting for the last worker. A dense step moves all parameters, a sparse step only the rows of"
        " its batch, and a scalar step one number from each ps task. First all workers pull, then all push. In each of"
        " the two phases the link that carries the most bytes decides: that of a worker or that of a ps task."
    ),
    formula=(
        "dense step = 2 · max(M/B, nM/(pB))          a pull and then a push (A10)\n"
        "\n"
        "M/B      all parameters through the link of one worker\n"
        "nM/(pB)  the share of one of p ps tasks, n times through its link"
    ),
    finding=(
        "Abadi et al. (section 6.2, Fig. 7) measure null steps with 16 ps tasks and 1 to 100 workers. From 1 to 100"
        " workers, the median scalar step grows about fivefold, a dense step of 100 MB fourfold, and one of 1 GB"
        f" sevenfold. Sparse steps read {ROWS_PER_STEP} random rows of a table of 1 GB or 16 GB. Their times do not"
        " vary with the size of the table. All of this is taken from summaries of the paper."
    ),
    setup=(
        "At L2, tasks are processes of one machine. At L3, each has a network namespace and a link of 50 mbit/s. 1 to"
        " 8 workers have 1 to 4 ps tasks, parameters of 1 to 64 MB, or tables of 16 and 256 MB. A step lasts until"
        " every worker has the next update. Where workers would wait for cores, they sleep 0.4 s and more between"
        " pull and push. The sleep is subtracted; waits of up to 2 % are not. The same processes read two"
        " tables by turns, six updates each. At L0, a simulator has the source's numbers of tasks, with links of 10"
        " Gbit/s."
    ),
    reasons={
        "table_size": "The same rows travel from both tables.[| Why the steps differ was not measured.]",
        "sparse_dense": f"Only {ROWS_PER_STEP} rows travel, and `sgd` applies their gradients row by row.",
        "scalar": "On two cores, part of the growth is probably waiting for cores. The source has one machine for each"
        " task.",
        "bandwidth": "[|Discrepancy: where a step takes longer than its links need, the cause was not found. A step"
        " can also be shorter, because the first workers push while the others still pull.]",
        "phases": "Either pulls and pushes of the source overlap in part, or its links are faster than 10 Gbit/s.",
    },
    doubts={
        "sparse_dense": "As processes of one machine, a sparse step is for the most part messages, as a scalar one is"
        " (table), and no link slows a dense step. The source's parameters have 1 GB and go through links.",
    },
    intervals="a bootstrap of the runs and of their steps; order statistics of the pairs of blocks for the two tables;"
    " Student's t for bytes",
    limits=(
        "The bandwidth of the source's links is inferred from its own dense steps. So the L0 claim about them checks"
        " consistency and predicts nothing.",
        "The simulated scalar and sparse steps are exponential, with the source's median of one worker. The column"
        " “source / simulated” shows how well this fits many workers.",
        "Bytes per step are those of one worker, the chief only if it is alone. At L3 they include all headers.",
        "Shaped hosts have one ps task. Page `ps_bandwidth` has more.",
        "64 KiB pass each end of a shaped link without waiting, which is noticeable at 1 MB.",
        "At L3 parameters travel as one message each way, as in TF1. By default ps_trainer sends several between hosts,"
        " which overlap.",
        "The gradient is the pulled values times 1, so no constant can replace it, and graph rewriting is off. Tables"
        " are written in full before the first step.",
        "The source's own step of one worker grows more slowly than its parameters (numbers above).",
        "As processes of one machine, 4 workers with 4 ps tasks do not sleep. Their threads wait for two cores, so only"
        " the bytes of their steps are judged.",
        "During a sleep, tasks exchange bytes that belong to no step. The bytes of a step include them.",
        "More than 8 real workers, and tables above 256 MB, were not run.",
    ),
)
