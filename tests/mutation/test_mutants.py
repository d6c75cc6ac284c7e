"""The places of a source that can be broken, the ways to break them, and the places that are left alone."""

from __future__ import annotations

import textwrap

import pytest

from tests.mutation.mutants import instrument, places_of


def changes(source, kind=None):
    """Every mutated source, without the parentheses around the change."""
    source = textwrap.dedent(source)
    mutants = [mutant for place in places_of("a.py", source) for mutant in place]
    return {mutant.apply(source) for mutant in mutants if kind in (None, mutant.kind)}


@pytest.mark.parametrize(
    ("before", "kind", "after"),
    [
        ("y = a + b", "operator", {"y = (a - b)"}),
        ("y = a / b", "operator", {"y = (a * b)"}),
        ("y = a and b", "operator", {"y = (a or b)"}),
        ("y = -a", "operator", {"y = (a)"}),
        ("y += a", "operator", {"y -= a"}),
        ("y = a < b", "comparison", {"y = (a <= b)", "y = (a >= b)"}),
        ("y = a is None", "comparison", {"y = (a is not None)"}),
        ("y = a in b", "comparison", {"y = (a not in b)"}),
        ("y = b if a else c", "condition", {"y = b if (not a) else c"}),
        ("while a.is_open(): pass", "condition", {"while (not a.is_open()): pass"}),
        ("y = not a", "condition", {"y = (a)"}),
        ("y = 3", "constant", {"y = (4)", "y = (-3)"}),
        ("y = 0.0", "constant", {"y = (1.0)", "y = (-1.0)"}),
        ("y = True", "constant", {"y = False"}),
        ("y = f(a, b)", "arguments", {"y = (f(b, a))"}),
        ("y = tf.group(a, b)", "dependency", {"y = (tf.group(b))", "y = (tf.group(a))"}),
        ("y = tf.control_dependencies([a])", "dependency", {"y = tf.control_dependencies([])"}),
        ("y = tf.control_dependencies(a)", "dependency", {"y = tf.control_dependencies([])"}),
        ("a.close()", "statement", {"pass"}),
        ("y -= a", "statement", {"pass"}),
        ("raise ValueError('no')", "statement", {"pass"}),
    ],
)
def test_breaks_a_place_in_each_of_its_ways(before, kind, after):
    assert changes(before, kind) == after


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring: 1 + 1."""',
        "import os",
        "x: Literal[1]",
        "def f(x: Literal[1]) -> Literal[2]: return x",
        "@cache(size=3)\ndef f(): return x",
        "logging.info('%d', 1 + 1)",
        "log.warning('%d', 1 + 1)",
        "error = ValueError('%d' % (1 + 1))",
        "x = f'{1 + 1}'",
        "x = 'a' + b",
        "x = [a] + b",
        "x = f(a, *b)",
    ],
)
def test_leaves_words_annotations_and_the_log_unchanged(source):
    assert changes(source) == set()


def test_counts_places_in_characters_and_keeps_the_rest_of_the_file():
    assert changes("x = 'σ'; y = a + b  # η\n") == {"x = 'σ'; y = (a - b)  # η\n"}


def test_names_the_statement_of_a_place():
    source = "x = f(\n    a,\n    a + 1,\n)\n"
    ((operator,), _) = places_of("a.py", source)
    assert (operator.line, operator.statement, operator.kind) == (3, 1, "operator")


def test_a_mutant_of_another_source_is_rejected():
    ((mutant,),) = places_of("a.py", "y = a + b\n")
    with pytest.raises(ValueError, match=r"a\.py:1 is not what the mutant was made of"):
        mutant.apply("y = a * b\n")


def test_instrumented_source_behaves_the_same_and_records_its_statements():
    source = '''
from __future__ import annotations

def f(x):
    """Docstring."""
    if x > 0:
        return 1
    try:
        return [1][x]
    except IndexError:
        return 2
'''
    hits = []
    scope = {"probe": hits.append}
    exec(instrument("a.py", source, "probe"), scope)
    assert scope["f"].__doc__ == "Docstring."
    assert (scope["f"](1), hits) == (1, ["a.py:6", "a.py:7"])
    hits.clear()
    assert (scope["f"](-5), hits) == (2, ["a.py:6", "a.py:8", "a.py:9", "a.py:11"])
