"""Parts of an experiment: each run belongs to one part, and a part's claims use only its runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ps_trainer.experiments.harness.base import Experiment, Part
from ps_trainer.experiments.harness.cases import Case, cases_by, mean, median, setting, settings
from ps_trainer.experiments.harness.claims import Claim, ClaimFinding, ClaimKind, Limit, Measure
from ps_trainer.experiments.harness.labels import Level
from ps_trainer.experiments.harness.plots import Plot
from ps_trainer.experiments.harness.runs import Measured, Results, Run, RunResult, runs_by_key
from ps_trainer.experiments.harness.tables import Table


class Colour(Case):
    """Runs of one colour."""

    name = setting("colour")
    typical = median("value")
    average = mean("value")


def claim(key, **fields):
    measure = lambda colours: [Measure(one.name, one.typical) for one in colours]  # noqa: E731
    return Claim(
        key=key, sentence="s", kind=ClaimKind.THEORY, quantity="median", limit=Limit(high=5), measure=measure, **fields
    )


class Few(Part):
    """Two runs of each colour."""

    selects = {"what": "few"}
    claims = (claim("few"),)

    def runs(self, seeds, *, quick):
        settings = [SimpleNamespace(**self.selects, colour=colour) for colour in ("red", "blue")]
        return [
            Run(key=f"{one.colour}-{seed}", level=Level.VIRTUAL, settings=one, seed=seed)
            for one in settings
            for seed in seeds
        ]

    def execute(self, run, folder):
        return Measured(SimpleNamespace(value=len(run.settings.colour) + run.seed))

    def cases(self, results):
        return cases_by(Colour, results, "colour")

    def notes(self, cases):
        return [one.name for one in cases]


class Rest(Few):
    """All other runs."""

    selects = {}
    claims = (claim("rest"), claim("own", why_none=lambda colours: f"{len(colours)} colours"))

    def runs(self, seeds, *, quick):
        return [Run(key="other", level=Level.PROCESSES, settings=SimpleNamespace(colour="grey"))]

    def execute(self, run, folder):
        return Measured(SimpleNamespace(value=9))

    def why_none(self, cases):
        return "too grey"


class Colours(Experiment):
    """Colours."""

    name = "colours"
    source = "Goethe 1810"
    parts = (Few(), Rest())


def results_of(runs):
    return Results(RunResult(run, Colours().execute(run, None).figures, 1.0, None, None) for run in runs)


def checked(results):
    return {one.claim.key: one for one in Colours().analyse(results).checked}


RUNS = Colours().runs([0, 4], quick=False)


def test_an_experiment_has_the_runs_and_the_claims_of_its_parts():
    assert [run.key for run in RUNS] == ["red-0", "red-4", "blue-0", "blue-4", "other"]
    assert [one.key for one in Colours.claims] == ["few", "rest", "own"]


def test_a_run_belongs_to_the_first_part_that_owns_it():
    assert results_of(RUNS).figures("value") == [3, 7, 4, 8, 9]


def test_a_claim_uses_the_runs_of_its_part():
    found = checked(results_of(RUNS))
    # The medians are of 3 and 7, and of 4 and 8.
    assert found["few"].text == "1 of 2 outside, farthest: 6 (blue); at most 5"
    assert found["rest"].text == "9 (grey); at most 5"
    assert Colours().analyse(results_of(RUNS)).notes == ["red", "blue", "grey"]


def test_a_part_may_use_the_runs_of_all_parts(monkeypatch):
    monkeypatch.setattr(Rest, "sees_all", True)
    assert Colours().analyse(results_of(RUNS)).notes == ["red", "blue", "red", "blue", "grey"]


def test_a_claim_or_its_part_gives_the_reason_for_a_missing_measurement():
    found = checked(results_of(RUNS[:-1]))
    assert {one.finding for one in found.values()} == {ClaimFinding.REFUTED, ClaimFinding.NOT_TESTABLE}
    assert (found["rest"].text, found["own"].text) == ("too grey", "0 colours")
    assert checked(Results())["few"].text == "nothing was measured"


def test_a_file_that_presents_runs_gives_a_part_its_claims_tables_and_plots():
    own = Plot(key="own", title="t", shows="s", expected="e", draw=lambda figure, cases: None)
    part = Few(claims=(claim("given"),), tables=lambda cases: [Table("t", (), [[]])], plots=(own,))
    shown = type("Shown", (Colours,), {"parts": (part,)})
    assert [one.key for one in shown.claims] == ["given"]
    analysis = shown().analyse(results_of(RUNS[:-1]))
    assert [one.claim.key for one in analysis.checked] == ["given"]
    assert [table.title for table in analysis.tables] == ["t"]
    assert [drawing.plot for drawing in shown().plots(results_of(RUNS[:-1]))] == [own]
    assert [one.key for one in Few().claims] == ["few"]
    assert Few().plots == ()


def test_several_settings_of_a_case_are_declared_at_once():
    class Pair(Case):
        name, level = settings("colour", "level")

    (red, _, grey) = cases_by(Pair, results_of(RUNS), "colour")
    assert (red.name, red.level) == ("red", Level.VIRTUAL)
    assert (grey.name, grey.level) == ("grey", Level.PROCESSES)


def test_runs_by_key_have_each_of_the_settings_with_each_seed():
    planned = runs_by_key([3, 5], {"a": "A", "b": "B"}, 2.0, Level.PROCESSES)
    assert [(run.key, run.settings, run.seed) for run in planned] == [
        ("a-seed=3", "A", 3),
        ("a-seed=5", "A", 5),
        ("b-seed=3", "B", 3),
        ("b-seed=5", "B", 5),
    ]
    assert {(run.expected_secs, run.level) for run in planned} == {(2.0, Level.PROCESSES)}


@pytest.mark.parametrize(("name", "value"), [("name", "blue"), ("typical", 6), ("average", 6)])
def test_a_case_has_the_shared_settings_of_its_runs_and_statistics_over_them(name, value):
    red, blue = cases_by(Colour, results_of(RUNS[:-1]), "colour")
    assert red.name == "red"
    assert getattr(blue, name) == value
