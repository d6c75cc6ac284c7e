"""The words on the page of the experiment on throughput against the number of workers."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

from . import records

_CEILING = records.IMAGES_PER_STEP * records.paper_setting(records.SYNC, records.RARE).ceiling()

TEXTS = PageTexts(
    question="Up to how many workers does throughput grow?",
    answers={
        "knee": "until the links of the ps tasks are full: throughput, real and simulated, [ends|does not always end]"
        " near that of as many workers as fill them in the time of one worker's step, of twice as many if asynchronous",
        "more_ps": "4 ps tasks [make|do not make] 8 workers at least 1.5 times as fast as one does",
        "concave": "from one number of workers to the next, throughput grows [by|by less or more than] 0.4 to 1.05"
        " times as much as they do",
        "paper_throughput": "calibrated on 1 and 50 of the paper's workers, the model [gives|does not give] the"
        " published throughput of 200",
        "median": "there, by that model, the median synchronous step is [at most|more than] half as long again as an"
        " asynchronous one",
        "tail_rare": "far above the median it is [much longer|not always much longer] where long delays are rare",
    },
    best_plot="throughput",
    background=(
        "Each worker computes for a time T and moves all parameters once in each direction. As long as the links of the"
        " ps tasks keep up, n workers make n times the steps. Each ps task must carry nM/p bytes per step of all, so"
        " its link becomes the limit at some n, the knee. Synchronous workers use one direction of a link at a time."
        " Asynchronous workers that are out of step pull and push at the same time: twice the ceiling."
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
        " model has 1 or 4 MB; a worker sleeps 1.25 s (lognormal, σ = 0.2) between pull and push. Queues at the ends of"
        " links hold 50 ms of data, in two arms 500. The simulator repeats these with the calibrated cost of a step, up"
        " to 64 workers, and the paper's 200 with 17 ps tasks and Inception-v3. The closed network (A19) gives the"
        " bandwidth and compute time from the published rates of 1 and 50 workers. The distribution of compute times is"
        " our assumption."
    ),
    reasons={
        "concave": "[|The table of efficiency shows which numbers of workers are outside. The cause was not measured.]",
        "more_ps": "The parameters, and with them the bytes, are spread over more links.",
        "fit_sync": "[|Where steps are shorter, the first worker that has its parameters probably computes while others"
        " still pull; that was not measured. Longer steps have no known cause.]",
        "paper_throughput": "[|Of synchronous workers that use one direction at a time, the links of the calibration"
        f" carry no more than {_CEILING:,.0f} images per second, and less with computing in between. The source has"
        " more, so its transfers probably overlap, with computing or with each other. The simulated workers pull, then"
        " compute, then push. The 200 workers also have other GPUs than the 1 and 50.]",
        "median": "[Most rounds have no long delay, so the median does not show it.|Synchronous workers use one"
        " direction of a link at a time, which takes longer where links are the limit.]",
        "tail_rare": "[A round with one long delay among n workers is much more frequent than the delay.|Where the"
        " transfers of a round take longer than the delay, the delay hides behind those of the others. Asynchronous"
        " steps then vary more, as transfers share the links.]",
        "real_median": "[Computing takes most of such a step.|Synchronous workers use one direction of a link at a"
        " time, which takes longer where links are the limit.]",
        "queues": "Only the length of the queues differs. Probably a request for parameters waits behind gradients of"
        " other workers, so that workers get in step: all pull, or all push.",
        "tail_frequent": "Where most rounds have a long delay, so has the median. If every step varies a little, the"
        " slowest of n is slow at the median, too. The maximum of many steps varies less than one step, so the tail is"
        " shorter in proportion.",
    },
    intervals="Student's t on the log ratios of the same seeds; order statistics for medians over the cases; the"
    " range of reading errors for the 200 published workers, which is not a confidence interval",
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
        "8 synchronous workers with 4 ps tasks were not run: their tasks wait for two cores for up to 6 % of a step.",
    ),
)
