"""The claims of the experiment on bounded staleness, and the numbers of the literature that it prints."""

from __future__ import annotations

from ps_trainer.experiments.frame.claims import Claim, Limit
from ps_trainer.experiments.frame.published import Published, Tag

FEW = 3  # a small bound that takes most of the waiting away

_PS14 = "Li et al. 2014 (OSDI), section 5"

PUBLISHED = (
    Published(what="workers' idle time without any delay", value=50, unit="%", tag=Tag.RECALLED, source=_PS14),
    Published(what="workers' idle time with a delay of 16", value=2, unit="%", tag=Tag.RECALLED, source=_PS14),
)

CLAIMS = (
    Claim(
        key="wait",
        sentence="Workers wait as long as the model of clocks (A17) says",
        measures="|measured − predicted share of the workers' time that they wait|",
        limit=Limit(high=0.08),
        expected=Limit(high=0.03),
    ),
    Claim(
        key="falls",
        sentence="The larger the bound, the less they wait",
        measures="share of time waited minus that under the next smaller bound, no slow worker",
        limit=Limit(high=0.01),
    ),
    Claim(
        key="few",
        sentence=f"A bound of {FEW} clocks takes most of the waiting away where delays are transient",
        measures=f"share of time waited under s = {FEW} over that under s = 0",
        limit=Limit(high=0.5),
    ),
    Claim(
        key="barrier",
        sentence="A bound of 0 is a barrier: a clock takes as long as the slowest worker's step",
        measures="clock rate under s = 0 times the mean of the slowest step",
        limit=Limit(low=0.95, high=1.05),
    ),
    Claim(
        key="free",
        sentence="Without a bound workers make steps as fast as they can",
        measures="clock rate over that of workers that wait for nobody",
        limit=Limit(low=0.95, high=1.05),
    ),
    Claim(
        key="permanent",
        sentence="With one worker that stays slow, all make steps at its rate, whatever the finite bound",
        measures="clock rate over the slow worker's own",
        limit=Limit(low=0.93, high=1.07),
    ),
    Claim(
        key="bound",
        sentence="Who begins a step has completed at most s more than the slowest worker, s + 1 while it waits",
        measures="largest lead minus its bound, at the begin and at the end of a step",
        limit=Limit(high=0),
    ),
    Claim(
        key="staleness",
        sentence="Workers that pull afresh in each step are (n − 1)/2 updates behind if s = 0, n − 1 without one",
        measures="|mean staleness − that| / n, no slow worker",
        limit=Limit(high=0.05),
    ),
    Claim(
        key="work",
        sentence="The larger the bound, the more updates the objective takes",
        measures="updates needed without a bound over those under s = 0",
        limit=Limit(low=1.0),
    ),
    Claim(
        key="interior",
        sentence="With transient delays the objective is reached soonest under a finite bound above 0",
        measures="time to the objective without a bound over the shortest under one above 0, best learning rates",
        limit=Limit(low=1.0),
    ),
    Claim(
        key="real_rate",
        sentence="Workers of real clusters make as many steps as the simulator says of the same delays",
        measures="measured over simulated clock rate",
        limit=Limit(low=0.9, high=1.1),
    ),
    Claim(
        key="real_wait",
        sentence="They wait as long",
        measures="|measured − simulated share of the workers' time that they wait|",
        limit=Limit(high=0.08),
    ),
    Claim(
        key="real_bound",
        sentence="No worker of a real cluster begins a step more than s completed steps ahead of the slowest",
        measures="largest lead minus s",
        limit=Limit(high=0),
    ),
)
