r"""Common rows of several parties in one order, while each party keeps its other rows to itself.

A value x of a key becomes a point of Curve25519, :math:`H(x)`, that depends on the run, on nonces of all parties and on
the name of the key. Each party i has a secret scalar :math:`k_i`. A party shuffles its rows and sends the multiples of
its points round the ring of parties, each of which multiplies them by its own scalar, so that equal values end as equal
pseudonyms,

.. math:: k_h \, k_N \cdots k_1 H(x),

which only the helper knows, who multiplies last. The helper matches them and sends each party the positions of its
common rows, in one random order. Two parties without a helper return their lists to each other, key by key, and match
them themselves. A row without a value has a random point, so that lists show no more than the number of rows.

This holds against peers that follow the protocol and do not collude: the helper and a party together can test guesses,
and a party that enters guessed people learns which of them are in all tables.

References
----------
Meadows, IEEE S&P 1986; Huberman, Franklin and Hogg, EC 1999 (common elements by commuting powers); Buddhavarapu et al.,
Private matching for compute, 2020.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import DataError, PrivacyError
from p2pfl.data.parties import Parties
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.matching import ABSENT, Matches, match_rows
from p2pfl.plugins.vertical.party_roles import check_rows
from p2pfl.plugins.vertical.private_messages import PrivateMessage, send, state, state_several
from p2pfl.privacy.commutative_powers import POINT_LENGTH, hash_to_point, multiply
from p2pfl.privacy.keys import Source

WORD_BYTES = 4
"""Bytes in an integer of a total of all peers."""

POINT_WORDS = POINT_LENGTH // 8
"""Integers of a message that carry a point."""

NONCE_BYTES = 32

MAX_ROWS = 10_000_000
"""Largest number of rows of a party; every other one holds as many points for each key."""

SIZE, AGREED, NONCE = 0, 1, 2
"""Places of the number of rows, of the digest of what is agreed, and of the nonce in what a party states."""

STATED = NONCE + NONCE_BYTES // WORD_BYTES
"""Integers that a party states."""


@dataclass(frozen=True, eq=False)
class AlignedRows:
    """Common rows of all parties in one order.

    Everything but the positions is public.

    Parameters
    ----------
    rows
        Number of rows of the order: with ``rows = "common"`` that of the common rows, with ``"labelled"`` that of the
        label holder's, with ``"hidden"`` that of all people of the two parties.
    common
        Number of the rows that all parties have.
    sizes
        Number of rows of each party.
    matched
        Number of the common rows that each key has found; empty if these numbers are hidden.
    positions
        Function that returns the numbers of a local party's rows in this order, ``[rows]``, with -1 for a row that it
        lacks; private.
    """

    rows: int
    common: int
    sizes: Mapping[str, int]
    matched: tuple[int, ...]
    positions: Callable[[str], Ints] = field(repr=False)


def align(parties: Parties, source: Source, *, run: bytes) -> Questions[AlignedRows]:
    """Ask for the common rows of all parties.

    Parameters
    ----------
    parties
        Roles, keys and tables of the local parties.
    source
        Source of secret bytes.
    run
        Bytes that name the run, so that pseudonyms of two runs are unrelated.

    Raises
    ------
    DataError
        Parties have not agreed on keys or numbers of rows, or they have too few rows in common.
    PrivacyError
        Roles would show more than they should, or a peer does not follow the protocol.
    """
    check_parties(parties)
    return (yield from _Alignment(parties, source, run).ask())


def check_parties(parties: Parties) -> None:
    """Refuse roles for which no alignment hides the rows of others.

    Raises
    ------
    PrivacyError
        A helper is missing.
    """
    listed = ", ".join(parties.names)
    if parties.helper is None and len(parties.names) > 2:
        raise PrivacyError(
            f"{listed} have no helper, so every party would learn the common people of any two others; set "
            "data.options.helper to a peer without rows"
        )
    if parties.rows == "hidden" and (parties.helper is None or len(parties.names) > 2):
        raise PrivacyError(
            f'data.options.rows = "hidden" takes two parties and a helper, but the parties are {listed}, and the '
            f'helper is {parties.helper or "none"}; set it to "common"'
        )


def align_openly(parties: Parties, source: Source) -> AlignedRows:
    """Return what :func:`align` returns with the same source, in a process that has the tables of all parties."""
    check_parties(parties)
    protocol = _Alignment(parties, source, b"")
    sizes = {peer: len(parties.party(peer)) for peer in parties.names}
    matches = match_rows([protocol.shuffled_values(peer) for peer in protocol.matched_order])
    common, by_key = len(matches.common), matches.by_key(len(parties.keys))
    check_rows(common, least=parties.least)
    chosen = protocol.choose(matches)
    columns = dict(zip(protocol.matched_order, chosen.T, strict=True))
    hidden = parties.rows == "hidden"
    return AlignedRows(
        len(chosen), common, sizes, () if hidden else by_key, lambda peer: protocol.unshuffle(peer, columns[peer])
    )


class _Alignment:
    """An alignment of some parties."""

    def __init__(self, parties: Parties, source: Source, run: bytes) -> None:
        self.parties, self.source, self.run = parties, source, run
        self.ring, self.helper = parties.names, parties.helper
        self.matched_order = (parties.label, *(peer for peer in parties.names if peer != parties.label))
        self.secret = cache(self._secret)
        self.order = cache(self._order)
        self.sizes: dict[str, int] = {}
        self.contexts: list[bytes] = []

    def ask(self) -> Questions[AlignedRows]:
        """Return the common rows."""
        yield from self._agree()
        if self.helper is None:
            return (yield from self._match_each_other())
        return (yield from self._match_at_helper(self.helper))

    def _agree(self) -> Questions[None]:
        """Ask for the sizes and nonces of all parties."""

        def stated(peer: str) -> Ints:
            nonce = np.frombuffer(self.secret(peer, "nonce", NONCE_BYTES), "<u4")
            return np.array([len(self.parties.party(peer)), self._digest(), *nonce.tolist()])

        total = yield from state_several(stated, size=STATED, peers=self.ring)
        words = total.reshape(len(self.ring), STATED)
        for peer, own in zip(self.ring, words.tolist(), strict=True):
            self._check_statement(peer, rows=own[SIZE], digest=own[AGREED])
            self.sizes[peer] = own[SIZE]
        nonces = words[:, NONCE:].astype("<u4").tobytes()
        context = hashlib.sha256(b"p2pfl alignment" + hashlib.sha256(self.run).digest() + nonces).digest()
        self.contexts = [hashlib.sha256(context + name.encode()).digest() for name in self.parties.keys]

    def _digest(self) -> int:
        """Return what parties must agree on, as an integer."""
        parties = self.parties
        named = [*parties.names, parties.label, parties.helper, parties.rows, parties.least, *parties.keys]
        return int.from_bytes(hashlib.sha256(repr(named).encode()).digest()[:WORD_BYTES], "little")

    def _check_statement(self, peer: str, *, rows: int, digest: int) -> None:
        if digest != self._digest():
            raise DataError(
                f"{peer} has other keys, roles or limits than the other peers; give all peers the same data.options"
            )
        agreed = self.parties.sizes.get(peer, rows)
        if rows != agreed:
            raise DataError(f"{peer} comes with {rows:,} rows, but {agreed:,} are agreed; ask {peer} for the reason")
        if rows > MAX_ROWS:
            raise DataError(f"{peer} comes with {rows:,} rows, more than {MAX_ROWS:,}; align a part of them")
        if rows < self.parties.least:
            raise DataError(
                f"{peer} has {rows} rows, fewer than data.options.least = {self.parties.least}; collect more rows"
            )

    def _match_at_helper(self, helper: str) -> Questions[AlignedRows]:
        """Return the common rows that the helper finds."""
        keys = range(len(self.contexts))
        lists, _ = yield from self._go_round(keys, lambda peer: np.arange(self.sizes[peer]), self.sizes)
        final = {owner: cache(partial(self._multiplied, helper, message.read)) for owner, message in lists.items()}
        yield from self._check_points({helper: [*final.values()]})
        hidden = self.parties.rows == "hidden"

        @cache
        def matches() -> Matches:
            return match_rows([_tokens(final[peer](), keys=len(keys)) for peer in self.matched_order])

        @cache
        def chosen() -> Ints:
            return self.choose(matches())

        def counts(peer: str) -> Ints:
            del peer
            by_key = [0] * len(keys) if hidden else matches().by_key(len(keys))
            return np.array([len(chosen()), len(matches().common), *by_key])

        rows, common, *by_key = (yield from state_several(counts, size=2 + len(keys), peers=[helper])).tolist()
        self._check_counts(helper, rows, common, by_key)
        check_rows(common, least=self.parties.least)
        messages = {}
        for column, peer in enumerate(self.matched_order):
            messages[peer] = yield from send(partial(_column, chosen, column), size=rows, sender=helper, to=peer)
        yield from self._check_positions(messages, common)
        matched = () if hidden else tuple(by_key)
        return AlignedRows(
            rows, common, self.sizes, matched, lambda peer: self.unshuffle(peer, messages[peer].read(peer))
        )

    def _check_counts(self, helper: str, rows: int, common: int, by_key: Sequence[int]) -> None:
        """Refuse numbers of rows that the tables cannot have."""
        label, both = self.sizes[self.parties.label], sum(self.sizes.values()) - common
        of_order = {"common": common, "labelled": label, "hidden": both}[self.parties.rows]
        matched = 0 if self.parties.rows == "hidden" else common
        possible = 0 <= common <= min(self.sizes.values()) and min(by_key) >= 0
        if not possible or rows != of_order or sum(by_key) != matched:
            raise PrivacyError(
                f"{helper} has counted {rows:,} rows, of which {common:,} are common, which the tables cannot have; "
                "choose another data.options.helper"
            )

    def _match_each_other(self) -> Questions[AlignedRows]:
        """Return the common rows of two parties, who compare, key by key, the rows that no earlier key has matched."""
        pairs: Callable[[str], Ints] = cache(lambda _: np.full(self.sizes[self.parties.label], ABSENT))
        matched = list[int]()
        for key in range(len(self.contexts)):
            counts = {peer: size - sum(matched) for peer, size in self.sizes.items()}
            if not all(counts.values()):
                matched.append(0)
                continue
            lists, multiplied = yield from self._go_round([key], partial(self._open, pairs), counts)
            pairs = cache(partial(self._paired, pairs, lists, multiplied))
            stated = yield from state(partial(_paired_count, pairs), peers=self.ring)
            if stated[0] != stated[1]:
                raise PrivacyError(f"{' and '.join(self.ring)} disagree on the common rows; compare versions")
            matched.append(int(stated[0]) - sum(matched))
        check_rows(sum(matched), least=self.parties.least)
        whole = self.parties.rows == "labelled"

        def positions(peer: str) -> Ints:
            own = pairs(peer)
            kept = np.arange(len(own)) if whole else np.flatnonzero(own != ABSENT)
            return self.unshuffle(peer, kept if peer == self.parties.label else own[kept])

        rows = self.sizes[self.parties.label] if whole else sum(matched)
        return AlignedRows(rows, sum(matched), self.sizes, tuple(matched), positions)

    def _open(self, pairs: Callable[[str], Ints], peer: str, of: str | None = None) -> Ints:
        """Return the shuffled rows without a match that a peer knows of, its own or those ``of`` the other party."""
        own = pairs(peer)  # by row of the label holder
        if (of or peer) == self.parties.label:
            return np.flatnonzero(own == ABSENT)
        return np.setdiff1d(np.arange(self.sizes[of or peer]), own)

    def _paired(
        self,
        before: Callable[[str], Ints],
        lists: Mapping[str, PrivateMessage],
        multiplied: Mapping[str, Callable[[], Ints]],
        peer: str,
    ) -> Ints:
        """Return the row of the other party for each row of the label holder, as a peer finds out."""
        tokens = {owner: lists[owner].read(peer) if owner == peer else multiplied[owner]() for owner in self.ring}
        common = match_rows([_tokens(tokens[owner], keys=1) for owner in self.matched_order]).common
        left, right = (
            self._open(before, peer, owner)[common[:, side]] for side, owner in enumerate(self.matched_order)
        )
        pairs = before(peer).copy()
        pairs[left] = right
        return pairs

    def _go_round(
        self, keys: Sequence[int], rows: Callable[[str], Ints], counts: Mapping[str, int]
    ) -> Questions[tuple[dict[str, PrivateMessage], dict[str, Callable[[], Ints]]]]:
        """Send the list of each party round the ring, and last to the helper, or back to its owner.

        Parameters
        ----------
        keys
            Numbers of keys.
        rows
            Function that returns the rows of a party in its own order, whose values it sends.
        counts
            Number of these rows.

        Returns
        -------
        lists
            By owner, the list with the scalars of all parties, where it has arrived.
        multiplied
            By owner, a function that returns it where it was multiplied last.
        """
        reads: dict[str, Callable[[str], Ints]] = {
            owner: partial(self._own_points, keys=keys, rows=rows) for owner in self.ring
        }
        messages, multiplied = dict[str, PrivateMessage](), dict[str, Callable[[], Ints]]()
        for hop in range(len(self.ring)):
            holders = {owner: self._after(owner, hop) for owner in self.ring}
            multiplied = {
                owner: cache(partial(self._multiplied, holder, reads[owner])) for owner, holder in holders.items()
            }
            yield from self._check_points({holder: [multiplied[owner]] for owner, holder in holders.items()})
            for owner, holder in holders.items():
                last = hop == len(self.ring) - 1 and self.helper is not None
                to = self.helper if last and self.helper is not None else self._after(owner, hop + 1)
                size = counts[owner] * len(keys) * POINT_WORDS
                messages[owner] = yield from send(multiplied[owner], size=size, sender=holder, to=to)
                reads[owner] = messages[owner].read
        return messages, multiplied

    def _after(self, peer: str, steps: int) -> str:
        return self.ring[(self.ring.index(peer) + steps) % len(self.ring)]

    def _own_points(self, peer: str, *, keys: Sequence[int], rows: Callable[[str], Ints]) -> Ints:
        """Return the points of a party's values; those of missing ones are random."""
        chosen, values = rows(peer).tolist(), self.shuffled_values(peer)
        noise = self.secret(peer, f"missing values of the keys {[*keys]}", POINT_LENGTH * len(chosen) * len(keys))
        points = list[bytes]()
        for key in keys:
            for row in chosen:
                value, start = values[key][row], len(points) * POINT_LENGTH
                hashed = noise[start : start + POINT_LENGTH] if value is None else value.encode()
                points.append(hash_to_point(self.contexts[key] + hashed))
        return _words(points)

    def _multiplied(self, holder: str, read: Callable[[str], Ints]) -> Ints:
        """Return points that a peer holds, multiplied by its scalar."""
        return _words(multiply(self.secret(holder, "scalar", POINT_LENGTH), _points(read(holder))))

    def _check_points(self, functions: Mapping[str, Sequence[Callable[[], Ints]]]) -> Questions[None]:
        """Have peers multiply what they hold at the same time, and end the run if somebody holds what is no point."""

        def failures(peer: str) -> int:
            failed = 0
            for function in functions.get(peer, ()):
                try:
                    function()
                except ValueError:
                    failed += 1
            return failed

        yield from self._end_if_any(failures, "no points")

    def _check_positions(self, messages: Mapping[str, PrivateMessage], common: int) -> Questions[None]:
        """End the run if a party has received positions that are none of its rows, one of them twice, or too few."""

        def wrong(peer: str) -> int:
            if peer not in messages:
                return 0
            positions = messages[peer].read(peer)
            every = self.parties.rows == "hidden" or (self.parties.rows == "labelled" and peer == self.parties.label)
            known = positions[positions != ABSENT] if self.parties.rows != "common" else positions
            valid = len(np.unique(known)) == len(known) >= (self.sizes[peer] if every else common)
            return 0 if valid and ((known >= 0) & (known < self.sizes[peer])).all() else 1

        yield from self._end_if_any(wrong, "positions that cannot be those of rows")

    def _end_if_any(self, failures: Callable[[str], int], received: str) -> Questions[None]:
        """End the run at all peers if one of them has received something wrong."""
        peers = [*self.ring, *([] if self.helper is None else [self.helper])]
        if (yield from state(failures, peers=peers)).any():
            raise PrivacyError(
                f"the alignment received {received}; a peer does not follow the protocol, so compare versions"
            )

    def shuffled_values(self, peer: str) -> list[list[str | None]]:
        """Return the values of each key in the shuffled order of a party's rows."""
        order = self.order(peer).tolist()
        return [[column[row] for row in order] for column in self.parties.party(peer).keys]

    def unshuffle(self, peer: str, positions: Ints) -> Ints:
        """Return the numbers of rows at positions in the shuffled order of a party."""
        return np.asarray(np.where(positions == ABSENT, ABSENT, self.order(peer)[positions]))

    def choose(self, matches: Matches) -> Ints:
        """Return the rows of a run, in the random order of the helper if there is one, ``[rows, N]``."""
        rows = {"common": matches.common, "labelled": matches.rows[matches.rows[:, 0] != ABSENT]}
        chosen = rows.get(self.parties.rows, matches.rows)
        if self.helper is None:
            return np.asarray(chosen)
        return np.asarray(chosen[_random_order(self.secret(self.helper, "order", 8 * len(chosen)))])

    def _order(self, peer: str) -> Ints:
        return _random_order(self.secret(peer, "shuffle", 8 * len(self.parties.party(peer))))

    def _secret(self, peer: str, what: str, size: int) -> bytes:
        """Return bytes that are drawn once, since a total may ask again for what a peer adds."""
        return self.source.bytes(size, purpose=f"alignment, {what}", peer=peer)


def _column(chosen: Callable[[], Ints], column: int) -> Ints:
    return np.ascontiguousarray(chosen()[:, column])


def _paired_count(pairs: Callable[[str], Ints], peer: str) -> int:
    return int((pairs(peer) != ABSENT).sum())


def _random_order(secret: bytes) -> Ints:
    return np.asarray(np.argsort(np.frombuffer(secret, np.uint64), kind="stable"))


def _words(points: Sequence[bytes]) -> Ints:
    return np.frombuffer(b"".join(points), "<i8").astype(np.int64)


def _points(words: Ints) -> list[bytes]:
    data = words.astype("<i8").tobytes()
    return [data[start : start + POINT_LENGTH] for start in range(0, len(data), POINT_LENGTH)]


def _tokens(words: Ints, *, keys: int) -> list[list[bytes]]:
    """Return the pseudonyms of each key."""
    points = _points(words)
    rows = len(points) // keys
    return [points[key * rows : (key + 1) * rows] for key in range(keys)]
