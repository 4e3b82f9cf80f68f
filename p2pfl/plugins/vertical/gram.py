"""Sums of products of all columns of all parties, which one peer alone receives: the Gram matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, PrivacyError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.party_roles import LEAST_ROWS, PartyRoles, check_coefficients, check_rows
from p2pfl.plugins.vertical.private_messages import send_floats, state
from p2pfl.plugins.vertical.products import DealtProduct, Factors, Matrix, Products, SharedMatrix
from p2pfl.plugins.vertical.ring import Words, fixed_point, limb_bits, sum_room

PrivateFloats = Callable[[str], Floats]
"""Function that returns private numbers of a peer; only the answer of a question may call it."""


@dataclass(frozen=True, eq=False)
class JoinedTable:
    """Common rows in one order, of which each party holds its own columns.

    Parameters
    ----------
    roles, rows
        Roles, and the number of common rows n; public.
    columns, target
        Functions that return the columns ``[n, a]`` of a party, and the target ``[n]`` of the label holder; private.
    least
        Least number of common rows.
    presence
        Function that returns whether a party has each row, ``[n]``, where the common rows are hidden; columns of others
        are zero, and their own means are off already.
    """

    roles: PartyRoles
    rows: int
    columns: PrivateFloats
    target: PrivateFloats
    least: int = LEAST_ROWS
    presence: PrivateFloats | None = None


@dataclass(frozen=True)
class JoinedDesign:
    """Public shape of a joined table: a column of ones, the columns of each party in order of names, and a target.

    Parameters
    ----------
    roles
        Roles.
    widths
        Number of columns of each party.
    rows
        n, number of common rows.

    Examples
    --------
    >>> design = JoinedDesign(PartyRoles(("ada", "bob"), label="bob", helper="cleo"), {"ada": 2, "bob": 3}, rows=100)
    >>> design.size, design.where("ada"), design.where("bob")
    (6, slice(1, 3, None), slice(3, 6, None))
    """

    roles: PartyRoles
    widths: Mapping[str, int]
    rows: int

    @property
    def size(self) -> int:
        """Number of coefficients p."""
        return 1 + sum(self.widths.values())

    def where(self, party: str) -> slice:
        """Return where the coefficients of a party are, without the intercept, which comes first."""
        start = 1 + sum(self.widths[other] for other in self.roles.parties if other < party)
        return slice(start, start + self.widths[party])

    def positions(self, party: str) -> list[int]:
        """Return the places of the columns of a party in the Gram matrix, those that it holds in this order."""
        own = [*range(*self.where(party).indices(self.size))]
        return [0, *own, self.size] if party == self.roles.label else own

    def coefficients(self, party: str) -> list[int]:
        """Return the places of the coefficients of a party, the intercept among those of the label holder."""
        return [position for position in self.positions(party) if position < self.size]


@dataclass(frozen=True, eq=False)
class Columns:
    r"""Columns of one party as whole numbers :math:`v = h 2^b + l`; private.

    Parameters
    ----------
    centred
        The columns as floats, ``[n, a]``, less ``means``, ``[a]``; of the label holder with those of ones and of the
        target.
    means, exponents
        ``[a]``; v stands for v 2^-e.
    high, low, bits
        h and l, ``[n, a]``, and b.
    """

    centred: Floats
    means: Floats
    exponents: Ints
    high: Words
    low: Words
    bits: int

    def values(self, rows: slice, *, limbs: int = 2) -> Floats:
        """Return v of some rows, ``[n, a]``, or with one limb what h alone makes of it."""
        values = np.ldexp(self.high[rows].view(np.int64).astype(np.float64), self.bits)
        return values + self.low[rows].view(np.int64) if limbs == 2 else values

    def products(self, rows: slice, *, limbs: int) -> Floats:
        """Return the sums of products of the columns themselves, ``[a, a]``."""
        values = self.values(rows, limbs=limbs)
        return np.asarray(values.T @ values)


class Blocks:
    """Private columns of all parties of this process, as whole numbers.

    Parameters
    ----------
    design
        Public shape.
    table
        Private columns and target.
    """

    def __init__(self, design: JoinedDesign, table: JoinedTable) -> None:
        self.design, self.table = design, table
        self.of = cache(self._prepared)

    def _prepared(self, party: str) -> Columns:
        """Return the columns of a party."""
        design, own = self.design, np.asarray(self.table.columns(party), np.float64)
        presence = np.ones(len(own)) if self.table.presence is None else self.table.presence(party)
        parts = [own]
        if party == design.roles.label:
            target = np.asarray(self.table.target(party), np.float64)
            parts = [presence[:, None], own, target.reshape(-1, 1)]
        if any(len(part) != design.rows for part in parts):
            lengths = sorted({len(part) for part in parts} - {design.rows})
            raise DataError(f"{party} has {lengths[0]} of {design.rows} common rows; align the tables again")
        whole = np.concatenate(parts, axis=1)
        means = whole.mean(axis=0)
        if party == design.roles.label:
            means[0] = 0.0
        if self.table.presence is not None:
            means[:] = 0.0
            if party == design.roles.label:
                means[-1] = whole[presence > 0, -1].mean()
        bits = limb_bits(design.rows)
        centred = (whole - means) * presence[:, None]
        columns = fixed_point(centred, bits=2 * bits)
        high, low = columns.limbs(bits)
        return Columns(centred, means, columns.exponents, high, low, bits)


def ask_design(table: JoinedTable) -> Questions[JoinedDesign]:
    """Ask for the number of columns of each party, and refuse too few rows or too many coefficients.

    Parameters
    ----------
    table
        Table of all columns.

    Raises
    ------
    PrivacyError
        A peer has altered a number of columns.
    """
    check_rows(table.rows, least=table.least)
    parties = table.roles.parties
    widths = yield from state(lambda peer: table.columns(peer).shape[1], peers=parties)
    for party, width in zip(parties, widths.tolist(), strict=True):
        if width < 0:
            raise PrivacyError(
                f"{party} comes with {width} columns, so a peer does not follow the protocol; end the run"
            )
    design = JoinedDesign(table.roles, dict(zip(parties, widths.tolist(), strict=True)), table.rows)
    check_coefficients(design.size, table.rows)
    return design


class FactoredColumns:
    """Columns as factors of products, for some of the rows.

    Parameters
    ----------
    blocks, products
        Columns, and products of these rows.
    rows
        The rows.
    limbs
        1 or 2; with one, the Gram matrix has half of the digits.
    """

    def __init__(self, blocks: Blocks, products: Products, rows: slice, *, limbs: int = 2) -> None:
        self.blocks, self.products, self.rows, self.limbs = blocks, products, rows, limbs
        self.high = cache(self._high)
        self.low = cache(self._low)

    def _width(self, party: str) -> int:
        return len(self.blocks.design.positions(party))

    def _high(self, party: str) -> Matrix:
        return self.products.matrix(party, self._width(party), lambda: self.blocks.of(party).high[self.rows])

    def _low(self, party: str) -> Matrix:
        return self.products.matrix(party, self._width(party), lambda: self.blocks.of(party).low[self.rows])

    def pair(self, left: str, right: str) -> Questions[tuple[list[SharedMatrix], list[DealtProduct]]]:
        """Ask for the products of the columns of two parties: those of high limbs, and the sum of mixed ones."""
        factors = [Factors(self.high(left), self.high(right))]
        if self.limbs == 2:
            factors += [Factors(self.high(left), self.low(right)), Factors(self.low(left), self.high(right))]
        high, *mixed = yield from self.products.multiply(factors)
        return [high.product, *([mixed[0].product + mixed[1].product] if mixed else [])], [high, *mixed]


def ask_gram(factored: FactoredColumns) -> Questions[Callable[[], Floats]]:
    """Ask for the Gram matrix, and return the function by which the solver reads it.

    It has a row and a column for each coefficient, and the last ones for the target; each column is in units of its
    owner's private power of two.

    Parameters
    ----------
    factored
        Columns as factors.
    """
    blocks, products = factored.blocks, factored.products
    design, roles = blocks.design, blocks.design.roles
    own = {}
    for party in roles.parties:
        own[party] = yield from send_floats(
            partial(_own_products, factored, party),
            size=len(design.positions(party)) ** 2,
            sender=party,
            to=roles.solver,
        )
    pairs = [(one, two) for one, two in combinations([*roles.features, roles.label], 2)]
    shared, checks = [], []
    for left, right in pairs:
        opened, dealt = yield from factored.pair(left, right)
        shared.append(opened)
        checks += [each.check for each in dealt]
    read = yield from products.open([each for pieces in shared for each in pieces], to=roles.solver, checks=checks)
    bits = limb_bits(design.rows)

    def gram() -> Floats:
        matrix = np.zeros((design.size + 1, design.size + 1))
        for party, values in own.items():
            places = design.positions(party)
            matrix[np.ix_(places, places)] = values().reshape(len(places), -1)
        opened = iter(read())
        for (left, right), pieces in zip(pairs, shared, strict=True):
            corner = np.ix_(design.positions(left), design.positions(right))
            powers = (2 * bits, bits)[: len(pieces)]
            matrix[corner] = matrix.T[corner] = sum(
                np.ldexp(next(opened).astype(np.float64), power) for power in powers
            )
        return matrix

    return cache(gram)


def _own_products(factored: FactoredColumns, party: str) -> Floats:
    return factored.blocks.of(party).products(factored.rows, limbs=factored.limbs)


def weight_bits(rows: int) -> tuple[int, int]:
    """Return the bits of a column and of a limb of weights, whose products with two columns are added over rows.

    Examples
    --------
    >>> weight_bits(100_000), weight_bits(569)
    ((16, 13), (18, 16))
    """
    room = sum_room(rows)
    column = room * 9 // 25
    return column, room - 2 * column
