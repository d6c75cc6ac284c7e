"""Captions: the constant part does not state a result as seen, and what was seen comes from the claims."""

from __future__ import annotations

import re

import pytest

from ps_trainer import component_tables
from ps_trainer.experiments.harness.plots import Caption, ClaimSummary
from ps_trainer.experiments.harness.provenance import REPOSITORY
from ps_trainer.experiments.harness.publish import RESULTS

# Words that tell a result: movements of lines, places of points, and amounts.
RESULT = re.compile(
    r"\b(rise|fall|grow|shrink|drop|lie|stay|ends? (at|below|above|twice)|bend|follow|level off|steep|flat|near|about"
    r"|higher|highest|lower|lowest|largest at|smallest|longer|shorter|hardly|nearly|almost|together)(s|ly|en)?\b"
)
# In the description of a plot these words are names, not findings.
ALLOWED = ("largest stable",)


@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_no_caption_states_a_result_as_seen(name):
    for key, caption in component_tables.EXPERIMENTS.load(name).captions.items():
        assert isinstance(caption, Caption), key
        shown = caption.shows
        for words in ALLOWED:
            shown = shown.replace(words, "")
        assert not RESULT.search(shown), f"{key}: {RESULT.search(shown)[0]!r} belongs to what is expected"
        assert caption.expected, f"{key} does not state the expectation"


@pytest.mark.parametrize(
    "shows", ["The circles lie on the crosses.", "The rates rise steeply.", "Bars fall from 0 on."]
)
def test_a_stated_result_is_noticed(shows):
    assert RESULT.search(shows)


def test_what_was_seen_is_what_the_claims_found():
    caption = Caption("Axes.", "a line.", ("It rises", "It bends", "Nobody measured it"))
    seen = {
        "It rises": ClaimSummary("0.9 (n=2); at least 1", "refuted"),
        "It bends": ClaimSummary("all 3 inside", "ok"),
    }
    assert caption.text(seen) == (
        "Axes. Expected: a line. Seen: “It rises”: refuted (0.9 (n=2); at least 1). “It bends”: ok (all 3 inside)."
    )
    assert Caption("Axes.", "a line.").text(seen).endswith("Seen: no claim is about this plot.")


@pytest.mark.parametrize("name", component_tables.EXPERIMENTS.names())
def test_every_caption_on_the_published_page_says_what_its_table_of_claims_says(name):
    page = (REPOSITORY / RESULTS / f"{name}.md").read_text(encoding="utf-8")
    experiment = component_tables.EXPERIMENTS.load(name)
    amended = {claim.sentence: claim.amended for claim in experiment.claims}
    for caption in experiment.captions.values():
        for sentence in caption.about:
            rows = [line for line in page.splitlines() if line.startswith(f"| {sentence} |")]
            if not rows:
                assert amended[sentence], "the page has no such claim; publish it, or say what was amended"
                continue
            (row,) = rows
            _, _, measured, *_, outcome = re.split(r" \| ", row.removesuffix(" |"))
            assert f"“{sentence}”: {outcome} ({measured})." in page
