"""Claims of the experiment on the null step, and the numbers of its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ps_trainer.experiments.harness.claims import Limit, Measure, literature_claim, simulator_claim, theory_claim
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.published import Published, Tag
from ps_trainer.experiments.toolkit.sized_settings import TABLE_RATIO
from ps_trainer.experiments.toolkit.statistics import IntervalEstimate, pooled_median_ratio

from .cases import MEGABYTE, PAPER_STEP_SECS, Curve, NullSteps, StepCase

CONTENDED = "no such run is comparable, as its tasks waited for cores"

_OSDI = "Abadi et al. 2016, Fig. 7"

PUBLISHED = tuple(
    Published(f"median step of {curve}{size}, {n} worker{'s' * (n > 1)}", 1000 * secs, "ms", Tag.SUMMARY, _OSDI)
    for (curve, megabytes), by_n in PAPER_STEP_SECS.items()
    for size in [f" {megabytes * MEGABYTE / 1e9:g} GB" if megabytes else ""]
    for n, secs in by_n.items()
)


def _contended(steps: NullSteps) -> str:
    del steps
    return CONTENDED


def _over(case: StepCase, other: StepCase) -> IntervalEstimate:
    """Returns the median step of a case over that of another one."""
    return pooled_median_ratio(case.ms_by_run, other.ms_by_run)


def _sparse_over_dense(cases: Sequence[StepCase]) -> Iterator[Measure]:
    dense = {(case.place, case.megabytes): case for case in cases if case.curve is Curve.DENSE}
    for case in cases:
        other = dense.get((case.place, case.megabytes))
        if case.curve is Curve.SPARSE and other and case.level is not Level.VIRTUAL:
            yield Measure(case.name, *_over(case, other))


def _growth(cases: Sequence[StepCase]) -> Iterator[Measure]:
    for level, p in dict.fromkeys((case.level, case.p) for case in cases):
        own = sorted((case for case in cases if (case.level, case.p) == (level, p)), key=lambda case: case.n)
        for case in own[1:] if own[0].n == 1 else ():
            yield Measure(case.name, *_over(case, own[0]).over(case.n))


def _linear(cases: Sequence[StepCase]) -> Iterator[Measure]:
    places = {case.place for case in cases}
    for place in sorted(places, key=lambda place: place[1:]):
        sizes = sorted((case for case in cases if case.place == place), key=lambda case: case.megabytes)
        for small, large in pairwise(sizes):
            yield Measure(large.name, *_over(large, small).over(large.megabytes / small.megabytes))


def _over_predicted(steps: NullSteps) -> Iterator[Measure]:
    """Yields the median step over the predicted one; the interval has the noise of B, too."""
    for case in steps.on_links if steps.transfers else ():
        predicted = [[case.predicted_ms(rate) for rate in rates] for rates in steps.transfers]
        yield Measure(case.name, *pooled_median_ratio(case.ms_by_run, predicted))


def _source_over_simulated(cases: Sequence[StepCase]) -> Iterator[Measure]:
    for case in cases:
        if case.level is Level.VIRTUAL and case.curve is Curve.DENSE and case.n in (1, 100):
            source_ms = 1000 * PAPER_STEP_SECS[case.curve, case.megabytes][case.n]
            yield Measure(case.name, *pooled_median_ratio([[source_ms]], case.ms_by_run))


_WHY = "as single values decided before"
_BOOTSTRAP = f"2026-11-27: an interval decides, by a bootstrap of runs and of their steps, {_WHY}"
_BYTES = f"2026-11-27: where there are several runs, the interval of their mean decides, by Student's t, {_WHY}"
_PAUSES = (
    "2026-11-27: workers sleep for 400 ms and more in a step, not for 50 to 100 ms, and 4 workers with 4 ps tasks are"
    " left out, as tasks waited for two cores for 9 to 53 % of a step"
)


CLAIMS = (
    theory_claim(
        key="applied",
        sentence="Nothing is computed beforehand: each loss is the one that all updates before it make",
        quantity="largest |relative error| of a dense or scalar step's loss",
        limit=Limit(high=1e-3),
        # The largest error of all steps, which has no interval: one wrong loss refutes it.
        measure=lambda steps: [Measure(c.name, c.loss_error) for c in steps.cases if c.loss_error is not None],
    ),
    literature_claim(
        key="table_size",
        sentence="A sparse step does not depend on the size of the table",
        quantity=f"median step of a table over that of one {TABLE_RATIO} times smaller, read by turns",
        limit=Limit(low=0.9, high=1.1),
        amended="2026-11-27: both tables in the same processes, by turns, with an interval over pairs of blocks, as"
        " steps of separate processes differ by more than the limit;"
        f" {_PAUSES}",
        measure=lambda steps: [Measure(pair.name, *pair.ratio) for pair in steps.table_pairs if not pair.is_contended],
        why_none=_contended,
    ),
    theory_claim(
        key="rows_only",
        sentence="A sparse step moves at most twice the bytes of its rows and ids",
        quantity="bytes of a worker's step over those of its rows and ids, both ways",
        limit=Limit(high=2.0),
        amended=f"{_BYTES}; 2026-11-27: 4 workers with 4 ps tasks do not sleep, as bytes of a sleep belong to no step;"
        " 2026-11-28: theory, as the source shows no bytes; the sentence said no more than the rows, which the limit"
        " does not test",
        measure=lambda steps: [
            Measure(case.name, *case.bytes_over_payload)
            for case in steps.cases
            if case.curve is Curve.SPARSE and case.bytes_per_step is not None
        ],
    ),
    literature_claim(
        key="sparse_dense",
        sentence="A sparse step takes far less time than a dense one with as many parameters",
        quantity="median sparse step over median dense step",
        limit=Limit(high=0.2),
        amended=f"{_BOOTSTRAP}; {_PAUSES}",
        measure=lambda steps: _sparse_over_dense(steps.timed),
        why_none=_contended,
    ),
    literature_claim(
        key="scalar",
        sentence="The scalar step grows more slowly than the number of workers",
        quantity="growth of the median step from 1 to n workers, over n",
        limit=Limit(high=0.9),
        amended=f"{_BOOTSTRAP}; {_PAUSES}; 2026-11-28: every n, not the largest alone, and real clusters alone",
        measure=lambda steps: _growth(
            [case for case in steps.timed if case.curve is Curve.SCALAR and case.level is not Level.VIRTUAL]
        ),
        why_none=_contended,
    ),
    theory_claim(
        key="dense_bytes",
        sentence="A dense step moves all parameters once each way",
        quantity="bytes of a worker's step, headers included, over twice the model",
        limit=Limit(low=0.95, high=1.1),
        amended=_BYTES,
        measure=lambda steps: [
            Measure(case.name, *case.bytes_over_payload)
            for case in steps.cases
            if case.level is Level.SHAPED and case.curve is Curve.DENSE
        ],
    ),
    theory_claim(
        key="bandwidth",
        sentence="A dense step takes 2 · max(M/B, nM/(pB)), a pull and then a push, with B as plain TCP gets it",
        quantity="median step over the predicted one",
        limit=Limit(low=0.85, high=1.15),
        amended=f"{_BOOTSTRAP}; 2026-11-28: links of 50 mbit/s, not 200, and one ps task, as tasks waited for cores:"
        " with 4 ps tasks for 7 % of a step",
        measure=_over_predicted,
    ),
    theory_claim(
        key="linear",
        sentence="Through links of limited speed, the dense step grows with the parameters, and no more slowly than"
        " they do",
        quantity="growth of the median step over that of the parameters",
        limit=Limit(low=0.9),
        amended=f"{_BOOTSTRAP}; 2026-11-28: theory, as the source's own step of one worker grows more slowly",
        measure=lambda steps: _linear(steps.on_links),
    ),
    simulator_claim(
        key="phases",
        sentence="The source's dense steps lie between a pull and a push at once and one after the other, at 10 Gbit/s",
        quantity="the source's median step over the simulated one, whose pull and push do not overlap",
        limit=Limit(low=0.5, high=1.0),
        amended="2026-11-27: the interval of the simulated median decides, by a bootstrap; the source states none",
        measure=lambda steps: _source_over_simulated(steps.cases),
    ),
)
