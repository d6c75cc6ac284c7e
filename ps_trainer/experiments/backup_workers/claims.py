"""The claims of the experiment on backup workers, and the numbers of the literature that it prints."""

from __future__ import annotations

from ps_trainer.experiments.backup_workers.cases import RECALLED_ARRIVALS
from ps_trainer.experiments.frame.claims import Claim, Limit
from ps_trainer.experiments.frame.published import Published, Tag

_OSDI = "Abadi et al. 2016, section 6.3, Fig. 8c"
_CHEN = "Chen et al. 2016"

PUBLISHED = (
    Published(
        what="best median step, with 4 backup workers of 50", value=1.93, unit="s", tag=Tag.SUMMARY, source=_OSDI
    ),
    Published(
        what="best normalised speed-up, with 3 backup workers of 50", value=1.095, unit="", tag=Tag.SUMMARY,
        source=_OSDI,
    ),
    Published(
        what="longest median step without backup workers that agrees with these two, 1.93 · 1.095 · 54/50",
        value=2.28, unit="s", tag=Tag.DERIVED, source=_OSDI,
    ),
    Published(
        what="best number of backup workers among 100 workers", value=4, unit="", tag=Tag.SUMMARY, source=_CHEN
    ),
    *(
        Published(
            what=f"share of updates whose gradient {k} of 100 has arrived within 2 s", value=100 * share, unit="%",
            tag=Tag.RECALLED, source=_CHEN,
        )
        for k, share in RECALLED_ARRIVALS.items()
    ),
)  # fmt: skip

CLAIMS = (
    Claim(
        key="falls",
        sentence="More backup workers make an update faster",
        measures="time per update over that with the next fewer backup workers",
        limit=Limit(high=1.01),
    ),
    Claim(
        key="diminishing",
        sentence="Each backup worker saves less than the one before",
        measures="(what one saved before − what one saves now) / time per update without any",
        limit=Limit(low=-0.05),
        expected=Limit(low=-0.01),
    ),
    Claim(
        key="prediction",
        sentence="The true barrier takes the time of A4, TensorFlow's rule that of a queue of tokens",
        measures="measured over predicted time per update",
        limit=Limit(low=0.9, high=1.1),
    ),
    Claim(
        key="optimistic",
        sentence="Textbook order statistics (A3) overstate the gain, as no parameter server cancels stragglers",
        measures="the true barrier's time per update over A3, heavy tails, N = 8",
        limit=Limit(low=1.0),
        expected=Limit(low=1.02),
    ),
    Claim(
        key="pays",
        sentence="With heavy tails backup workers gain more than they cost",
        measures="best normalised speed-up (A5), N = 8",
        limit=Limit(low=1.0),
        expected=Limit(low=1.05),
    ),
    Claim(
        key="interior",
        sentence="With heavy tails there is a best number of backup workers, beyond which more of them lose",
        measures="best number of 0 to 6 backup workers, N = 8",
        limit=Limit(low=1, high=5),
    ),
    Claim(
        key="light",
        sentence="With light tails and few workers no number of backup workers pays",
        measures="best normalised speed-up with any; ±2 % for all N, shifted exponential for N ≤ 8",
        limit=Limit(high=1.0),
    ),
    Claim(
        key="size",
        sentence="The tail of the slowest of N counts, so the same shifted exponential pays with 50 workers",
        measures="best normalised speed-up, N = 50",
        limit=Limit(low=1.0),
        expected=Limit(low=1.05),
    ),
    Claim(
        key="tokens_drop",
        sentence="The token queue drops b/(N + b) of the gradients, whatever the delays",
        measures="|dropped share − b/(N + b)|",
        limit=Limit(high=0.01),
    ),
    Claim(
        key="barrier_drop",
        sentence="A true barrier drops b/(b + Nτ), τ the mean staleness of what it drops: b/(N + b) at most",
        measures="|dropped share − b/(b + Nτ)|",
        limit=Limit(high=0.01),
    ),
    Claim(
        key="restores",
        sentence="With one persistently slow worker, one backup worker behind a true barrier undoes the harm",
        measures="time per update over that of N workers without a slow one, N ≤ 8",
        limit=Limit(high=1.1),
        expected=Limit(high=1.05),
    ),
    Claim(
        key="penalty",
        sentence="The token queue is slower then, as fast workers take the slow one's old tokens and come late",
        measures="token queue's over true barrier's time per update, b = 1 and 2, N ≤ 8",
        limit=Limit(low=1.05, high=1.25),
    ),
    Claim(
        key="arrivals",
        sentence="Independent step times give both recalled quantiles of the last gradients of 100 workers",
        measures="|share of updates whose gradient k has arrived within 2 s − recalled share|",
        limit=Limit(high=0.1),
    ),
    Claim(
        key="gain_of_50",
        sentence="With steps fitted to them, backup workers gain 50 workers what a summary says was published",
        measures="best normalised speed-up of the token queue",
        limit=Limit(low=1.03, high=1.2),
        expected=Limit(low=1.07, high=1.12),
    ),
    Claim(
        key="four_of_100",
        sentence="With steps fitted to them, 4 backup workers are about the best choice among 100 workers",
        measures="examples per second of the token queue with b = 4 over those with the best b",
        limit=Limit(low=0.95),
        expected=Limit(low=0.98),
    ),
    Claim(
        key="work",
        sentence="Backup workers cost no updates: what is used is as fresh as without them",
        measures="updates to the training accuracy over those without backup workers",
        limit=Limit(high=1.1),
    ),
    Claim(
        key="real_time",
        sentence="Real clusters take as long per update as the simulator says of the same delays",
        measures="measured over simulated mean time per update",
        limit=Limit(low=0.9, high=1.1),
    ),
    Claim(
        key="real_median",
        sentence="The median update, too, takes as long",
        measures="measured over simulated median time per update, the median over all cases",
        limit=Limit(low=0.9, high=1.1),
    ),
    Claim(
        key="real_barrier_drop",
        sentence="The true barrier of a real cluster drops what the simulator says",
        measures="|dropped − simulated dropped share|",
        limit=Limit(high=0.02),
    ),
    Claim(
        key="real_pays",
        sentence="Backup workers pay on a real cluster of N = 8 with lognormal steps",
        measures="best normalised speed-up (A5) of 1, 2 and 4 backup workers",
        limit=Limit(low=1.0),
    ),
    Claim(
        key="real_restores",
        sentence="With one slow worker, one backup worker behind a real barrier undoes the harm",
        measures="time per update over that of N workers without a slow one, N = 8",
        limit=Limit(high=1.1),
    ),
)
