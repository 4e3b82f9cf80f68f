r"""Formulae: ``low ~ age * smoke + ns(lwt, 3) + C(race, ref="white")`` as columns of a design.

A formula has the operators ``+``, ``-``, ``:``, ``*``, ``^`` and parentheses of R with their meaning, ``1`` and ``0``
for the intercept, and these calls: ``C(column, ref=level)``, ``I(arithmetic)``, ``log``, ``sqrt``, ``exp``, and
``ns(x, knots=[...], range=[low, high])`` and ``bs``, the splines of R with these interior and boundary knots. A column
with levels is compared with its first level, and coded in full where R does so, for example in an interaction without
its main effect. Levels and such knots come from the experiment file, so that no owner's data decide them;
``ns(x, 3)`` and ``bs(x, df=5)`` leave knots open, which a model finds as quantiles of all data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import combinations, pairwise, product
from operator import add, mul, sub, truediv
from typing import NoReturn

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.tensors import torch
from p2pfl.data.data_description import Field
from p2pfl.data.tables.splines import DEGREE, b_spline, natural_spline, spline_values

TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_.][\w.]*)|`(?P<quoted>[^`]+)`"""
    r"""|(?P<text>'[^']*'|"[^"]*")|(?P<sign>[~+\-*/:^()\[\],=]))"""
)
"""Next word of a formula."""

MATHS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {"log": torch.log, "sqrt": torch.sqrt, "exp": torch.exp}
"""Functions of a column of numbers."""

ARITHMETIC: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": truediv,
    "^": torch.pow,
}
"""Operators within ``I()`` and functions."""

MAX_POWER = 6
"""Largest power of terms."""

MAX_DF = 20
"""Most degrees of freedom of a spline."""

Evaluate = Callable[[torch.Tensor], torch.Tensor]
"""Function from encoded columns ``[n, F]`` to a column of the design ``[n]``."""

Term = tuple[str, ...]
"""Names of the factors of a term."""


SPLINES: Mapping[str, Callable[[Sequence[float], tuple[float, float]], Floats]] = {
    "ns": natural_spline,
    "bs": b_spline,
}
"""Functions that return the rows of a spline, by the name of the call."""


@dataclass(frozen=True)
class SplineField(Field):
    """Column of a spline whose knots are quantiles of all data; its values are those of the variable.

    Parameters
    ----------
    kind
        ``ns`` or ``bs``.
    columns
        Number of columns of the spline.
    number
        Number of this one.
    ends
        Boundary knots, if the formula has them.
    """

    kind: str = "ns"
    columns: int = 1
    number: int = 0
    ends: tuple[float, float] | None = None

    @property
    def spline(self) -> str:
        """Name of the spline."""
        return self.name.removesuffix(str(self.number + 1))

    @property
    def inner(self) -> int:
        """Number of inner knots."""
        return self.columns - (1 if self.kind == "ns" else DEGREE)

    def rows(self, knots: Sequence[float], ends: tuple[float, float]) -> Floats:
        """Return the rows of all columns, see :mod:`p2pfl.data.tables.splines`."""
        return SPLINES[self.kind](knots, ends)


@dataclass(frozen=True)
class Factor:
    """Factor of a term.

    Parameters
    ----------
    name
        Name.
    columns
        Name and function of each of its columns.
    reference
        Place of the column of the level that the others are compared with; ``None`` for numbers.
    field
        The column of the table, its reference last, where the factor is a column with levels.
    splines
        Columns of a spline whose knots are not known yet; their values are those of the variable.
    """

    name: str
    columns: tuple[tuple[str, Evaluate], ...]
    reference: int | None = None
    field: Field | None = None
    splines: tuple[SplineField, ...] = ()

    def coded(self, *, full: bool) -> list[tuple[str, Evaluate]]:
        """Return the columns, in full or without the reference."""
        return [each for index, each in enumerate(self.columns) if full or index != self.reference]


@dataclass(frozen=True)
class Formula:
    """Design that follows from a formula and the columns of a table.

    Parameters
    ----------
    fields
        Columns of the design, as a model has them.
    evaluate
        Functions of the features of the design, ``[D]``.
    intercept
        True if there is an intercept.
    target
        Left side; empty if there is none.

    Examples
    --------
    >>> design = Formula.of("y ~ age * sex", [Field("age"), Field("sex", ("f", "m"))])
    >>> [each.name for each in design.fields], design.features
    (['age', 'sex', 'age:sex=m'], 4)
    >>> design.apply(torch.tensor([[30.0, 0.0, 1.0]])).tolist()
    [[30.0, 1.0, 0.0, 30.0]]
    """

    fields: tuple[Field, ...]
    evaluate: tuple[Evaluate, ...]
    intercept: bool = True
    target: str = ""

    @classmethod
    def of(cls, text: str, fields: Sequence[Field], *, kept: Sequence[str] = ()) -> Formula:
        """Return the design of a formula.

        Parameters
        ----------
        text
            The formula.
        fields
            Columns of the table.
        kept
            Names of columns that stay beside the design, such as weights.

        Raises
        ------
        ModelError
            The formula is not one, or names what the table does not have.
        """
        return _Parser(text, fields).design(kept)

    @property
    def features(self) -> int:
        """Number of features of the design."""
        return len(self.evaluate)

    def apply(self, encoded: torch.Tensor) -> torch.Tensor:
        """Return the design ``[n, D]`` of encoded columns ``[n, F]``."""
        return torch.stack([each(encoded) for each in self.evaluate], dim=1)


def leaves_knots_open(text: str) -> bool:
    """Return whether a spline of a formula has no knots, so that a model finds them.

    Examples
    --------
    >>> leaves_knots_open("y ~ ns(log(x), 3) + ns(z, knots=[1])"), leaves_knots_open("y ~ ns(z, knots=[1]) + bs")
    (True, False)
    """
    words = [match.group().strip() for match in TOKEN.finditer(text)]
    calls = sum(one in SPLINES and two == "(" for one, two in pairwise(words))
    return calls > words.count("knots")


def _pick(encoded: torch.Tensor, column: int) -> torch.Tensor:
    return encoded[:, column]


def _constant(encoded: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full_like(encoded[:, 0], value)


def _combined(encoded: torch.Tensor, parts: Sequence[Evaluate], combine: Callable[..., torch.Tensor]) -> torch.Tensor:
    return combine(*(part(encoded) for part in parts))


def _multiplied(encoded: torch.Tensor, parts: Sequence[Evaluate]) -> torch.Tensor:
    return reduce(mul, (part(encoded) for part in parts))


@dataclass
class _Parser:
    """Reader of a formula."""

    text: str
    table: Sequence[Field]
    words: list[tuple[str, str]] = field(default_factory=list)
    factors: dict[str, Factor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rest = self.text.rstrip()
        if "|" in rest:
            self._refuse(
                "random effects such as (1 | site) follow from no totals that peers could add up",
                'add the site as a column, or set errors = "cluster", which is robust to dependence within sites',
            )
        while rest:
            match = TOKEN.match(rest)
            if match is None or match.lastgroup is None:
                self._refuse(f'"{rest.strip()[:20]}" is no part of a formula', "use names, numbers and + - * : ^ ( )")
            self.words.append((match.lastgroup, match.group(match.lastgroup)))
            rest = rest[match.end() :]
        self.starts: dict[str, tuple[Field, int]] = {}
        start = 0
        for each in self.table:
            self.starts[each.name] = each, start
            start += len(each.levels or "1")

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise ModelError(f"model.options.formula: {what}; {remedy}")

    def design(self, kept: Sequence[str]) -> Formula:
        """Return the whole design."""
        target = self._left_side()
        terms = self._sum()
        if self.words:
            self._refuse(f'"{self.words[0][1]}" comes after the end of the formula', "correct what is before it")
        intercept = () in terms
        ordered = sorted((term for term in terms if term), key=len)
        if not ordered:
            self._refuse("it has no term", "name a column")
        fields, columns = list[Field](), list[Evaluate]()
        for term in ordered:
            new, functions = self._columns(term, {frozenset(each) for each in terms})
            fields += new
            columns += functions
        for name in kept:
            own, start = self._known(name)
            if name not in {each.name for each in fields}:
                fields.append(own)
                columns += [partial(_pick, column=start + index) for index in range(len(own.levels or "1"))]
        return Formula(tuple(fields), tuple(columns), intercept, target)

    def _left_side(self) -> str:
        """Return the text before ``~``; the target is that of the table."""
        signs = [position for position, word in enumerate(self.words) if word == ("sign", "~")]
        if len(signs) > 1:
            self._refuse('it has "~" twice', "write it once")
        if not signs:
            return ""
        left = [word for _, word in self.words[: signs[0]]]
        del self.words[: signs[0] + 1]
        return left[2] if left[:2] == ["Surv", "("] and len(left) > 2 else "".join(left)

    def _columns(self, term: Term, terms: set[frozenset[str]]) -> tuple[list[Field], list[Evaluate]]:
        """Return the columns of a term, coded as R does."""
        parts = [self.factors[name] for name in term]
        open_knots = [part for part in parts if part.splines]
        if open_knots and len(parts) > 1:
            self._refuse(
                f"the knots of {open_knots[0].name} in an interaction are not known beforehand",
                f"write {open_knots[0].name[:2]}(x, knots=[...], range=[low, high])",
            )
        if open_knots:
            return [*open_knots[0].splines], [each for _, each in open_knots[0].columns]
        coded = [
            part.coded(full=part.reference is None or frozenset(term) - {part.name} not in terms) for part in parts
        ]
        if len(parts) == 1 and parts[0].field is not None:  # the model leaves the last level, the reference, out
            [part] = parts
            where = [*(index for index in range(len(part.columns)) if index != part.reference), part.reference or 0]
            return [part.field], [part.columns[index][1] for index in where]  # type: ignore[list-item]
        rows = [*product(*coded)]
        names = [Field(":".join(name for name, _ in row)) for row in rows]
        return names, [partial(_multiplied, parts=[each for _, each in row]) for row in rows]

    # Terms.

    def _next(self, *signs: str) -> str:
        """Return and drop the next word if it is one of these signs; nothing otherwise."""
        if self.words and self.words[0][0] == "sign" and self.words[0][1] in signs:
            return self.words.pop(0)[1]
        return ""

    def _expect(self, sign: str) -> None:
        if not self._next(sign):
            word = f'"{self.words[0][1]}"' if self.words else "the end"
            self._refuse(f'{word} stands where "{sign}" belongs', f'add "{sign}"')

    def _sum(self) -> list[Term]:
        """Return the terms of a sum; the empty one is the intercept."""
        terms: list[Term] = [()]
        sign = self._next("+", "-") or "+"
        while sign:
            if self.words[:1] == [("number", "0")]:
                self.words[0] = "number", "1"
                sign = "-" if sign == "+" else "+"
            for term in self._crossed():
                same = [each for each in terms if {*each} == {*term}]
                if sign == "+" and not same:
                    terms.append(term)
                elif sign == "-":
                    terms = [each for each in terms if each not in same]
            sign = self._next("+", "-")
        return terms

    def _crossed(self) -> list[Term]:
        terms = self._interaction()
        while self._next("*"):
            other = self._interaction()
            terms = [*terms, *other, *_interactions(terms, other)]
        return terms

    def _interaction(self) -> list[Term]:
        terms = self._power()
        while self._next(":"):
            terms = _interactions(terms, self._power())
        return terms

    def _power(self) -> list[Term]:
        terms = self._atom()
        if not self._next("^"):
            return terms
        kind, word = self.words.pop(0) if self.words else ("", "")
        if kind != "number" or not word.isdigit() or not 1 <= int(word) <= MAX_POWER:
            self._refuse(
                f'"^{word}" is no power of terms', f"write a number from 1 to {MAX_POWER}, or I(x^2) of a column"
            )
        chosen = (parts for size in range(1, int(word) + 1) for parts in combinations(terms, size))
        return [reduce(_joined, parts) for parts in chosen]

    def _atom(self) -> list[Term]:
        if self._next("("):
            terms = [term for term in self._sum() if term]
            self._expect(")")
            return terms
        if not self.words:
            self._refuse("it ends where a term belongs", "add one")
        kind, word = self.words[0]
        if kind == "number":
            self.words.pop(0)
            if word == "1":
                return [()]
            self._refuse(f"the number {word} is no term", "write 1 or 0 for the intercept, or I(...) for arithmetic")
        if kind not in {"name", "quoted"}:
            self._refuse(f'"{word}" stands where a term belongs', "name a column")
        factor = self._factor()
        self.factors.setdefault(factor.name, factor)
        return [(factor.name,)]

    # Factors.

    def _factor(self) -> Factor:
        kind, name = self.words.pop(0)
        if kind == "quoted" or not self._next("("):
            return self._column(name)
        if name == "C":
            made = self._levels()
        elif name in SPLINES:
            made = self._spline(name)
        elif name == "I" or name in MATHS:
            start = len(self.words)
            words = [*self.words]
            inner = self._arithmetic()
            text = "".join(word for _, word in words[: start - len(self.words)])
            function = partial(_combined, parts=[inner], combine=MATHS[name]) if name in MATHS else inner
            made = Factor(f"{name}({text})", ((f"{name}({text})", function),))
        else:
            self._refuse(
                f"{name}() is no function here", f"use C, I, ns, bs, {', '.join(MATHS)}, or add a column to the table"
            )
        self._expect(")")
        return made

    def _known(self, name: str) -> tuple[Field, int]:
        if name not in self.starts:
            self._refuse(f'there is no column "{name}"', f"choose from {', '.join(self.starts) or 'none'}")
        return self.starts[name]

    def _column(self, name: str, reference: str | None = None) -> Factor:
        own, start = self._known(name)
        if own.levels is None:
            return Factor(name, ((name, partial(_pick, column=start)),))
        if reference is not None and reference not in own.levels:
            self._refuse(f'column "{name}" has no level "{reference}"', f"choose from {', '.join(own.levels)}")
        index = 0 if reference is None else own.levels.index(reference)
        ordered = Field(name, (*(each for each in own.levels if each != own.levels[index]), own.levels[index]))
        columns = [
            (f"{name}={level}", partial(_pick, column=start + number)) for number, level in enumerate(own.levels)
        ]
        return Factor(name, tuple(columns), index, ordered)

    def _levels(self) -> Factor:
        """Read ``C(column, ref=level)`` after its parenthesis."""
        _, name = self.words.pop(0) if self.words else ("", "")
        reference: str | None = None
        if self._next(","):
            self._keyword("ref")
            _, reference = self.words.pop(0) if self.words else ("", "")
            reference = reference.strip("'\"")
        if self._known(name)[0].levels is None:
            self._refuse(
                f'column "{name}" is a number, so its levels are not known',
                f"declare them in data.options.columns, such as {name} = [1, 2, 3]",
            )
        return self._column(name, reference)

    def _spline(self, kind: str) -> Factor:
        """Read ``ns(x, 3)``, ``ns(x, knots=[...], range=[...])``, or the same of ``bs``, after its parenthesis."""
        words = [*self.words]
        inner = self._arithmetic()
        text = "".join(word for _, word in words[: len(words) - len(self.words)])
        options: dict[str, list[float]] = {}
        while self._next(","):
            plain = self.words[:1] != [] and self.words[0][0] == "number"
            name = "df" if plain else self._keyword("df", "knots", "range")
            options[name] = [self._number()] if name == "df" else self._list()
        if "df" in options or "knots" not in options:
            return self._open_spline(kind, text, inner, options)
        declared = self.starts[text][0].range if text in self.starts else None
        ends = options.get("range") or [*(declared or ())]
        knots = options["knots"]
        inside = len(ends) == 2 and all(
            low < high for low, high in zip([ends[0], *knots], [*knots, ends[1]], strict=True)
        )
        if not inside:
            self._refuse(
                f"the knots of {kind}({text}) do not ascend between two ends",
                f"write {kind}({text}, knots=[...], range=[low, high]), or declare the range of the column",
            )
        name = f"{kind}({text})"
        columns = [
            (f"{name}{number}", partial(_combined, parts=[inner], combine=partial(spline_values, row=row.tolist())))
            for number, row in enumerate(SPLINES[kind](knots, (ends[0], ends[1])), start=1)
        ]
        return Factor(f"{name}{knots}{ends}", tuple(columns))

    def _open_spline(self, kind: str, text: str, inner: Evaluate, options: Mapping[str, list[float]]) -> Factor:
        """Return a spline of some degrees of freedom, whose knots are quantiles of all data."""
        least = 1 if kind == "ns" else DEGREE
        [count] = options.get("df", [least])
        ends = options.get("range")
        if "knots" in options or count != int(count) or not least <= count <= MAX_DF:
            self._refuse(
                f"{kind}({text}) takes knots, or a whole number of degrees of freedom from {least} to {MAX_DF}",
                f"write {kind}({text}, {least + 2}), or {kind}({text}, knots=[...], range=[low, high])",
            )
        if ends is not None and not (len(ends) == 2 and ends[0] < ends[1]):
            self._refuse(f"the range of {kind}({text}) is no interval", "write range=[low, high]")
        name = f"{kind}({text}, {int(count)})"
        known = None if ends is None else (ends[0], ends[1])
        splines = tuple(
            SplineField(f"{name}{number + 1}", kind=kind, columns=int(count), number=number, ends=known)
            for number in range(int(count))
        )
        return Factor(name, tuple((each.name, inner) for each in splines), splines=splines)

    def _keyword(self, *names: str) -> str:
        _, name = self.words.pop(0) if self.words else ("", "")
        if name not in names or not self._next("="):
            self._refuse(f'"{name}" is no option here', f"write {' or '.join(f'{each}=' for each in names)}")
        return name

    def _list(self) -> list[float]:
        self._expect("[")
        numbers = list[float]()
        while not self._next("]"):
            sign = -1.0 if self._next("-") else 1.0
            numbers.append(sign * self._number())
            self._next(",")
        return numbers

    def _number(self) -> float:
        kind, word = self.words.pop(0) if self.words else ("", "the end")
        if kind != "number":
            self._refuse(f'"{word}" stands where a number belongs', "write numbers, in lists between [ and ]")
        return float(word)

    # Arithmetic.

    def _arithmetic(self) -> Evaluate:
        return self._binary(("+", "-"), lambda: self._binary(("*", "/"), self._raised))

    def _binary(self, signs: Sequence[str], operand: Callable[[], Evaluate]) -> Evaluate:
        left = operand()
        while sign := self._next(*signs):
            left = partial(_combined, parts=[left, operand()], combine=ARITHMETIC[sign])
        return left

    def _raised(self) -> Evaluate:
        base = self._value()
        return partial(_combined, parts=[base, self._raised()], combine=torch.pow) if self._next("^") else base

    def _value(self) -> Evaluate:
        if self._next("("):
            inner = self._arithmetic()
            self._expect(")")
            return inner
        if self._next("-"):
            return partial(_combined, parts=[partial(_constant, value=0.0), self._raised()], combine=sub)
        kind, word = self.words.pop(0) if self.words else ("", "the end")
        if kind == "number":
            return partial(_constant, value=float(word))
        if kind not in {"name", "quoted"}:
            self._refuse(f'"{word}" stands where a number belongs', "name a column of numbers")
        if kind == "name" and word in MATHS and self._next("("):
            inner = self._arithmetic()
            self._expect(")")
            return partial(_combined, parts=[inner], combine=MATHS[word])
        own, start = self._known(word)
        if own.levels is not None:
            self._refuse(f'column "{word}" has levels, with which nobody calculates', "name a column of numbers")
        return partial(_pick, column=start)


def _joined(one: Term, other: Term) -> Term:
    return (*one, *(name for name in other if name not in one))


def _interactions(terms: Sequence[Term], others: Sequence[Term]) -> list[Term]:
    return [_joined(one, other) for one in terms for other in others]
