"""Paths of elastic nets of columns of several parties, from the Gram matrices of training and validation rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.regression.lasso import descended
from p2pfl.plugins.vertical.encrypted_products import products_of
from p2pfl.plugins.vertical.gram import Blocks, FactoredColumns, JoinedDesign, JoinedTable, ask_design
from p2pfl.plugins.vertical.linear import Moments, ask_moments
from p2pfl.plugins.vertical.private_messages import publish, send_floats
from p2pfl.privacy.keys import Source


@dataclass(frozen=True)
class PathOptions:
    """Options of a path of elastic nets, as of :class:`p2pfl.plugins.exact.regression.lasso.Lasso`.

    Parameters
    ----------
    l1_ratio, lambdas, smallest
        Share of the L1 penalty, number of penalties, and the last as a share of the first.
    validation
        Number of rows at the end of the common order that choose a penalty; without any it is the last one.
    """

    l1_ratio: float = 1.0
    lambdas: int = 50
    smallest: float = 1e-3
    validation: int = 0

    def __post_init__(self) -> None:
        if not (
            0 < self.l1_ratio <= 1 and 0 < self.smallest < 1 and 2 <= self.lambdas <= 1000 and self.validation >= 0
        ):
            raise ModelError(
                f"model.options: l1_ratio = {self.l1_ratio}, smallest = {self.smallest}, lambdas = {self.lambdas} and "
                f"validation = {self.validation} make no path; set l1_ratio to above 0 and at most 1, smallest between "
                "0 and 1, lambdas to 2 to 1000, and validation to a number of rows"
            )


@dataclass(frozen=True, eq=False)
class PathFit:
    """Path of elastic nets of several parties.

    Parameters
    ----------
    design
        Public shape.
    penalties, deviances, validation
        Penalties, deviances of the training rows, and mean deviances of validation rows, NaN without any; public.
    chosen
        Number of the chosen penalty.
    own
        ``own(peer)`` returns the ``coefficients`` ``[L, a]`` of a party, and the ``intercept`` ``[L]`` of the label
        holder; private.
    """

    design: JoinedDesign
    penalties: Floats
    deviances: Floats
    validation: Floats
    chosen: int
    own: Callable[[str], Mapping[str, Floats]]


def fit_path(table: JoinedTable, source: Source, options: PathOptions) -> Questions[PathFit]:
    """Fit linear models under the elastic net penalty of glmnet and scikit-learn, for a whole path of penalties.

    Parameters
    ----------
    table, source, options
        Table of all columns, the source of secret bytes, and the path.
    """
    held, rows, roles = options.validation, table.rows, table.roles
    design = yield from ask_design(replace(table, rows=rows - held))
    whole = replace(design, rows=rows)
    blocks = Blocks(whole, table)
    parts = [slice(0, rows - held), slice(rows - held, rows)][: 2 if held else 1]
    moments = []
    for number, part in enumerate(parts):
        count = part.stop - part.start
        products = products_of(roles, source, count, purpose=f"vertical products of part {number}")
        moments.append((yield from ask_moments(FactoredColumns(blocks, products, part), every=True)))
    solved = cache(lambda: _path([each() for each in moments], options, rows=rows - held))
    received = {}
    for party in roles.parties:
        places = whole.coefficients(party)
        received[party] = yield from send_floats(
            partial(_path_block, solved, places), size=options.lambdas * len(places), sender=roles.solver, to=party
        )
    values = yield from publish(lambda: solved()[1], size=3 * options.lambdas, sender=roles.solver)
    penalties, deviances, validation = values.reshape(3, -1)
    chosen = int(validation.argmin()) if held else options.lambdas - 1

    def own(party: str) -> Mapping[str, Floats]:
        beta = received[party]().reshape(options.lambdas, -1)
        if party != roles.label:
            return {"coefficients": beta}
        *means, middle = blocks.of(party).means.tolist()
        return {"coefficients": beta[:, 1:], "intercept": middle + beta[:, 0] - beta[:, 1:] @ np.array(means[1:])}

    return PathFit(design, penalties, deviances, validation, chosen, own)


def _path(moments: Sequence[Moments], options: PathOptions, *, rows: int) -> tuple[Floats, Floats]:
    """Return the coefficients ``[L, p]`` of a path, and its penalties, deviances and validation deviances ``[3 L]``."""
    train, size = moments[0], moments[0].design.size
    information, score = train.matrix[:size, :size], train.matrix[:size, size]
    beta = np.zeros(size)
    beta[0] = score[0] / information[0, 0]
    largest = float(np.abs(score - information @ beta)[1:].max()) / (rows * options.l1_ratio)
    penalties = largest * np.geomspace(1.0, options.smallest, options.lambdas)
    path, deviances, validation = [], [], []
    for penalty in penalties.tolist():
        first = np.full(size, rows * penalty * options.l1_ratio)
        second = np.full(size, rows * penalty * (1 - options.l1_ratio))
        first[0] = second[0] = 0.0
        beta = descended(information, score - information @ beta, beta, first=first, second=second)
        path.append(beta)
        deviances.append(train.squares(beta))
        held = moments[1:] and moments[1].squares(beta) / (moments[1].design.rows - rows)
        validation.append(held or math.nan)
    return np.array(path), np.concatenate([penalties, deviances, validation])


def _path_block(solved: Callable[[], tuple[Floats, Floats]], places: list[int]) -> Floats:
    return solved()[0][:, places]
