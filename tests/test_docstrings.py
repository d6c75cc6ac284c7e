"""Docstrings have one form, and every parameter and attribute that a class docstring names exists.

Ruff's DOC102 checks the names in docstrings of functions.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = ("ps_trainer", "models", "benchmarks")
SECTION = re.compile(r"^(Args|Attributes):\n((?: {4,}.*\n|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\*{0,2}\w+(?:, \w+)*)(?: \([^)]*\))?:", re.MULTILINE)
RAISES = re.compile(r"^Raises:\n((?: {4,}.*\n|\n)*)", re.MULTILINE)
RAISED = re.compile(r"^ {4}[\w.]+(?: or [\w.]+|, [\w.]+)*: (.*)$", re.MULTILINE)
# The docstring of a function begins with a verb in the third person: "Returns the mean", not "Return" or "The mean".
VERB = re.compile(r"(?!As |Always |This )[A-Z][a-z]*s\b(?!')")
HEADLESS = re.compile(r"(How|What|Who|Whose) ")


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def parse_classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yields each class with its place, "ps_trainer/config.py:12"."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def documented(node: ast.ClassDef) -> dict[str, list[str]]:
    """Names below `Args:` and below `Attributes:`."""
    sections = SECTION.findall((ast.get_docstring(node) or "") + "\n")
    return {
        title: [name.strip(" *") for entry in ENTRY.findall(body) for name in entry.split(",")]
        for title, body in sections
    }


@functools.cache
def own_names(node: ast.ClassDef) -> tuple[set[str], set[str]]:
    """Parameters and attributes that the class itself defines; a field of a dataclass is both."""
    fields = {s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)}
    parameters, attributes = set(fields), set(fields)
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            attributes |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
        if isinstance(statement, ast.FunctionDef):
            attributes.add(statement.name)
            nodes = list(ast.walk(statement))
            attributes |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
            if statement.name == "__init__":
                parameters |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    return parameters, attributes


def find_unknown(classes: list[tuple[str, ast.ClassDef]]) -> list[str]:
    """Describes each documented name that neither the class nor a base of it has."""
    by_name = {node.name: node for _, node in classes}

    def names(node: ast.ClassDef) -> tuple[set[str], set[str]]:
        parameters, attributes = own_names(node)
        for base in (ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases):
            if by_name.get(base, node) is not node:
                inherited = names(by_name[base])
                parameters, attributes = parameters | inherited[0], attributes | inherited[1]
        return parameters, attributes

    return [
        f"{place} {node.name}: {title} names {name}, which does not exist"
        for place, node in classes
        for title, known in zip(("Args", "Attributes"), names(node), strict=True)
        for name in documented(node).get(title, [])
        if name not in known
    ]


def test_every_documented_parameter_and_attribute_of_a_class_exists():
    assert find_unknown(list(parse_classes())) == []


def test_a_documented_name_that_does_not_exist_is_found():
    text = '"""A.\n\n    Args:\n        b: B.\n        c: C.\n    """\n'
    base, child = ast.parse(f"class A:\n    {text}\n    b: int\nclass B(A):\n    {text}\n    c: int\n").body
    assert find_unknown([("a.py:1", base), ("a.py:9", child)]) == ["a.py:1 A: Args names c, which does not exist"]


def is_called(node: ast.AST) -> bool:
    """Returns whether a definition is a function or method, and no property, whose docstring begins with a noun."""
    is_function = isinstance(node, ast.FunctionDef)
    return is_function and not any(ast.unparse(line).endswith("property") for line in node.decorator_list)


def find_other_forms(tree: ast.Module) -> Iterator[str]:
    """Yields the first words of docstrings, and the entries of `Raises:`, that do not have the project's form."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        text = (ast.get_docstring(node) or "") + "\n"
        first = text.partition("\n")[0]
        if HEADLESS.match(first) or (text.strip() and is_called(node) and not VERB.match(first)):
            yield first
        for section in RAISES.findall(text):
            yield from (entry for entry in RAISED.findall(section) if entry[:1].islower())


def test_docstrings_name_their_subject_and_have_one_form():
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    found = {str(path): list(find_other_forms(parsed(path))) for path in paths}
    assert {path: texts for path, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Returns a mean.\n\n    Raises:\n        OSError: `path` is missing.\n        a.B, C or D: No.\n    ", []),
        ("Return a mean.\n    ", ["Return a mean."]),
        ("The mean.\n    ", ["The mean."]),
        ("Student's interval.\n    ", ["Student's interval."]),
        ("What a step costs.\n    ", ["What a step costs."]),
        (
            "Reads.\n\n    Raises:\n        OSError: the file\n            is missing.\n        E: no.\n    ",
            ["the file", "no."],
        ),
    ],
)
def test_another_form_is_found(text, found):
    assert list(find_other_forms(ast.parse(f'def f():\n    """{text}"""\n'))) == found


def test_docstrings_of_properties_and_classes_begin_with_a_noun():
    code = 'class A:\n    """A mean."""\n    @functools.cached_property\n    def b(self):\n        """The mean."""\n'
    assert list(find_other_forms(ast.parse(code))) == []
