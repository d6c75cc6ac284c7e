"""Claims of the experiment on the null step, and the numbers of its source."""

from __future__ import annotations

from ps_trainer.experiments.frame.claims import Claim, Limit
from ps_trainer.experiments.frame.published import Published, Tag
from ps_trainer.experiments.lab.sized_settings import MEGABYTE, PAPER_STEP_SECS

PUBLISHED = tuple(
    Published(
        what=f"median step of {curve.value}{f' {megabytes * MEGABYTE / 1e9:g} GB' if megabytes else ''}, {n} workers",
        value=1000 * secs,
        unit="ms",
        tag=Tag.SUMMARY,
        source="Abadi et al. 2016, Fig. 7",
    )
    for (curve, megabytes), by_n in PAPER_STEP_SECS.items()
    for n, secs in by_n.items()
)

CLAIMS = (
    Claim(
        key="applied",
        sentence="Nothing is computed beforehand: each loss is the one that all updates before it make",
        measures="largest |relative error| of a dense or scalar step's loss",
        limit=Limit(high=1e-3),
    ),
    Claim(
        key="table_size",
        sentence="A sparse step does not depend on the size of the table",
        measures="|median step of a table over that of one a sixteenth as large − 1|",
        limit=Limit(high=0.1),
    ),
    Claim(
        key="rows_only",
        sentence="A sparse step moves the rows of its batch and no more: its gradient stays sparse",
        measures="bytes of a worker's step over those of its rows and ids, both ways",
        limit=Limit(high=2.0),
    ),
    Claim(
        key="sparse_dense",
        sentence="A sparse step takes far less time than a dense one with as many parameters",
        measures="median sparse step over median dense step",
        limit=Limit(high=0.2),
    ),
    Claim(
        key="scalar",
        sentence="The scalar step grows more slowly than the number of workers",
        measures="growth of the median step from 1 to n workers, over n",
        limit=Limit(high=0.9),
    ),
    Claim(
        key="dense_bytes",
        sentence="A dense step moves all parameters once each way",
        measures="bytes of a worker's step, headers included, over twice the model",
        limit=Limit(low=0.95, high=1.1),
    ),
    Claim(
        key="bandwidth",
        sentence="A dense step takes 2 · max(M/B, nM/(pB)), a pull and then a push, with B as plain TCP gets it",
        measures="median step over A10",
        limit=Limit(low=0.85, high=1.15),
    ),
    Claim(
        key="linear",
        sentence="The dense step grows with the parameters, and no more slowly than they do",
        measures="growth of the median step over that of the parameters",
        limit=Limit(low=0.9),
    ),
    Claim(
        key="phases",
        sentence="The source's dense steps lie between a pull and a push at once and one after the other, at 10 Gbit/s",
        measures="the source's median step over the simulated one, whose pull and push do not overlap",
        limit=Limit(low=0.5, high=1.0),
    ),
)
