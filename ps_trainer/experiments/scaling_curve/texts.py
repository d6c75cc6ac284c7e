"""The words on the page of the experiment on throughput against the number of workers."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

TEXTS = PageTexts(
    question="Up to how many workers does throughput grow?",
    answers={
        "knee": "[up to about p(TB/(2M) + 1) synchronous workers, and twice as many asynchronous ones|growth does not"
        " end at p(TB/(2M) + 1) synchronous, and twice as many asynchronous workers]",
        "more_ps": "more ps tasks [move this number up|do not move this number up enough]",
        "concave": "[each further worker adds no more than the ones before|some measured steps to more workers add"
        " more than in proportion]",
    },
    best_plot="throughput",
    background=(
        "Each worker computes for a time T and moves all parameters once in each direction. As long as the links of the"
        " ps tasks keep up, n workers make n times the steps. Each ps task must carry nM/p bytes per step of all, so"
        " its link becomes the limit at some n, the knee. Synchronous workers use one direction of a link at a time."
        " Asynchronous workers get out of step, so that pulls and pushes pass at the same time: twice the ceiling."
    ),
    formula=(
        "step = T + 2 · max(M/B, nM/(pB))          knee: n* = p(TB/(2M) + 1)\n"
        "\n"
        "ceiling: pB/(2M) steps per second if synchronous, pB/M if asynchronous"
    ),
    finding=(
        "Abadi et al. (section 6.3, Fig. 8) train Inception-v3. With 7 ps tasks, asynchronous workers fall from about"
        " 28 to 22 images per second each, from 1 to 50 workers. With 17 ps tasks and 200 workers, throughput reaches"
        " about 2,300 images per second if synchronous, and 2,850 if not, with diminishing returns. The median"
        " synchronous step is about 10 % longer than the asynchronous one. Above the 90th percentile it is much longer."
        " These numbers come from summaries. TensorFlow's benchmarks report speed-ups of 51 to 60 on 64 GPUs. Géron"
        " quotes Dean: 25 to 40 on 50 GPUs."
    ),
    setup=(
        "Real clusters of up to 8 workers and 4 ps tasks in network namespaces behind links of 32 mbit/s each way. The"
        " model has 1 or 4 MB and computes nothing: a worker sleeps 1.25 s (lognormal, σ = 0.2) between pull and push,"
        " and a step counts as one image. The simulator repeats these and continues to 64 workers. It also has the"
        " paper's 200 workers, 17 ps tasks and Inception-v3. There, the closed network (A19) gives bandwidth and"
        " compute time from the published rates of 1 and 50 asynchronous workers with 7 ps tasks. The distribution of"
        " compute times is our assumption."
    ),
    reasons={
        "concave": "[|The rate of one worker divides all the others, and it comes from one short run. If that run is"
        " slow, larger clusters look better than in proportion.]",
        "more_ps": "The parameters, and with them the bytes, are spread over more links.",
        "fit_sync": "[|A real link serves its queue in order. The first worker has its parameters long before the last"
        " one and computes in the meantime. That shortens steps whose transfers fit into the queue.]",
        "simulator": "[|Discrepancy: messages take some 20 to 40 ms of a step on the machine, which the simulator"
        " leaves out. What remains is not explained.]",
        "paper_throughput": "[|All synchronous workers of the simulator pull, then compute, then push, so that each"
        " link is used in one direction at a time. The published ratio of synchronous to asynchronous workers is 0.8,"
        " which needs transfers that overlap with computing or with each other. Asynchronous workers whose steps"
        " hardly vary stay in step for long, and share the links as synchronous ones do.]",
        "median": "[Most rounds have no long delay, so the median does not show it.|Synchronous workers use one"
        " direction of a link at a time, which takes longer where links are the limit.]",
        "tail_rare": "A round with one long delay among n workers is much more frequent than the delay.",
        "tail_frequent": "Where most rounds have a long delay, so has the median. If every step varies a little, the"
        " slowest of n is slow at the median, too. The maximum of many steps varies less than one step, so the tail is"
        " shorter in proportion.",
    },
    intervals="Student's t on the log ratios of the same seeds",
    limits=(
        "In virtual time, the knee follows from the simulator's own parameters. There it checks the simulator.",
        "In virtual time, transfers and computing of one worker do not overlap. TensorFlow already pushes the gradients"
        " of the last layers while it computes those of the first ones.",
        "Real runs have few steps per worker, and 64 KiB pass a link without waiting, which is noticeable at 1 MB.",
        "Real clusters send the parameters of a ps task as one message each way, as in TF1. By default ps_trainer sends"
        " several between hosts, which overlap.",
        "The published points are of two clusters: 1 and 50 workers with K80, 200 with K40. All were read off a figure"
        " by summaries, and the interval of the prediction has the error of reading alone.",
        "The rare delays at the source's scale were chosen to show the tail.",
    ),
)
