"""Step times of workers as texts for `--compute` and `--straggler`, and the samplers from which a run draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ps_trainer.disturbances import delays
from ps_trainer.experiments.harness.labels import Label

SPIKE_SHARE = 0.05
"""Share of the steps with `Shape.SPIKES` that are long."""


class Shape(Label):
    """Distributions of step times, as the reports name them."""

    EVEN = "even"
    NEARLY_EVEN = "nearly even"
    SHIFTED = "shifted exponential"
    NARROW = "narrow lognormal"
    MODERATE = "lognormal"
    SPIKES = "spikes"
    EXPONENTIAL = "exponential"
    PARETO = "Pareto"
    PERSISTENT = "one slow worker"

    @property
    def text(self) -> str:
        """Value for `--compute`, without a mean."""
        return _TEXTS[self]


_TEXTS = {
    Shape.EVEN: "det:jitter=0.02",
    Shape.NEARLY_EVEN: "det:jitter=0.05",
    Shape.SHIFTED: "shifted_exp:alpha=0.2",
    Shape.NARROW: "lognormal:sigma=0.2",
    Shape.MODERATE: "lognormal:sigma=0.5",
    Shape.SPIKES: f"spike:p={SPIKE_SHARE},factor=5",
    Shape.EXPONENTIAL: "exp",
    Shape.PARETO: "pareto:alpha=2.1",
    Shape.PERSISTENT: "persistent:factor=10,alpha=0.2",
}


def with_mean(shape: str, mean_ms: float, worker: int | None = None) -> str:
    """Returns a distribution such as "lognormal:sigma=0.5" with its mean, and the only worker it applies to, if any."""
    text = f"{shape}{',' if ':' in shape else ':'}mean_ms={mean_ms:g}"
    return text if worker is None else f"{text},worker={worker}"


def add_pacing(text: str) -> str:
    """Returns a delay for `--straggler` that counts from the start of a step."""
    return f"{text}{',' if ':' in text else ':'}paced=true"


def samplers(compute: Sequence[str], num_workers: int, seed: int) -> list[Callable[[], float]]:
    """Returns each worker's sampler of step times in seconds, with the values of a run with this seed.

    If several texts apply to a worker, the last one counts.
    """
    specs = [delays.parse(text) for text in compute]
    of_workers = [[spec for spec in specs if spec.applies_to(worker)][-1] for worker in range(num_workers)]
    return [spec.sampler(delays.rng_for(seed, worker), worker) for worker, spec in enumerate(of_workers)]
