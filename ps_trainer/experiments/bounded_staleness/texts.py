"""The words on the page of the experiment on bounded staleness."""

from __future__ import annotations

from ps_trainer.experiments.harness.page_texts import PageTexts
from ps_trainer.experiments.toolkit.real_clusters import REAL_TIMES

from .records import NUM_REAL_WORKERS, NUM_TRAINED_WORKERS, REAL_MEAN_MS, TARGET_LOSS

TEXTS = PageTexts(
    question="How much waiting does a bound on the lead of fast workers save?",
    answers={
        "few": "a bound of 3 steps [takes at least half of the waiting away, where delays come and go|leaves more than"
        " half of the waiting]",
        "permanent": "[bounds of 0 to 10 steps do not help against one worker that stays slow|with one worker that"
        " stays slow, the others do not all go at its pace]",
        "interior": "the objective is [reached|not reached] soonest under a finite bound above 0",
    },
    best_plot="shares",
    background=(
        "Behind a barrier, every step lasts as long as the slowest worker's. Without a barrier nobody waits, but"
        " parameters may be very old. Under stale synchronous parallel (SSP), a worker may be at most s steps ahead of"
        " the slowest: s = 0 is a barrier, no bound is asynchronous training. A lead hides delays that come and go. A"
        " worker that stays slow uses up every lead once, and then decides the pace of all."
    ),
    formula=(
        "begin of step c = max(end of the worker's own step c − 1,\n"
        "                      last end of step c − 1 − s of any worker)          (A17)\n"
        "\n"
        "s  bound on the lead, in steps; a clock is one step of one worker"
    ),
    finding=(
        "Ho et al. (abstract) report that SSP raises the share of time in which workers compute. On several problems it"
        " converges faster than synchronous and asynchronous schemes. There, a read at clock c returns all updates up"
        " to clock c − s − 1, possibly from a cache on the worker. Li et al. (section 3.5) offer bounded delay between"
        " sequential and eventual consistency: a task waits until all tasks from before the delay have ended."
    ),
    setup=(
        "Clock rates and waiting of 4 and 8 workers in virtual time, under bounds of 0 to 10 and none. Steps are"
        " exponential, lognormal (σ = 0.5) or shifted exponential; a slow worker is 4 times slower. Only these steps"
        f" take time. Softmax regression on digits with {NUM_TRAINED_WORKERS} workers and exponential steps shows what"
        f" a step is worth: updates and time to a test loss of {TARGET_LOSS:g}, at the best of three learning rates."
        f" The real clusters are {NUM_REAL_WORKERS} processes that sleep for {REAL_MEAN_MS:g} ms on average. The first"
        " 20 % of a run are left out, but for the largest leads."
    ),
    reasons={
        "few": "A worker that is slow now is seldom slow three times in a row.",
        "permanent": "Each lead is used up once. After that, all wait for the slow worker in every step.",
        "work": "[|Here a worker pulls the newest parameters in each step, so it is at most n − 1 updates behind on"
        " average, whatever s is. Behind a barrier, n gradients of the same parameters make one step that is n times"
        " as long. Probably that is too long at a rate that a looser bound tolerates.]",
        "interior": "[|A best bound in between needs more updates with a larger bound. The column “updates” shows"
        " whether there are more; a larger bound saves waiting in any case.]",
        "real_rate": f"[|{REAL_TIMES}]",
    },
    doubts={
        "interior": "Under the loosest bound little waiting is left, so that workers without a bound are hardly sooner:"
        " by less than the seeds differ.",
    },
    intervals="Student's t over the seeds, of logarithms where the value is a ratio",
    limits=(
        "The rule is not Ho et al.'s: reads come from the ps task, never from a cache that may be s clocks old, and"
        " each gradient makes a separate update. So the claims about updates and objective are not in the verdict.",
        "In the claims, the other seeds choose learning rate and bound for each seed.",
        "The test loss is read every 8 updates, so that differences of a few per cent are not resolved.",
        "Waiting of real clusters is not logged. The 5th percentile of a step's time besides its delay counts as"
        " communication, and what is left besides computing as waiting.",
        "The lead of a real worker is a lower limit: the steps of the others count as completed when their delay ends.",
        "With a permanently slow worker and no bound, the rate is a mean over workers that drift apart for ever.",
        "The sources trained far larger models on up to 1,000 machines.",
    ),
)
