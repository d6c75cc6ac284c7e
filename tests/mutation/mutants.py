"""The ways to break a source file at one place. Imports no TensorFlow."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

_ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip
_COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "fatal"}
_ANNOTATIONS = {"annotation", "returns", "decorator_list"}


class Mutant(NamedTuple):
    """One change of one file.

    Attributes:
        path: Path of the file, from the root of the tree.
        line: Number of the first changed line, from 1.
        statement: First line of the innermost statement around it.
        kind: Kind of the change: "operator", "comparison", "condition", "constant", "dependency", "statement" or
            "arguments".
        start: Offset in the source at which the change begins.
        end: Offset at which the change ends.
        before: Source text at that place.
        after: Text that replaces it.
    """

    path: str
    line: int
    statement: int
    kind: str
    start: int
    end: int
    before: str
    after: str

    def apply(self, source: str) -> str:
        """`source` with the change.

        Raises:
            ValueError: `source` is not the source from which the mutant was made.
        """
        if source[self.start : self.end] != self.before:
            raise ValueError(f"{self.path}:{self.line} is not what the mutant was made of: {self.before!r}")
        return source[: self.start] + self.after + source[self.end :]


def places_of(path: str, source: str) -> list[list[Mutant]]:
    """Every place of a file that can be broken, each with the ways to break it, in the order of the file.

    Places that influence no behaviour, or only texts, are left out: docstrings, annotations, decorators, imports, log
    calls, error messages, and f-strings. Strings are never changed.

    Args:
        path: Path of the file, for the mutants.
        source: Content of the file.
    """
    lines = _line_offsets(source)
    places = []
    for node, statement in _nodes(ast.parse(source), 1):
        mutants = []
        for kind, old, new in _changes(node):
            start, end = _offset(lines, old.lineno, old.col_offset), _offset(lines, old.end_lineno, old.end_col_offset)
            before = source.encode()[start:end].decode()
            start, end = len(source.encode()[:start].decode()), len(source.encode()[:end].decode())
            after = new if isinstance(new, str) else f"({ast.unparse(new)})"
            mutants.append(Mutant(path, old.lineno, statement, kind, start, end, before, after))
        if mutants:
            places.append(mutants)
    return places


def _nodes(node: ast.AST, statement: int) -> Iterator[tuple[ast.AST, int]]:
    """The nodes that may be changed, each with the line of its statement."""
    for name, value in ast.iter_fields(node):
        if name in _ANNOTATIONS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_words(child):
                continue
            inside = child.lineno if isinstance(child, ast.stmt) else statement
            yield child, inside
            yield from _nodes(child, inside)


def _is_words(node: ast.AST) -> bool:
    """Whether `node` and everything inside it must stay unchanged."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        return isinstance(called, ast.Attribute) and called.attr in _LOG_METHODS
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id.endswith("Error")  # including its message
    return isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom))


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST | str]]:
    """(kind, old text, new text) for each way to break `node` itself."""
    for change in (_operator, _comparison, _condition, _constant, _dependency, _statement, _arguments):
        yield from ((change.__name__[1:], old, new) for old, new in change(node))


def _operator(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _has_text(node):
        yield node, _with(node, op=_ARITHMETIC[type(node.op)]())
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC and not _has_text(node):
        changed = _with(node, op=_ARITHMETIC[type(node.op)]())
        yield node, ast.unparse(changed)
    if isinstance(node, ast.BoolOp):
        yield node, _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield node, node.operand


def _comparison(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator in _COMPARISONS[type(node.ops[0])]:
            yield node, _with(node, ops=[operator()])


def _condition(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    test = getattr(node, "test", None)
    if isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
        yield test, ast.UnaryOp(ast.Not(), test)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, node.operand


def _constant(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node.value, (int, float)):
        yield node, f"({node.value + 1!r})"
        yield node, f"({-node.value!r})" if node.value else f"({node.value - 1!r})"


def _dependency(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    """Drops one of the ops in a call of `tf.control_dependencies` or `tf.group`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    if node.func.attr == "control_dependencies" and node.args:
        given = node.args[0]
        if not isinstance(given, ast.List):
            yield given, "[]"
            return
        for index in range(len(given.elts)):
            yield given, ast.unparse(_with(given, elts=_without(given.elts, index)))
    elif node.func.attr == "group":
        for index in range(len(node.args)):
            yield node, _with(node, args=_without(node.args, index))


def _statement(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    """Drops a statement if all names in the rest of its function stay defined."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if is_call or isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break)):
        yield node, "pass"


def _arguments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | str]]:
    """Swaps the first two positional arguments of a call if they look alike; otherwise it would be a type error."""
    if isinstance(node, ast.Call) and len(node.args) >= 2:
        first, second, *others = node.args
        if type(first) is type(second) and not isinstance(first, ast.Starred) and not _has_text(first):
            yield node, _with(node, args=[second, first, *others])


def _has_text(node: ast.AST) -> bool:
    """Whether an operand is a string or a list; another operator would only be a type error."""
    operands = [getattr(node, name, None) for name in ("left", "right", "value")]
    return any(
        isinstance(operand, (ast.JoinedStr, ast.List, ast.Tuple))
        or (isinstance(operand, ast.Constant) and isinstance(operand.value, str))
        for operand in [*operands, node]
    )


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without(values: list[ast.expr], index: int) -> list[ast.expr]:
    return values[:index] + values[index + 1 :]


def _line_offsets(source: str) -> list[int]:
    """Offset in bytes of the beginning of each line; `ast` counts columns in bytes."""
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _offset(lines: list[int], line: int, column: int) -> int:
    return lines[line - 1] + column


def instrument(path: str, source: str, probe: str) -> str:
    """`source` with a call of `probe("path:line")` before each statement of each function.

    Args:
        path: Path of the file.
        source: Content of the file.
        probe: Name of a builtin function.
    """
    tree = ast.parse(source)
    _instrument(tree, lambda line: ast.parse(f"{probe}({f'{path}:{line}'!r})").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _instrument(node: ast.AST, probe: Callable[[int], ast.stmt], *, is_inside: bool = False) -> None:
    for name, value in ast.iter_fields(node):
        if not isinstance(value, list) or not value or not isinstance(value[0], (ast.stmt, ast.ExceptHandler)):
            continue
        inside = is_inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        body = []
        for statement in value:
            _instrument(statement, probe, is_inside=inside and not isinstance(statement, ast.ClassDef))
            if inside and isinstance(statement, ast.stmt) and not _stays_first(statement):
                body.append(probe(statement.lineno))
            body.append(statement)
        setattr(node, name, body)


def _stays_first(statement: ast.stmt) -> bool:
    """Whether the statement must stay first: a docstring, `nonlocal`."""
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_docstring or isinstance(statement, (ast.Global, ast.Nonlocal))
