"""Makes the mutants of a module: the operators of cosmic-ray that say something here, and three of our own.

Not mutated: annotations, decorators, `strict=` of zip, and text. What only text could show is a known mutant of
`targets.toml`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import parso
from cosmic_ray.ast import ast_nodes, get_ast, is_number
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.operators.provider import OperatorProvider

BINARY = {
    "Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "FloorDiv": "Div", "Mod": "Mul", "Pow": "Mul",
    "BitOr": "BitAnd", "BitAnd": "BitOr",
}  # fmt: skip
COMPARISON = {
    "Eq": ("NotEq",), "NotEq": ("Eq",), "Is": ("IsNot",), "IsNot": ("Is",),
    "Lt": ("LtE", "GtE"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "LtE"), "GtE": ("Gt", "Lt"),
}  # fmt: skip
"""A comparison is moved by its boundary and reversed."""
OTHERS = (
    "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "AddNot", "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak", "ExceptionReplacer", "ZeroIterationForLoop",
)  # fmt: skip
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


class SwapFunction(Operator):
    """Calls the opposite of min, max, any and all."""

    def mutation_positions(self, node):
        if node.type == "name" and node.value in SWAPPED and getattr(node.get_next_leaf(), "value", "") == "(":
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        node.value = SWAPPED[node.value]
        return node

    @classmethod
    def examples(cls):
        return ()


class Membership(Operator):
    """`in` for `not in`, and the other way round, in comparisons."""

    def mutation_positions(self, node):
        if node.type == "comparison":
            for child in self._operators(node):
                yield child.start_pos, child.end_pos

    def mutate(self, node, index):
        chosen = self._operators(node)[index]
        other = "in" if chosen.type == "comp_op" else "not in"
        node.children[node.children.index(chosen)] = parso.parse(f" {other}")
        return node

    @staticmethod
    def _operators(node):
        return [each for each in node.children[1::2] if each.get_code().split() in (["in"], ["not", "in"])]

    @classmethod
    def examples(cls):
        return ()


class Number(Operator):
    """A whole number one more or less, any other twice and half as large."""

    def mutation_positions(self, node):
        if is_number(node):
            yield from [(node.start_pos, node.end_pos)] * 2

    def mutate(self, node, index):
        value = ast.literal_eval(node.value)
        values = (value + 1, value - 1) if isinstance(value, int) else (value * 2, value / 2)
        return parso.python.tree.Number(node.prefix + repr(values[index]), node.start_pos)

    @classmethod
    def examples(cls):
        return ()


@dataclass(frozen=True)
class Mutant:
    """A module's text with one change; `lines` are those of the changed statement, from 1."""

    source: str
    lines: range
    function: str
    before: str
    after: str


def operators() -> list[Operator]:
    """Every operator that is applied."""
    provided = OperatorProvider()
    names = [f"ReplaceBinaryOperator_{one}_{other}" for one, other in BINARY.items()]
    names += [f"ReplaceComparisonOperator_{one}_{each}" for one, others in COMPARISON.items() for each in others]
    return [*(provided[name]() for name in (*names, *OTHERS)), SwapFunction(), Membership(), Number()]


def mutants(source: str) -> list[Mutant]:
    """Every mutant of a module's text that compiles and differs from it, in the order of its lines."""
    skipped, functions, statements = _skipped(source), _functions(source), _statements(source)
    found = {}
    nodes = list(ast_nodes(get_ast(source)))
    for operator in operators():
        places = [place for node in nodes for place in operator.mutation_positions(node)]
        for occurrence, (start, end) in enumerate(places):
            if any(first <= start and end <= last for first, last in skipped):
                continue
            changed = _mutated(source, operator, occurrence)
            if changed is None or changed == source or changed in found or not _compiles(changed):
                continue
            lines = next((each for each in statements if start[0] in each), range(start[0], end[0] + 1))
            before, after = _difference(source, changed)
            name = next((name for name, each in functions if start[0] in each), "")
            found[changed] = Mutant(changed, lines, name, before, after)
    return sorted(found.values(), key=lambda each: (each.lines.start, each.before, each.after))


def _mutated(source: str, operator: Operator, occurrence: int) -> str | None:
    """The changed text; None where an operator does not apply, as that of exceptions to a name with a dot."""
    try:
        return mutate_code(source, operator, occurrence)
    except AttributeError:
        return None


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _difference(source: str, changed: str) -> tuple[str, str]:
    """The first line that differs, before and after, without indentation."""
    for one, other in zip(source.splitlines(), changed.splitlines(), strict=False):
        if one != other:
            return one.strip(), other.strip()
    raise AssertionError("a mutant differs in a line")


def _skipped(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where nothing is mutated, as pairs of (line, column)."""
    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found += node.decorator_list
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            found.append(node.returns)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            found.append(node.annotation)
        if isinstance(node, ast.keyword) and node.arg == "strict":
            found.append(node.value)
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in found]  # type: ignore[attr-defined]


def _functions(source: str) -> list[tuple[str, range]]:
    """Names with dots and lines of functions and classes, the innermost first."""

    def walk(node: ast.AST, outer: str) -> Iterator[tuple[str, range]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{outer}.{child.name}" if outer else child.name
                yield from walk(child, name)
                yield name, range(child.lineno, (child.end_lineno or child.lineno) + 1)
            else:
                yield from walk(child, outer)

    return list(walk(ast.parse(source), ""))


def _statements(source: str) -> list[range]:
    """Lines of simple statements and of the heads of compound ones, the shortest first."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            found.append(range(node.lineno, max(node.lineno, last) + 1))
    return sorted(found, key=len)
