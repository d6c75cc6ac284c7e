"""The tables and the explanations of the experiment on bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.tables import Table, numbers, texts
from ps_trainer.experiments.toolkit.statistics import spread

from .cases import Arm, LinkCase, d2l_ratios, pairs

_MB = 1e6


def tables(cases: Sequence[LinkCase]) -> list[Table]:
    """Returns a line per case, and the example of "Dive into Deep Learning"."""
    return [_case_table(cases), *_d2l_table(cases)] if cases else []


def notes(cases: Sequence[LinkCase]) -> list[str]:
    """Returns the sentences for the report."""
    notes = [
        "B is the link's rate times 1,448/1,514, the share of a full frame that TCP carries as payload. No parameter"
        " is fitted.",
        "A synchronous step pushes and then pulls, so it uses each link in only one direction at a time. With p = n"
        " ps tasks on hosts of their own, a step therefore takes 2M/B. M/B is possible if a worker pulls one part of"
        " the model while it still pushes another part. 2M/B is n/(n − 1) times the ring's time, not half of it. The"
        " claim of M/B is refuted for training that waits for the whole update before it pulls. TensorFlow 1 also"
        " waits in this way, so the claim would be refuted for it, too.",
        "A worker cannot pull before its own push is done. But one worker's pull and another's push can use the link"
        " of a ps task at the same time, in opposite directions. Synchronous workers do not overlap in this way."
        " Asynchronous workers do so once they are out of step, so they are faster where n > p. They gain less than a"
        " factor of two, because pulls and pushes do not always coincide. The prediction comes from the simulator,"
        " because this case has no closed form.",
        "Where several workers pull through one link, the round is a few per cent shorter than 2nM/(pB). A link"
        " serves its queue in order, so the first worker to have all its parameters pushes while others still pull."
        " The effect shrinks as the model grows relative to the queue, which holds half a second of data.",
        "The ring, and ps tasks on the workers' hosts, transfer the predicted number of bytes, on idle cores."
        " Nevertheless, they take 1.2 to 1.4 times the predicted time. In these arms, every host sends and receives"
        " at the same time. The links are not the cause: plain TCP in both directions at once takes the predicted"
        " time (4 MB each way at 100 mbit/s: 0.336 s, predicted 0.335). Queues of 0.05 s instead of 0.5 s changed the"
        " ratios only from 1.28 to 1.26 and from 1.40 to 1.35. The remaining suspect is the way in which TensorFlow"
        " and gRPC send, but the cause was not found.",
        "Only other activity on the machine makes these results random. Seeds are repetitions, so three are enough.",
    ]
    beside = pairs(cases, Arm.PS, Arm.RING)
    mixed = [f"{case.timed_secs.median / ring.timed_secs.median:.2f} (n={case.setting.n})" for case, ring in beside]
    if mixed:
        notes.insert(2, f"Measured time with p = n hosts beside the workers' over the ring's time: {', '.join(mixed)}.")
    return notes


def _case_table(cases: Sequence[LinkCase]) -> Table:
    """Returns a line per case."""
    columns = (
        *texts("arm"),
        *numbers("d", "n", "p", "hosts"),
        *numbers(".2f", "busiest host receives", "predicted", unit="MB"),
        *numbers(".3f", "round p50", "p10", "p90", "predicted", unit="s"),
        *numbers(".3f", "measured / predicted"),
        *numbers(".2f", "round", unit="M/B"),
        *numbers(".0f", "CPU", unit="%"),
        *numbers("d", "seeds"),
    )
    return Table("Time per round", columns, [_row(case) for case in cases], Level.SHAPED)


def _d2l_table(cases: Sequence[LinkCase]) -> list[Table]:
    """Returns a table of the ratios of d2l's example; no table unless every ratio was measured."""
    rows = [[bar.what, published, measured] for bar, published, measured in d2l_ratios(cases)]
    columns = (
        *texts("gradients of 4 are added up"),
        *numbers(".2f", "d2l, 160 MB", "here", unit="over the last line"),
    )
    title = "d2l's example, in ratios"
    return [Table(title, columns, rows, Level.SHAPED)]


def _row(case: LinkCase) -> list[object]:
    setting = case.setting
    shares = [result.cpu.share for result in case.runs if result.cpu is not None]
    times = [case.timed_secs.median, case.timed_secs.p10, case.timed_secs.p90] if case.secs else [None] * 3
    ratios = [case.over_predicted, case.in_units] if case.secs else [None] * 2
    return [
        *(setting.arm.value, setting.n, setting.p or None, setting.num_hosts),
        *(case.most_bytes / _MB, setting.predicted_bytes() / _MB),
        *(*times, setting.predicted_secs(), *ratios),
        *(100 * spread(shares).median if shares else None, len(case.runs.uncontended())),
    ]
