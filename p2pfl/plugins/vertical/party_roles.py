"""Roles in vertical learning, and limits that are checked before anything leaves a peer."""

from __future__ import annotations

from dataclasses import dataclass

from p2pfl.core.errors import DataError, InputError, LearningError, PrivacyError

LEAST_ROWS = 50
"""Least number of common rows."""

LEAST_COLUMNS = 2
"""Least number of columns of a party without labels: predictions show a single one up to a factor."""

ROWS_PER_COEFFICIENT = 10
"""Least number of rows for each coefficient of all parties; products meet columns that a party knows."""

MAX_PREDICTORS = 14
"""Most linear predictors that the label holder may see of a row, over all runs."""

MAX_FITS = 2
"""Most fits that a process begins in a round: one is played again if a peer was lost, which it may be on purpose."""


@dataclass(frozen=True)
class PartyRoles:
    """Roles of peers; public.

    Parameters
    ----------
    parties
        Names of those with columns or labels; kept sorted.
    label
        The party that holds the labels.
    helper
        Peer without rows that deals random numbers and solves; ``None`` for none. Two parties alone encrypt instead.

    Raises
    ------
    InputError
        There are fewer than two parties, the label holder is none, or the helper is one.

    Examples
    --------
    >>> roles = PartyRoles(("bob", "ada"), label="bob", helper="cleo")
    >>> roles.features, roles.solver, roles.dealer("ada", "bob")
    (('ada',), 'cleo', 'cleo')
    """

    parties: tuple[str, ...]
    label: str
    helper: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parties", tuple(sorted(self.parties)))
        listed = ", ".join(self.parties)
        if len({*self.parties}) < max(2, len(self.parties)):
            raise InputError(
                f"the parties are {listed or 'none'}, but vertical learning takes at least two different ones; name "
                "peers that hold different columns of the same people"
            )
        if self.label not in self.parties:
            raise InputError(
                f"the label holder {self.label} is none of the parties {listed}; set data.options.label to one of them"
            )
        if self.helper in self.parties:
            raise InputError(
                f"the helper {self.helper} holds columns or labels, so it would learn what it hides from others; set "
                "data.options.helper to a peer without rows"
            )

    @property
    def features(self) -> tuple[str, ...]:
        """Parties without labels."""
        return tuple(party for party in self.parties if party != self.label)

    @property
    def peers(self) -> tuple[str, ...]:
        """All who take part, sorted."""
        return tuple(sorted({*self.parties, *([self.helper] if self.helper else [])}))

    @property
    def solver(self) -> str:
        """Peer that receives sums of products and solves; never the label holder, who sees predictors."""
        return self.helper or self.features[0]

    @property
    def dealt(self) -> bool:
        """True if a third peer can deal the random numbers of each product."""
        return self.helper is not None or len(self.parties) > 2

    def dealer(self, one: str, other: str) -> str:
        """Return the peer that deals random numbers for a product of two parties."""
        return self.helper or next(party for party in self.parties if party not in {one, other})

    def check_columns(self, peer: str, columns: int, *, alone_column: bool = False) -> None:
        """Refuse a party whose columns would follow from predictions; called at this party.

        Parameters
        ----------
        peer, columns
            A party and its number of columns.
        alone_column
            True if the party accepts it.

        Raises
        ------
        DataError
            It has too few columns.
        """
        if peer == self.label or alone_column or columns >= LEAST_COLUMNS:
            return
        raise DataError(
            f"{peer} has fewer than {LEAST_COLUMNS} encoded columns, so {self.label} could compute them from "
            f"predictions; add columns, or set model.options.alone_column = true if {peer} agrees"
        )


def check_rows(rows: int, *, least: int = LEAST_ROWS) -> None:
    """Refuse too few common rows.

    Raises
    ------
    DataError
        There are fewer than the least number.
    """
    if rows < least:
        raise DataError(
            f"the tables have {rows} rows in common, fewer than data.options.least = {least}, so sums would be close "
            "to single people; check that all tables write their keys in the declared forms, or collect more rows"
        )


def check_coefficients(coefficients: int, rows: int) -> None:
    """Refuse more coefficients of all parties than a tenth of the rows.

    Raises
    ------
    LearningError
        There are too many.
    """
    if coefficients * ROWS_PER_COEFFICIENT > rows:
        raise LearningError(
            f"{coefficients} coefficients of all parties for {rows} rows are more than one for "
            f"{ROWS_PER_COEFFICIENT} rows, so the sums would be close to the data; use fewer columns or more rows"
        )


def check_fits(begun: int, *, of: str) -> None:
    """Refuse a fit after those that a process may begin.

    Parameters
    ----------
    begun
        Number of fits that it has begun, with this one.
    of
        What they fit, in words.

    Raises
    ------
    PrivacyError
        They are more than :data:`MAX_FITS`.
    """
    if begun > MAX_FITS:
        raise PrivacyError(
            f"a peer was lost in {MAX_FITS} fits of {of}, and each further one would show more of the columns; find "
            "out why, and start the run again at all peers"
        )
