"""The words on the page of the experiment on backup workers."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.real_clusters import REAL_TIMES

from .records import NUM_NEEDED

TEXTS = PageTexts(
    question="Do backup workers make synchronous training faster, and do they gain more than they cost?",
    answers={
        "falls": "where messages take no time, a further backup worker [does not lengthen the mean update|can lengthen"
        " the mean update]",
        "pays": "with heavy-tailed step times and 8 workers, backup workers [gain|do not always gain] more than they"
        " cost",
        "light": "with light tails and few workers they [do not|can gain more than they cost]",
        "real_pays": "on a real cluster of 8 workers with lognormal steps they [gain more than they cost|do not gain"
        " more than they cost]",
        "real_pays_exponential": "on a real cluster with exponential steps they [gain|do not always gain] more than"
        " they cost",
    },
    best_plot="speedups",
    background=(
        "A synchronous update waits for the slowest of N workers. With b backup workers, N + b compute, and the first N"
        " gradients make the update. The step becomes shorter, but N + b machines must be paid for. Whether that pays"
        " depends on the slowest steps, the tail. A late worker is not cancelled: it finishes its step, and its"
        " gradient is dropped. TensorFlow's own rule hands out tokens instead, and a fast worker may take two."
    ),
    formula=(
        "speed-up per worker paid for = t(0)/t(b) · N/(N + b)          (A5)\n"
        "\n"
        "t(b)  time of an update with b backup workers: the N-th of N + b steps if late\n"
        "      workers are cancelled (A3), more if they finish their step (A4)"
    ),
    finding=(
        "Abadi et al. (section 6.3, Fig. 8c) add 0 to 5 backup workers to 50 workers that train Inception-v3. Four give"
        " the shortest median step, 1.93 s. A fifth makes it slightly longer, because the first discarded worker is"
        " then more often no straggler, and sends traffic. Three give the best speed-up per worker, 9.5 %. Chen et al."
        " find 96 workers with 4 backup workers the best choice among 100. All of this is taken from summaries."
    ),
    setup=(
        "In virtual time only steps take time: 4, 8, 50 and 100 workers, a true barrier and TensorFlow's token queue."
        " Heavy tails: lognormal (σ = 0.5), exponential, Pareto (exponent 2.1), spikes (5 % of steps five times as"
        " long). Light tails: even (± 2 %), shifted exponential (a fifth is random). A slow worker takes ten times as"
        f" long. A perceptron on digits with N = {NUM_NEEDED} shows what an update is worth. Real clusters are up to 12"
        " processes that sleep for 0.8 s and more. In some, three rules alternate: the barrier, TensorFlow's class in a"
        " script, ours with a token queue for each worker."
    ),
    reasons={
        "falls": "With one more worker, the first N gradients are there earlier.",
        "pays": "The slowest of N heavy-tailed steps is far above the mean, so leaving out a few saves much.",
        "light": "The slowest step is too little above the mean to pay for one more worker.",
        "size": "The more workers there are, the slower is the slowest of them.",
        "optimistic": "Order statistics let all workers begin together. A late worker first ends its step.",
        "diminishing": "With spikes and 50 workers, 5 % of the steps are long, 2.5 in each update. Fewer backup workers"
        " than that are seldom enough, and the next one can save more; they are left out.",
        "tokens_drop": "N + b tokens are handed out for each update, so b gradients are too late.",
        "barrier_drop": "While an update is made, b workers are still computing. A step during which τ updates happen"
        " is dropped once, not τ times.",
        "restores": "The barrier goes on without the slow worker in almost every update.",
        "penalty": "[A token that the slow worker leaves is old when another worker takes it, so its gradient comes too"
        " late.|]",
        "work": "Dropped gradients change nothing, and the gradients of an update are all fresh.",
        "real_time": f"[|{REAL_TIMES}]",
        "real_pays_exponential": "The slowest of eight exponential steps takes 2.7 mean steps, which a few more"
        " workers shorten a lot.",
        "real_stock_drop": "[N + b tokens are handed out for each update, whatever the workers do.|The class hands out"
        " N tokens more before the first update, and the gradients of these come too late. So more gradients are"
        " dropped at the beginning, which reaches beyond the first 20 % of so short runs. Why some more are dropped"
        " later was not found.]",
        "real_stock_penalty": "[Probably other workers take the slow one's old tokens, as in the simulator; that was"
        " not measured.|]",
        "real_median": f"[|{REAL_TIMES}]",
        "real_pays": "[|The columns “normalised speed-up” and “simulated speed-up” show how far the simulator is from"
        " this. The cause of the difference was not measured.]",
    },
    doubts={
        "work": "Updates to the accuracy differ much from seed to seed (table).",
        "real_pays": "The expected gain is a few per cent (column “simulated speed-up”), which is the noise of so few"
        " updates.",
    },
    intervals="Student's t on the log ratios of the same seeds, and Welch's t on logarithms where seeds are not paired;"
    " a bootstrap of the seeds for the best b; order statistics for medians",
    limits=(
        "The sources' distributions of step times are not known, so the published gains of 50 and 100 workers are not"
        " compared with numbers of the simulator.",
        "No traffic is modelled, so a step never becomes longer with b, as it did with the published fifth backup"
        " worker.",
        "A real run and its simulation have the same delays, until a gradient arrives in another order. After 60"
        " updates their means differ by up to 4 %, one standard deviation; of fewer updates by more.",
        "Times are in mean steps, without the first 20 % of a run. Claims compare geometric means over the seeds;"
        " tables and plots show medians.",
        "The claims about heavy tails are about 8 workers; the tables have 4, 50 and 100 as well.",
        "For the papers' 50 and 100 workers, there are also lognormal steps with σ = 0.2.",
        "On a real cluster, `--update=sync` with `replicas_to_aggregate=N` is the same barrier.",
        "The stock class counts no dropped gradients. Here a gradient counts as dropped if global_step has moved on"
        " when it is pushed, so the milliseconds of an update are not resolved.",
        "The best number of backup workers here gives the most examples per second. Chen et al.'s gives the shortest"
        " time to convergence.",
    ),
)
