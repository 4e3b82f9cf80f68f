"""Statement of who learns what in vertical learning, and of what a malicious peer can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from p2pfl.data.parties import CommonRows
from p2pfl.experiment.partitionings import Disclosure
from p2pfl.plugins.vertical.feature_maps import MapOptions
from p2pfl.plugins.vertical.paillier import MODULUS_BITS
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS
from p2pfl.plugins.vertical.weighted_products import MIN_PEOPLE
from p2pfl.results.formats import size

WORD = 8
"""Bytes of an integer."""

KEY_BYTES = 32
"""Bytes of a pseudonym in a message."""

GUESSED_IDS = "learns who is in the other tables; agree on their sizes, and keep a roster"
"""Words for an attacker who enters guessed people."""


@dataclass(frozen=True, kw_only=True)
class VerticalRun:
    """Public facts of a run from which its statement follows.

    Parameters
    ----------
    label, features, solver
        Label holder, parties without labels, and the peer that solves.
    helper
        Peer without rows; ``None`` for none.
    others
        Names of peers that take no part.
    steps
        Steps in which the label holder sees predictors; 0 of linear models and statistics, which have none.
    noisy
        True if all but the last predictors have noise.
    tested
        True if rows are held out for scores.
    received, published
        The part of a model without steps that a party receives, and the part that every peer learns, in words.
    rows, columns
        Number of rows at most, and of columns of a party on average, as far as the tables at hand tell.
    keys
        Number of keys by which rows are matched.
    joined
        Rows that the model learns from, as of :class:`~p2pfl.data.parties.Parties`.
    maps
        Maps of the columns of parties, as of :mod:`.feature_maps`.
    label_epsilon
        Privacy of each label under randomised response; ``None`` for labels as they are.
    dealt
        True if columns of shared data are dealt out for a trial, so that nothing is secret.
    """

    label: str
    features: tuple[str, ...]
    solver: str
    helper: str | None
    others: tuple[str, ...] = ()
    steps: int = 0
    noisy: bool = True
    tested: bool = True
    received: str = "its own coefficients and their covariance, and its share of the explained variance"
    published: str = "the deviance with and without columns, and the dispersion"
    rows: int
    columns: float
    keys: int
    joined: CommonRows = "common"
    maps: Mapping[str, str] = field(default_factory=dict)
    label_epsilon: float | None = None
    dealt: bool = False

    @property
    def parties(self) -> tuple[str, ...]:
        """Names of those with rows, sorted."""
        return tuple(sorted((self.label, *self.features)))

    @property
    def sums(self) -> str:
        """Predictor of a row that the label holder sees, in words."""
        if len(self.features) == 1:
            return f"the linear predictor of {self.features[0]}"
        return f"the sum of the linear predictors of {listed(self.features)}"

    @property
    def disclosure(self) -> Disclosure:
        """Statement, and what each observer learns."""
        return Disclosure(self._statement(), self._learned() | self._malicious() | {"bytes": self._cost()})

    def _statement(self) -> str:
        rows = "row" if self.steps else "test row" if self.tested and self.joined != "hidden" else ""
        seen = f", and {self.label} sees {self.sums} of each {rows}" if rows else ""
        return (
            f"no row leaves its owner; {self.solver} {self._received_sums()}{seen}{self._labels()}; this holds if "
            f"{self._assumption()}"
        )

    def _labels(self) -> str:
        """Return what protects labels, in words."""
        if self.label_epsilon is None:
            return ""
        if self.dealt:
            return "; labels are changed at random, and guarantee nothing here, because the data are shared"
        return f"; each label of {self.label} has epsilon = {self.label_epsilon:g} against all others"

    def _received_sums(self) -> str:
        """Return what the solver receives, in words."""
        return "receives sums of products of columns"

    def _assumption(self) -> str:
        """Return on what the statement depends."""
        if self.helper is None and len(self.parties) == 2:
            return "both parties follow the protocol and neither breaks the Paillier encryption of the other"
        return (
            "all peers follow the protocol and no two of those who deal, hold and receive the columns of a product "
            "conspire"
        )

    def _learned(self) -> dict[str, str]:
        """Return what peers learn that follow the protocol."""
        own_rows = label_rows = "which of its rows all have"
        if self.joined == "labelled":
            own_rows = f"which of its rows {self.label} has"
            label_rows = f"which of its rows {listed(self.features)} lack, by their predictors"
        elif self.joined == "hidden":
            own_rows = label_rows = "how many people are in both tables; who, only by a search that fits exact figures"
        learned = {f"{self.label}, the label holder": "; ".join([label_rows, *self._of_label()])}
        own = self.received
        if self.steps:
            own = f"its own coefficients at each of {self.steps + 1} points, and at last their covariance"
        for peer in self.features:
            more = [self._solved()] if peer == self.solver else []
            learned[f"{peer}, a feature holder"] = "; ".join([own_rows, own, *more])
        if self.helper is not None:
            matched = "pseudonyms: the sizes of all overlaps, and which keys repeat"
            learned[f"{self.helper}, the helper"] = f"{matched}; {self._solved()}; no row, no name of a column, no id"
        hidden = self.joined == "hidden"
        everybody = "numbers of rows and columns of each party, and of common rows" + ("" if hidden else " by key")
        if self.maps:
            everybody += f"; the maps {listed([f'{peer} {self.maps[peer]}' for peer in sorted(self.maps)])}"
        learned["every peer"] = f"{everybody}; {self.published}"
        broker = "sizes, times and numbers of messages"
        return learned | {"the broker" + (f", {listed(self.others)}" if self.others else ""): broker}

    def _of_label(self) -> list[str]:
        tested = [f"{self.sums} of each test row"] if self.tested else []
        if self.joined == "hidden":
            return [self.received, *(["the scores of test rows"] if self.tested else [])]
        if not self.steps:
            return [self.received, *tested]
        if self.noisy:
            seen = (
                f"{self.sums} of each training row, once exactly and {self.steps - 1} times under noise that shrinks, "
                f"or up to {MAX_PREDICTORS - 1} times where rows are few or steps are slow; anew if the round is "
                "played again"
            )
        else:
            seen = f"{self.sums} of each training row, exactly at {self.steps} steps, from which columns nearly follow"
        return [seen, *tested, "its own coefficients and their covariance"]

    def _solved(self) -> str:
        points = f", and at {self.steps + 1} points weighted products and gradients" if self.steps else ""
        columns = "columns and functions" if self.maps else "columns"
        return f"the products of all pairs of {columns} in units of their owners{points}; all coefficients"

    def _malicious(self) -> dict[str, str]:
        """Return what peers can do that do not follow the protocol."""
        step = ", at each step" if self.steps else ""
        lies = {
            "a party that enters the indicator of one person": (
                f"shows {self.solver} that person's row, exactly: a few people for each of its columns{step}; only a "
                "contract and the bound on steps answer this"
            )
        }
        if self.joined == "hidden":
            lies["a party with a column that is 1 for one of its people"] = (
                "reads whether they are in the other table, of one of them for each of its columns: the column has no "
                "coefficient if they are not"
            )
        if self.steps:
            noise = ", but the last, under noise of at least 30 % of what changes in them" if self.noisy else ""
            lies[f"{self.label}, if it sends crafted residuals"] = (
                f"chooses what the next predictors are{noise}; nobody shows more than {MAX_PREDICTORS} predictors of a "
                "row in a fit, and a process begins two fits at most"
            )
            lies[f"{self.solver}, if it sends crafted coefficients"] = (
                f"chooses whose rows count most in sums: {self.label} sends none in which one person has more than "
                f"1/{MIN_PEOPLE} of all weights, but two such sums may differ in one person"
            )
            if self.noisy:
                lies["a peer that asks for less noise, or alters published numbers"] = (
                    "gains nothing: each owner bounds its noise by the schedule and its own predictors, and whoever "
                    "published a number ends the run if all receive another one"
                )
        if self.helper is not None:
            lies[f"{self.helper}, if it deals wrong numbers"] = (
                f"makes the model wrong and learns nothing more; a check by {self.label} finds faults, but no "
                "deliberate ones"
            )
            lies[f"{self.helper} and a party, if they conspire"] = "read the columns that were multiplied with theirs"
        elif len(self.parties) == 2:
            lies["a party that encrypts more than its columns, or under a key that was made to read"] = (
                "reads nothing: noise of the other party fills all that can be encrypted, and a certificate shows that "
                "the key hides the rest"
            )
        lies["anybody with guessed ids"] = GUESSED_IDS
        return lies

    def _width(self) -> float:
        """Return the number of columns, or of functions, of a party on average."""
        widths = []
        for peer in self.parties:
            options = MapOptions.parse(self.maps[peer]) if peer in self.maps else None
            if options is None or options.kind == "spline":
                widths.append(self.columns * (1 if options is None else options.functions - 1))
            else:
                widths.append(options.functions)
        return sum(widths) / len(widths)

    def _cost(self) -> str:
        """Return the bytes and steps of a party, as the formulae of its messages give them."""
        rows, own = self.rows, self._width()
        rest = own * (len(self.parties) - 1)
        once = 2 * WORD * rows * (own + rest)
        if self.steps:
            once = WORD * rows * (3 * own + 2 * rest) + self.steps * WORD * rows * (3 + 2 * own + rest)
        if self.joined == "hidden":
            once += WORD * rows * own * (own + 1)  # products of pairs of columns of both parties
        aligned = self.keys * KEY_BYTES * rows * (len(self.parties) + 1)
        steps = f", {self.steps} steps" if self.steps else ""
        return (
            f"about {size(int(aligned))} to align and {size(int(once))} to fit{steps}, if {rows:,} rows are common and "
            f"a party has {own:.0f} columns{' or functions' if self.maps else ''}"
        )


class DescentRun(VerticalRun):
    """Public facts of a run of the protocol of Yang et al.: gradient descent, in which the helper has the key."""

    def _received_sums(self) -> str:
        return "decrypts masked gradients and the loss of each step"

    def _assumption(self) -> str:
        return f"all peers follow the protocol and {self.solver}, who has the key, conspires with neither party"

    def _solved(self) -> str:
        return "the loss at each step, and gradients under masks of their owners"

    def _malicious(self) -> dict[str, str]:
        lies = {
            f"{peer}, if it enters the indicator of one person": (
                f"reads {what} in its gradient, exactly, of as many people as it has columns; only a contract answers "
                "this"
            )
            for peer, what in (
                (self.features[0], "that person's target less the mean of all, and later their residual"),
                (self.label, f"the linear predictor of {self.features[0]} for that person at each step"),
            )
        }
        lies[f"{self.solver} and a party, if they conspire"] = (
            "read the predictors and residuals that the other party encrypts, at each step, from which columns follow"
        )
        return lies | {"anybody with guessed ids": GUESSED_IDS}

    def _cost(self) -> str:
        encrypted = 2 * MODULUS_BITS // 8
        aligned = self.keys * KEY_BYTES * self.rows * (len(self.parties) + 1)
        return (
            f"about {size(int(aligned))} to align and {size(2 * encrypted * self.rows)} for each step, of which there "
            f"are hundreds, if {self.rows:,} rows are common"
        )


class KernelRun(VerticalRun):
    """Public facts of a run in which the label holder receives sums of distances."""

    def _statement(self) -> str:
        return (
            f"no row leaves its owner; {self.label} receives the sums of the squared distances of "
            f"{listed(self.features)} between all pairs of rows, and can compute the columns of everybody if it knows "
            "those of as many people as the others have columns, and of one more; this holds if all peers follow the "
            "protocol"
        )

    def _learned(self) -> dict[str, str]:
        learned = super(KernelRun, replace(self, steps=0))._learned()
        seen = f"sums of the squared distances of {listed(self.features)} between all pairs of rows"
        own_rows = learned[f"{self.label}, the label holder"].partition("; ")[0]
        learned[f"{self.label}, the label holder"] = (
            f"{own_rows}; {seen}: with as many known people as the others have columns, and one more, the columns of "
            "everybody in units of their deviations"
        )
        return learned

    def _solved(self) -> str:
        return "nothing of the model"

    def _malicious(self) -> dict[str, str]:
        return {
            f"{self.label} and a party, if they conspire": "read the distances of the others alone",
            "a party that enters other distances": (
                f"makes the model wrong and learns nothing; {self.label} ends the run at numbers out of range, "
                "and cannot notice others"
            ),
            "anybody with guessed ids": GUESSED_IDS,
        }

    def _cost(self) -> str:
        aligned = self.keys * KEY_BYTES * self.rows * (len(self.parties) + 1)
        pairs = WORD * self.rows * (self.rows + 1) // 2
        return f"about {size(int(aligned))} to align and {size(pairs)} of distances, if {self.rows:,} rows are common"


def listed(names: Sequence[str]) -> str:
    """Return names in words.

    Examples
    --------
    >>> listed(["ada", "bob", "eve"])
    'ada, bob and eve'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
