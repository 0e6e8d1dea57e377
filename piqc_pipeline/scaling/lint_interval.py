"""Between which values must an expression lie? Interval arithmetic over PromQL and over KEDA's formulas.

Both languages share numbers, names, calls and operators. A name or a call that is not known may have any value, so
what comes out is certain: `clamp_max(sum(queue), 8)` ends at 8, `sum(queue)` ends nowhere.
"""

import math
import re
from collections.abc import Callable
from functools import reduce

Interval = tuple[float, float]
"""Lowest and highest value."""

ANY: Interval = (-math.inf, math.inf)
TRUTH: Interval = (0.0, 1.0)
DEEPEST = 60
"""Brackets and signs within each other; a deeper expression may have any value."""

_TOKEN = re.compile(
    r"\s*(?:(?P<duration>\d+(?:ms|[smhdwy])[0-9smhdwy]*)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)"
    r"|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`)"
    r"|(?P<sign>\?\?|\*\*|==|!=|>=|<=|=~|!~|&&|\|\||[-+*/%^<>?:,()\[\]@!]))"
)
_COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("??", "or", "||"),
    ("and", "unless", "&&"),
    _COMPARISONS,
    ("+", "-"),
    ("*", "/", "%"),
    ("^", "**"),
)
"""Operators from the loosest to the tightest."""
_KEEPING = {
    "avg", "mean", "median", "quantile", "avg_over_time", "max_over_time", "min_over_time", "last_over_time",
    "quantile_over_time", "label_replace", "label_join", "scalar", "vector", "sort", "sort_desc", "topk", "bottomk",
    "int", "float",
}  # fmt: skip
"""Calls that end where their arguments end."""
_SECOND = {"quantile", "quantile_over_time", "topk", "bottomk"}
"""Calls whose first argument is a parameter."""
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_WITHOUT_VALUE = re.compile(r"\b(?:on|ignoring|group_left|group_right)\b|#[^\n]*")
_RANGE = re.compile(r"\{(?:[^{}\"'`]|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`)*\}|\[[^\[\]]*[a-z][^\[\]]*\]")


class _Unknown(Exception):
    """The expression is none that is understood."""


def interval_of_query(query: str, metric: Callable[[str], Interval]) -> Interval:
    """Values that a PromQL query can have; `ANY` where it is not understood.

    Args:
        query: The query, of bounded length.
        metric: Values that a metric can have, by its name.
    """
    return _interval(_WITHOUT_VALUE.sub(" ", _LABELS.sub(" ", _RANGE.sub(" ", query))), metric, promql=True)


def interval_of_formula(formula: str, trigger: Callable[[str], Interval]) -> Interval:
    """Values that a formula of KEDA's scaling modifiers can have; `ANY` where it is not understood.

    Args:
        formula: expr-lang, of bounded length.
        trigger: Values that a trigger can have, by its name.
    """
    return _interval(formula, trigger, promql=False)


def _interval(expression: str, value: Callable[[str], Interval], *, promql: bool) -> Interval:
    try:
        reader = _Reader(_tokens(expression), value, promql=promql)
        found = reader.whole()
    except _Unknown:
        return ANY
    return found


def _tokens(expression: str) -> list[tuple[str, str]]:
    tokens, place = [], 0
    text = expression.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise _Unknown
        tokens.append((str(match.lastgroup), str(match[str(match.lastgroup)])))
        place = match.end()
    return tokens


class _Reader:
    """Recursive descent, one method a kind of expression."""

    def __init__(self, tokens: list[tuple[str, str]], value: Callable[[str], Interval], *, promql: bool) -> None:
        self.tokens, self.value, self.promql = tokens, value, promql
        self.place = self.depth = 0

    def whole(self) -> Interval:
        found = self.choice()
        if self.place != len(self.tokens):
            raise _Unknown
        return found

    def peek(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def take(self, *signs: str) -> bool:
        if self.peek() in signs and self.place < len(self.tokens):
            self.place += 1
            return True
        return False

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise _Unknown

    def choice(self) -> Interval:
        """`a`, or `condition ? a : b`."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unknown
        found = self.binary(0)
        if not self.promql and self.take("?"):
            first = self.choice()
            self.need(":")
            found = _hull(first, self.choice())
        self.depth -= 1
        return found

    def binary(self, level: int) -> Interval:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in _LEVELS[level] and self.peek():
            sign = self.peek()
            self.place += 1
            truth = self.take("bool")
            left = self.combined(sign, left, self.binary(level + 1), truth=truth)
        return left

    def combined(self, sign: str, left: Interval, right: Interval, *, truth: bool) -> Interval:
        if sign in _COMPARISONS:
            return _hull(left, right) if self.promql and not truth else TRUTH
        if sign in ("??", "or") and (self.promql or sign == "??"):
            return _hull(left, right)
        if sign in ("and", "unless") and self.promql:
            return left
        if sign in ("or", "||", "and", "&&"):
            return TRUTH
        return _arithmetic(sign, left, right)

    def unary(self) -> Interval:
        if self.take("+"):
            return self.nested()
        if self.take("-"):
            low, high = self.nested()
            return -high, -low
        if self.take("!", "not"):
            self.nested()
            return TRUTH
        found = self.primary()
        while self.promql and self.take("offset", "@"):
            self.take("-")
            self.place += 1
            if self.take("("):
                self.need(")")
        return found

    def nested(self) -> Interval:
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unknown
        found = self.binary(len(_LEVELS) - 1)
        self.depth -= 1
        return found

    def primary(self) -> Interval:
        if self.place >= len(self.tokens):
            raise _Unknown
        kind, text = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            return float(text), float(text)
        if kind == "text":
            return ANY
        if text == "(":
            found = self.choice()
            self.need(")")
            return found
        if kind != "name":
            raise _Unknown
        if self.take("("):
            return self.call(text, self.arguments(")"))
        if text in ("nil", "true", "false"):
            return TRUTH
        return self.value(text)

    def arguments(self, closing: str) -> list[Interval]:
        """What stands between brackets; a list stands for its items."""
        found: list[Interval] = []
        self.depth += 1
        if self.depth > DEEPEST:
            raise _Unknown
        while not self.take(closing):
            found += self.arguments("]") if self.take("[") else [self.choice()]
            if self.peek() != closing:
                self.need(",")
        self.depth -= 1
        return found

    def call(self, name: str, given: list[Interval]) -> Interval:
        if not given:
            return (1.0, 1.0) if name in ("absent", "group") else ANY
        if name == "max":
            return max(low for low, _ in given), max(high for _, high in given)
        if name == "min":
            return min(low for low, _ in given), min(high for _, high in given)
        if name in ("clamp_max", "clamp_min", "clamp"):
            return _clamped(name, given)
        if name in ("ceil", "floor", "round"):
            return _rounded(name, given)
        if name == "abs":
            return 0.0, max(abs(given[0][0]), abs(given[0][1]))
        if name in ("absent", "absent_over_time", "group"):
            return 1.0, 1.0
        if name == "sum" and not self.promql:
            return reduce(lambda left, right: _arithmetic("+", left, right), given)
        if name in _KEEPING:
            kept = given[1:] if name in _SECOND else given[:1] if self.promql else given
            return reduce(_hull, kept) if kept else ANY
        return ANY


def _hull(left: Interval, right: Interval) -> Interval:
    return min(left[0], right[0]), max(left[1], right[1])


def _clamped(name: str, given: list[Interval]) -> Interval:
    limits = {"clamp_max": [(-math.inf, -math.inf), *given[1:2]], "clamp_min": [*given[1:2], (math.inf, math.inf)]}
    lowest, highest = (limits.get(name, given[1:]) + [ANY, ANY])[:2]
    low, high = max(given[0][0], lowest[0]), max(given[0][1], lowest[1])
    return min(low, highest[0]), min(high, highest[1])


def _rounded(name: str, given: list[Interval]) -> Interval:
    low, high = given[0]
    if len(given) > 1:
        step = given[1][1]
        return low - step, high + step
    down = math.floor if name == "floor" else math.ceil if name == "ceil" else lambda edge: math.floor(edge + 0.5)
    return tuple(float(down(edge)) if math.isfinite(edge) else edge for edge in (low, high))  # type: ignore[return-value]


def _arithmetic(sign: str, left: Interval, right: Interval) -> Interval:
    """Values of `left sign right`; `ANY` where infinity or a division by zero leaves it open."""
    try:
        match sign:
            case "+":
                edges = [left[0] + right[0], left[1] + right[1]]
            case "-":
                edges = [left[0] - right[1], left[1] - right[0]]
            case "*":
                edges = [one * other for one in left for other in right]
            case "/" if right[0] > 0 or right[1] < 0:
                edges = [one / other for one in left for other in right]
            case "%" if right[0] > 0:
                edges = [0.0 if left[0] >= 0 else -right[1], right[1]]
            case "^" | "**" if left[0] == left[1] and right[0] == right[1] and left[0] >= 0:
                edges = [float(left[0] ** right[0])]
            case _:
                return ANY
    except (OverflowError, ZeroDivisionError):
        return ANY
    return ANY if any(math.isnan(edge) for edge in edges) else (min(edges), max(edges))
