"""The words on the page of the experiment on the distribution of staleness."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts

TEXTS = PageTexts(
    question="How stale are the gradients of asynchronous workers?",
    answers={
        "mean": "[on average|the average is not] n − 1 updates for n workers",
        "spike": "with nearly even steps the staleness [stays near this, with a standard deviation below|spreads more"
        " than by] n/10",
        "geometric": "with exponential steps the distribution is [geometric|not quite geometric]",
    },
    best_plot="histograms-L0",
    background=(
        "The staleness of a gradient is the number of updates by others between its pull and its push. While a worker"
        " computes, each of the n − 1 others has one gradient under way. Counting them gives the mean, whatever the"
        " step times are. The distribution depends on the step times. Workers of equal pace take turns. Exponential"
        " steps forget their past, so each next push may come from any worker. A slow worker sees many updates of"
        " others during one of its steps."
    ),
    formula=(
        "mean τ = (n − 1) / c                         c gradients per update (A6)\n"
        "P(τ = k) = (1/n) · (1 − 1/n)^k               exponential steps (A7)\n"
        "mean τ of worker i = (Σ_{j≠i} r_j) / r_i     r_i steps per second of worker i (A8)"
    ),
    finding=(
        "Zhang et al. (section 2.4, Fig. 1) measure n-softsync with 30 learners. The mean staleness is about 15 for"
        " 15-softsync and 30 for 30-softsync. For 1-softsync it is 0, 1 or 2. Fewer than 1 in 10,000 gradients are"
        " staler than 2n. Hermans finds a mean of n − 1, and a tail that looks geometric. TensorFlow's"
        " `SyncReplicasOptimizer` documents N − 1 stale steps on average for asynchronous training."
    ),
    setup=(
        "Asynchronous updates with 2 to 60 workers in virtual time, and with up to 16 processes on one machine. Each"
        " sleeps for 0.3 s and more in a step, on average. Step times are nearly even (± 2 %), lognormal (σ = 0.5)"
        " or exponential; in some runs one worker is four times slower. n-softsync makes updates of c gradients. In"
        " virtual time no gradient is computed. The first 20 % of each run are left out, and seeds are pooled."
    ),
    reasons={
        "mean": "While one gradient is computed, n − 1 others are under way. Idle gaps between a push and the next"
        " pull would lower the mean, and parameters pulled ahead would raise it.",
        "spike": "[Workers of equal pace take turns. The more of them push within a step, the more often one overtakes"
        " another, so the share of n − 1 itself falls with n (table).|Real steps are even only if a core is free"
        " whenever a worker wakes. A wait for a core changes the order of the pushes.]",
        "geometric": "[|A real step has a constant part besides its exponential delay. So two pushes of one worker"
        " follow each other more rarely than in the model.]",
        "simulated": "[|All simulated workers begin at one moment, real ones one after the other. Nearly even steps"
        " spread them over a step only slowly, so that simulated workers overtake each other more often: where the"
        " distance is largest, the simulation has the larger standard deviation (table). Longer runs in virtual time"
        " do not, as they leave out a longer start.]",
        "heavy_tail": "So the sources' bound of 2n is a statement about even steps.",
    },
    doubts={
        "per_worker": "The slow worker makes few gradients. The simulation of the same delays gives it nearly the same"
        " mean (table): so the delays that were drawn lower it, and not the cluster.",
    },
    intervals="the jackknife, which leaves out one seed in turn; Wilson's interval of a share",
    limits=(
        "In virtual time, the means of asynchronous workers and of n-softsync are counts that must come out.",
        "The sources' learners were machines that computed gradients. Here they sleep.",
        "Simulated workers begin at one moment. With 30 and 60 workers of nearly even steps the runs are too short to"
        " spread them over a step, which widens the distribution of the staleness.",
        "Updates of 8 workers with c = 8 gradients run in virtual time only.",
        "A case of a single seed has no interval. The interval of a share takes gradients as independent.",
    ),
)
