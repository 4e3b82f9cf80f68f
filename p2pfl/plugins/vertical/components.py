"""Principal components and correlations of columns of several parties, from their Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.elementary import eigen
from p2pfl.plugins.vertical.encrypted_products import products_of
from p2pfl.plugins.vertical.gram import Blocks, FactoredColumns, JoinedDesign, JoinedTable, ask_design
from p2pfl.plugins.vertical.linear import ask_moments
from p2pfl.plugins.vertical.private_messages import publish, send_floats
from p2pfl.privacy.keys import Source


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of the columns of all parties.

    Parameters
    ----------
    design
        Public shape.
    variance
        Variances of the components, in descending order; public.
    correlation
        Correlations of all columns ``[p, p]``, with ``open``; otherwise ``None``.
    own
        ``own(peer)`` returns the loadings ``[components, a]`` of a party's columns; private.
    """

    design: JoinedDesign
    variance: Floats
    correlation: Floats | None
    own: Callable[[str], Floats]


def decompose(
    table: JoinedTable, source: Source, *, standardise: bool = True, open: bool = False
) -> Questions[Components]:
    """Ask for principal components, and with ``open`` for all correlations, which everybody receives.

    Parameters
    ----------
    table, source
        Table of all columns, whose target is zero, and the source of secret bytes.
    standardise
        True for components of correlations, False for those of covariances.
    open
        True if all parties may see the correlations of all columns.
    """
    roles, rows = table.roles, table.rows
    design = yield from ask_design(table)
    blocks = Blocks(design, table)
    products = products_of(roles, source, rows)
    moments = yield from ask_moments(FactoredColumns(blocks, products, slice(None)), every=not standardise)
    width = design.size - 1

    def covariance() -> Floats:
        return moments().matrix[1:-1, 1:-1] / (rows - 1)

    def correlation() -> Floats:
        spread = np.sqrt(np.diag(covariance()))
        scale = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1.0), 0.0)
        return covariance() * scale[:, None] * scale

    solved = cache(lambda: eigen(correlation() if standardise else covariance()))
    received = {}
    for party in roles.parties:
        place, count = design.where(party), design.widths[party]
        where = slice(place.start - 1, place.stop - 1)
        received[party] = yield from send_floats(
            partial(_loadings, solved, where), size=width * count, sender=roles.solver, to=party
        )
    variance = yield from publish(lambda: np.maximum(solved()[0], 0.0), size=width, sender=roles.solver)
    shown = None
    if open:
        shown = (yield from publish(correlation, size=width * width, sender=roles.solver)).reshape(width, width)
    return Components(design, variance, shown, lambda party: received[party]().reshape(width, -1))


def _loadings(solved: Callable[[], tuple[Floats, Floats]], where: slice) -> Floats:
    return solved()[1][:, where]
