"""The statistics of the experiments: spread, standard errors, distances, warm-up; each defined only here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

WARMUP_SHARE = 0.2
_FIT_ROUNDS = 20
_NUM_RESAMPLES = 2000
_Z_95 = 1.645  # 95 % quantile of the normal distribution
# 95 % quantiles of Student's t with 1, 2, … degrees of freedom; the last one serves for more, and is wider than theirs.
_T_95 = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753),
    *(1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697),
)

# A series that a slice cuts into one of the same type.
SeriesT = TypeVar("SeriesT", list[float], Sequence[Any], np.ndarray)
T = TypeVar("T")


class Spread(NamedTuple):
    """Median, 10th and 90th percentile, in the unit of the values."""

    median: float
    p10: float
    p90: float


class Interval(NamedTuple):
    """A 90 % confidence interval, in the unit of the value."""

    low: float
    high: float


class IntervalEstimate(NamedTuple):
    """A value and its interval, in the same unit; None where too few values give no interval."""

    value: float
    interval: Interval | None = None

    def over(self, divisor: float) -> IntervalEstimate:
        """Returns it divided by a number above 0."""
        ends = self.interval and Interval(self.interval.low / divisor, self.interval.high / divisor)
        return IntervalEstimate(self.value / divisor, ends)

    def absolute(self) -> IntervalEstimate:
        """Returns its absolute value; an interval that has 0 inside begins there."""
        ends = self.interval and Interval(
            max(self.interval.low, -self.interval.high, 0.0), max(self.interval.high, -self.interval.low)
        )
        return IntervalEstimate(abs(self.value), ends)


class Line(NamedTuple):
    """y = a + b·x: `a` in the unit of y, `b` in units of y per unit of x."""

    a: float
    b: float

    def at(self, x: float) -> float:
        return self.a + self.b * x


class HistogramSummary(NamedTuple):
    """Summary of the observations in a histogram of whole numbers."""

    num_values: int
    mean: float
    sd: float
    p50: int
    p99: int
    largest: int


def spread(values: Sequence[float] | np.ndarray) -> Spread:
    """Returns the spread of at least one value; percentiles between two values are interpolated."""
    p10, median, p90 = np.percentile(np.asarray(values, float), [10, 50, 90])
    return Spread(float(median), float(p10), float(p90))


def standard_error(values: Sequence[float]) -> float:
    """Returns the standard error of the mean: s/√n with the sample's s; NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    return float(np.std(np.asarray(values, float), ddof=1)) / math.sqrt(len(values))


def accuracy_standard_error(accuracy: float, num_examples: int) -> float:
    """Returns the standard error of an accuracy on a finite test set, √(a(1 − a)/n): 0.9 % for 97 % of 360 digits."""
    return math.sqrt(accuracy * (1.0 - accuracy) / num_examples)


def ratio_interval(values: Sequence[float], others: Sequence[float]) -> tuple[float, Interval | None]:
    """Returns the ratio of the geometric means of two samples of values above 0, and its interval.

    The interval comes from Welch's t-test on the logarithms. It is None where a sample has fewer than two values, or an
    infinite one.
    """
    samples = [np.log(np.asarray(sample, float)) for sample in (values, others)]
    difference = float(samples[0].mean() - samples[1].mean())
    if min(map(len, samples)) < 2 or not math.isfinite(difference):
        return math.exp(difference), None
    errors = [float(np.var(sample, ddof=1)) / len(sample) for sample in samples]
    degrees = sum(errors) ** 2 / max(sum(e**2 / (len(s) - 1) for e, s in zip(errors, samples, strict=True)), 1e-300)
    half = _t_95(max(int(degrees), 1)) * math.sqrt(sum(errors))
    return math.exp(difference), Interval(math.exp(difference - half), math.exp(difference + half))


def mean_ratio(values: Sequence[float], others: Sequence[float] | float) -> IntervalEstimate:
    """Returns the geometric mean of the ratios of two paired samples above 0, or of a sample and one number.

    Student's t on the log ratios gives the interval: none for fewer than two pairs, or an infinite value.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.asarray(values, float)) - np.log(np.asarray(others, float))
        value = float(np.exp(logs.mean()))
    ends = mean_interval(logs.tolist())
    return IntervalEstimate(value, ends and Interval(math.exp(ends.low), math.exp(ends.high)))


def ratio_by_seed(values: Mapping[int, float], others: Mapping[int, float]) -> IntervalEstimate:
    """Returns the ratio of two samples of values above 0, which have their seeds as keys.

    The seeds that both have make pairs, for `mean_ratio`. With fewer than two, `ratio_interval` compares all values.
    """
    seeds = [seed for seed in values if seed in others]
    if len(seeds) > 1:
        return mean_ratio([values[seed] for seed in seeds], [others[seed] for seed in seeds])
    return IntervalEstimate(*ratio_interval([*values.values()], [*others.values()]))


def chosen_by_other_seeds(values: Mapping[int, Mapping[int, float]]) -> IntervalEstimate:
    """Returns the largest of several values above 0, without the luck of the seeds on which it is the largest.

    For each seed, the other seeds choose the option, by its geometric mean. The estimate is the geometric mean of the
    chosen values, with an interval by Student's t. A single seed chooses for itself.

    Args:
        values: Option -> seed -> value; seeds that an option lacks are left out.
    """
    seeds = set.intersection(*({*own} for own in values.values()))
    if not seeds:
        return IntervalEstimate(max(float(np.exp(np.log([*own.values()]).mean())) for own in values.values()))

    def chosen(seed: int) -> float:
        others = seeds - {seed} or seeds
        best = max(values, key=lambda option: sum(math.log(values[option][other]) for other in others))
        return values[best][seed]

    return mean_ratio([chosen(seed) for seed in sorted(seeds)], 1.0)


def mean_estimate(values: Sequence[float]) -> IntervalEstimate:
    """Returns the mean of at least one value, with `mean_interval`."""
    return IntervalEstimate(float(np.mean(values)), mean_interval(values))


def jackknife(statistic: Callable[[Sequence[T]], float], samples: Sequence[T]) -> IntervalEstimate:
    """Returns a smooth statistic of pooled samples, such as the runs of all seeds, by the jackknife.

    The statistic is computed without each sample in turn. If l are its k values then, its standard error is
    (k − 1)/√k times the standard deviation of l. Student's t gives the interval, none for fewer than two samples.
    """
    value, num_samples = statistic(samples), len(samples)
    if num_samples < 2:
        return IntervalEstimate(value)
    without = [statistic([*samples[:left_out], *samples[left_out + 1 :]]) for left_out in range(num_samples)]
    half = _t_95(num_samples - 1) * (num_samples - 1) * standard_error(without)
    return IntervalEstimate(value, Interval(value - half, value + half))


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Returns Student's t interval of the mean; None for fewer than two values, or an infinite one."""
    sample = np.asarray(values, float)
    if len(sample) < 2 or not np.all(np.isfinite(sample)):
        return None
    mean = float(sample.mean())
    half = _t_95(len(sample) - 1) * standard_error(values)
    return Interval(mean - half, mean + half)


def median_interval(values: Sequence[float]) -> tuple[float, Interval]:
    """Returns the median of at least one value, and the two of the values that bound it by `median_ranks`."""
    ordered = np.sort(np.asarray(values, float))
    rank, _ = median_ranks(len(ordered))
    return float(np.median(ordered)), Interval(float(ordered[rank - 1]), float(ordered[-rank]))


def median_ranks(num_values: int) -> tuple[int, float]:
    """Returns the k of the narrowest interval of a median from the k-th lowest to the k-th highest of at least 1 value.

    Each of n independent values lies below the median with probability ½. So the interval misses it only if fewer than
    k values are on one side of it: with probability 2 · P(B < k), where B is binomial with n trials. This is exact for
    any continuous distribution. A bootstrap of few values is not: with a probability of 5.8 % the median of a resample
    of five is the lowest value, so chance decides whether a 5 % quantile is this value.

    The confidence, 0..1, comes second, and is at least 90 % from five values on. Of fewer, even the lowest and the
    highest have less: 75 % for three, and 0 for one.
    """
    fewer, ways = 1, 1  # in how many of 2ⁿ outcomes fewer than k values are below, and exactly k
    for k in range(1, num_values // 2 + 1):
        ways = ways * (num_values - k + 1) // k
        if 20 * (fewer + ways) > 2**num_values:
            return k, 1 - 2 * fewer / 2**num_values
        fewer += ways
    return 1, 1 - 2 / 2**num_values


def resampled_medians(samples: Sequence[Sequence[float]]) -> np.ndarray:
    """Returns medians of bootstrap resamples of each sample, float [samples, resamples]; the resamples' seed is fixed.

    Values may be infinite: a median is exact as long as most values are known.
    """
    rng = np.random.default_rng(0)
    drawn = [rng.choice(np.asarray(sample, float), (_NUM_RESAMPLES, len(sample))) for sample in samples]
    return np.stack([np.median(one, axis=1) for one in drawn])


def bootstrap_interval(low: np.ndarray, high: np.ndarray) -> Interval:
    """Returns the percentile interval of resampled values, given lower and upper bounds of them, perhaps infinite."""
    ends = ((low, 5), (high, 95))
    return Interval(*(float(np.percentile(values, percent, method="inverted_cdf")) for values, percent in ends))


def median_ratio_interval(
    values: tuple[Sequence[float], Sequence[float]], others: tuple[Sequence[float], Sequence[float]]
) -> Interval:
    """Returns the percentile bootstrap interval of the ratio of the medians of two samples above 0.

    Of each sample it takes lower and upper bounds of the values, which are infinite where nothing is known. So the
    interval is as wide as the unknown values can make it.
    """
    low, high = (resampled_medians(pair) for pair in ((values[0], others[1]), (values[1], others[0])))
    return bootstrap_interval(low[0] / low[1], high[0] / high[1])


def pooled_median_ratio(values: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> IntervalEstimate:
    """Returns the ratio of the medians of two samples above 0, each the values of at least one run.

    A two-stage bootstrap gives the percentile interval: it draws runs, and of each drawn run as many values as the
    longest has. A single run says nothing about other runs, so the interval then has its own noise alone. The
    resamples' seed is fixed.
    """
    rng = np.random.default_rng(0)
    ratio = np.median(np.concatenate(values)) / np.median(np.concatenate(others))
    drawn = [_two_stage_medians(runs, rng) for runs in (values, others)]
    return IntervalEstimate(float(ratio), bootstrap_interval(*[drawn[0] / drawn[1]] * 2))


def share_interval(num_yes: int, num_all: int) -> Interval:
    """Returns Wilson's score interval of a share, from at least one observation."""
    share, width = num_yes / num_all, _Z_95**2 / num_all
    middle = (share + width / 2) / (1 + width)
    half = math.sqrt(share * (1 - share) * width + width**2 / 4) / (1 + width)
    return Interval(middle - half, middle + half)


def without_warmup(values: SeriesT, share: float = WARMUP_SHARE) -> tuple[SeriesT, int]:
    """Returns the values, in order of time, without a first share of them, and how many values were dropped."""
    num_dropped = int(share * len(values))
    return values[num_dropped:], num_dropped


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Returns the line with the least squares of errors *relative to it*, Σ(y/(a + b·x) − 1)²: small values count, too.

    With errors relative to the values, a value that is too small by chance would pull the line down. The fit needs at
    least two different x, and every y must be above 0.
    """
    columns = np.stack([np.ones(len(x)), np.asarray(x, float)], axis=1)
    values = np.asarray(y, float)
    level = values
    for _ in range(_FIT_ROUNDS):
        a, b = np.linalg.lstsq(columns / level[:, None], values / level, rcond=None)[0]
        level = np.maximum(columns @ [a, b], values.min() / 2)  # relative errors need a line above 0 everywhere
    return Line(float(a), float(b))


def of_histogram(counts: Mapping[int, int]) -> HistogramSummary:
    """Returns the summary of a non-empty histogram value -> count; percentiles are values that occur."""
    values = np.array(sorted(counts))
    weights = np.array([counts[value] for value in values.tolist()])
    total = int(weights.sum())
    mean = float(np.dot(values, weights)) / total
    shares = np.cumsum(weights) / total
    seen = values[weights > 0]
    return HistogramSummary(
        num_values=total,
        mean=mean,
        sd=math.sqrt(float(np.dot((values - mean) ** 2, weights)) / total),
        p50=int(values[np.searchsorted(shares, 0.50)]),
        p99=int(values[np.searchsorted(shares, 0.99)]),
        largest=int(seen[-1]),
    )


def ks_distance(counts: Mapping[int, int], cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """Returns the largest distance, 0..1, between a histogram of whole numbers ≥ 0 and a distribution P(X ≤ k).

    Kolmogorov and Smirnov's distance. Both distributions step at whole numbers only, so the maximum is taken there.
    """
    grid = np.arange(max(counts) + 1)
    weights = np.array([counts.get(value, 0) for value in grid.tolist()], float)
    return float(np.max(np.abs(np.cumsum(weights) / weights.sum() - cdf(grid))))


def _t_95(degrees: int) -> float:
    return _T_95[min(degrees, len(_T_95)) - 1]


def _two_stage_medians(runs: Sequence[Sequence[float]], rng: np.random.Generator) -> np.ndarray:
    """Returns the medians of resamples of runs and of their values, float [resamples]."""
    lengths = np.array([len(run) for run in runs])
    padded = np.zeros((len(runs), lengths.max()))
    for row, run in zip(padded, runs, strict=True):
        row[: len(run)] = run
    drawn = rng.integers(len(runs), size=(_NUM_RESAMPLES, len(runs), 1))
    places = rng.integers(lengths[drawn], size=(_NUM_RESAMPLES, len(runs), lengths.max()))
    return np.median(padded[drawn, places], axis=(1, 2))
