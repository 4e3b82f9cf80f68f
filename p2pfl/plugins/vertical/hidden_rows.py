r"""Linear models of the common rows of two parties, of which neither knows which they are.

The helper sends both parties the positions of their rows among all people of both tables. A row that a party lacks is
zero, so sums of products of columns of both parties are those of the common rows as they are. Products of a party's own
columns i and j take whether the other party has the row, q:

.. math:: \sum_r x_{ri} x_{rj} q_r

so that the solver receives the Gram matrix of the common rows alone. Columns are standardised by their owners over all
of their own rows; the intercept is a coefficient of the rows that both have. Scores follow from the Gram matrix of the
test rows, as predictors of zero would show the label holder who is common. The model of the label holder alone is that
of all its rows, as exact coefficients of its columns over the common rows would be equations of who is common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import PrivacyError
from p2pfl.learning.additive import Questions
from p2pfl.learning.metrics import determination
from p2pfl.plugins.vertical.gram import Blocks, FactoredColumns, JoinedTable, ask_design
from p2pfl.plugins.vertical.linear import LinearFit, Moments, ask_units, finish_linear
from p2pfl.plugins.vertical.party_roles import check_coefficients, check_rows
from p2pfl.plugins.vertical.private_messages import publish, send_floats
from p2pfl.plugins.vertical.products import Factors, Products
from p2pfl.plugins.vertical.ring import Words, limb_bits, sum_room, words
from p2pfl.plugins.vertical.vertical_models import SCORES
from p2pfl.privacy.keys import Source


@dataclass(frozen=True, eq=False)
class HiddenFit:
    """Linear model of rows of which nobody knows whether they are common.

    Parameters
    ----------
    linear
        The model; the label holder has the ``scores`` of test rows as well, mean squared error and R².
    counts
        Numbers of common rows, of training and of test; public.
    """

    linear: LinearFit
    counts: tuple[int, ...]


def fit_hidden(
    table: JoinedTable, source: Source, *, test: int, ridge: float, common: int | None = None
) -> Questions[HiddenFit]:
    """Fit a linear model of the common rows of two parties with a helper.

    Parameters
    ----------
    table
        Rows of both parties in one order, with the presence of each; those of test at the end.
    source
        Source of secret bytes.
    test
        Number of these.
    ridge
        Penalty, as of :func:`~p2pfl.plugins.vertical.linear.fit_linear`.
    common
        Number of common rows that the alignment has found, to which counts must add up before they are published.

    Raises
    ------
    PrivacyError
        They do not, as a party has entered others than it has.
    """
    design = yield from ask_design(table)
    blocks, roles = Blocks(design, table), design.roles
    cut = table.rows - test
    parts = [_HiddenPart(blocks, source, each) for each in (slice(0, cut), slice(cut, table.rows))[: 2 if test else 1]]
    reads = []
    for part in parts:
        read = yield from part.ask_count()
        reads.append(read)
    values = yield from publish(partial(_counted, reads, common), size=len(parts), sender=roles.solver)
    counts = values.astype(np.int64).tolist()
    for count in counts:
        check_rows(count, least=table.least)
        check_coefficients(design.size, count)
    units = yield from ask_units(blocks, every=ridge > 0)
    moments = []
    for part, count in zip(parts, counts, strict=True):
        moments.append((yield from part.ask_moments(units, count)))
    linear = yield from finish_linear(blocks, replace(design, rows=counts[0]), moments[0], ridge=ridge)
    if not test:
        return HiddenFit(linear, tuple(counts))
    scores = yield from send_floats(
        partial(_scores, *moments, ridge=ridge), size=2, sender=roles.solver, to=roles.label
    )

    def own(peer: str) -> Mapping[str, Floats]:
        return {**linear.own(peer), SCORES: scores()} if peer == roles.label else linear.own(peer)

    return HiddenFit(replace(linear, own=own), tuple(counts))


class _HiddenPart:
    """Products of some of the rows."""

    def __init__(self, blocks: Blocks, source: Source, rows: slice) -> None:
        self.blocks, self.rows, self.roles = blocks, rows, blocks.design.roles
        count = rows.stop - rows.start
        self.products = Products(self.roles, source, count, purpose=f"vertical products from row {rows.start}")
        self.factored = FactoredColumns(blocks, self.products, rows)
        self.power = 4 * limb_bits(blocks.design.rows) - sum_room(count)
        self.present = {
            party: self.products.matrix(party, 1, partial(self._present, party)) for party in self.roles.parties
        }

    def _present(self, party: str) -> Words:
        assert self.blocks.table.presence is not None  # noqa: S101 (rows are hidden where there is one)
        return words(self.blocks.table.presence(party)[self.rows, None].astype(np.int64))

    def _pairs(self, party: str) -> Words:
        """Return the products of the columns of a party with each other, row by row."""
        values = self.blocks.of(party).values(self.rows)
        one, other = np.triu_indices(values.shape[1])
        return words(np.rint(np.ldexp(values[:, one] * values[:, other], -self.power)).astype(np.int64))

    def ask_count(self) -> Questions[Callable[[], Floats]]:
        """Ask for the number of common rows, and return the function by which the solver reads it."""
        one, other = self.roles.parties
        dealt = yield from self.products.multiply([Factors(self.present[one], self.present[other])])
        read = yield from self.products.open([dealt[0].product], to=self.roles.solver, checks=[dealt[0].check])
        return lambda: read()[0][0].astype(np.float64)

    def ask_moments(self, units: Callable[[], Floats], count: int) -> Questions[Callable[[], Moments]]:
        """Ask for the Gram matrix of common rows, and return the function by which the solver reads it."""
        [feature], label, design = self.roles.features, self.roles.label, self.blocks.design
        shared, dealt = yield from self.factored.pair(feature, label)
        for party, other in ((feature, label), (label, feature)):
            width = len(design.positions(party))
            pairs = self.products.matrix(party, width * (width + 1) // 2, partial(self._pairs, party))
            own = yield from self.products.multiply([Factors(pairs, self.present[other])])
            shared, dealt = [*shared, own[0].product], [*dealt, *own]
        read = yield from self.products.open(shared, to=self.roles.solver, checks=[each.check for each in dealt])
        bits = limb_bits(design.rows)

        def moments() -> Moments:
            high, mixed, *own = (each.astype(np.float64) for each in read())
            matrix = np.zeros((design.size + 1, design.size + 1))
            corner = np.ix_(design.positions(feature), design.positions(label))
            matrix[corner] = matrix.T[corner] = np.ldexp(high, 2 * bits) + np.ldexp(mixed, bits)
            for party, sums in zip((feature, label), own, strict=True):
                places = np.array(design.positions(party))
                one, two = (places[each] for each in np.triu_indices(len(places)))
                matrix[one, two] = matrix[two, one] = np.ldexp(sums[:, 0], self.power)
            return Moments(matrix * units()[:, None] * units(), replace(design, rows=count))

        return cache(moments)


def _counted(reads: Sequence[Callable[[], Floats]], common: int | None) -> Floats:
    """Return the numbers of common rows, unless the alignment has found another one.

    Numbers that a party enters in place of whether it has a row would say which of its people are common.
    """
    counts = np.concatenate([read() for read in reads])
    if common is not None and (counts.min() < 0 or counts.sum() != common):
        raise PrivacyError(
            "a party has entered other rows than it was aligned with, so it does not follow the protocol; end the run "
            "at all peers, and find out which one it was"
        )
    return counts


def _scores(train: Callable[[], Moments], test: Callable[[], Moments], *, ridge: float) -> Floats:
    """Return the mean squared error and R² of test rows by the coefficients of training rows."""
    penalty = np.full(train().design.size, ridge)
    penalty[0] = 0.0
    beta, _ = train().solve(train().design.roles.parties, penalty)
    rows, gram = test().design.rows, test().matrix
    one = np.sqrt(gram[0, 0] / rows)  # unit of the column of ones
    error = test().squares(beta) / rows
    mean = gram[0, -1] / one / rows
    return np.array([error, determination(error, gram[-1, -1] / rows - mean**2)])
