"""Evidence of one peer, read round by round, so that memory has the places of its rounds alone."""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from p2pfl.core.errors import InputError
from p2pfl.core.files import read_bounded
from p2pfl.privacy.keys import KEY_BYTES
from p2pfl.results.evidence import (
    KEY_SUFFIX,
    SUFFIX,
    EvidenceEntry,
    Fact,
    PeerBegan,
    PeerEnded,
    RoundPlayed,
    RowSent,
    chain_files,
    decode_entry,
    read_chain,
    read_entries,
)

SENT, PLAYED = 1, 2
"""Flags of what is in a stretch of a chain."""


class PeerEvidence:
    """Evidence of one peer.

    A stretch is a part of a file whose entries are of one round; a round that was played without a break is one.

    Parameters
    ----------
    path
        First file of its chain.

    Raises
    ------
    InputError
        A file cannot be read, or there are no entries.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.peer = path, path.name.removesuffix(SUFFIX)
        self.files = tuple(chain_files(path) or [path])
        self.count = 0
        self.beginnings: list[PeerBegan] = []
        """Statements of the peer at its beginning, and after each restart."""
        self._began_before: list[int] = []  # number of stretches before each beginning
        self._stretches = tuple(array("q") for _ in range(5))  # round, file, start, end, flags
        last: Fact | None = None
        for number, file in enumerate(self.files):
            new = True
            for start, line, entry in read_entries(file):
                last = entry.fact
                new = not self._index(last, number, start, start + len(line), new=new)
                self.count += 1
        if last is None:
            raise InputError(f"{path} has no entries; ask its peer for the whole file")
        self.ended = last if isinstance(last, PeerEnded) else None
        """End of the peer; ``None`` if it has not ended."""
        self._rounds, *self._places, flags = (np.frombuffer(each, np.int64) for each in self._stretches)
        self._order = np.argsort(self._rounds, kind="stable")
        self._sorted = self._rounds[self._order]
        self.sent_rounds = np.unique(self._rounds[flags & SENT > 0])
        """Rounds of which it sent a row, ascending."""
        self.played = PlayedRounds(self, np.unique(self._rounds[flags & PLAYED > 0]))
        """Rounds that it played; of a round that was played again after a restart, the last."""
        before = self._began_before[-1] if self._began_before else 0
        begun = np.unique(self._rounds[:before][flags[:before] & SENT > 0])
        self.interrupted = {*np.setdiff1d(begun, self.played.rounds).tolist()}
        """Rounds in which the peer was stopped, by its own account, and which it did not play later."""
        self._recent: tuple[int, list[Fact]] | None = None

    def _index(self, fact: Fact, file: int, start: int, end: int, *, new: bool) -> bool:
        """Note where an entry is; return whether the next one may be of its stretch."""
        rounds, files, starts, ends, flags = self._stretches
        if isinstance(fact, PeerBegan):
            self.beginnings.append(fact)
            self._began_before.append(len(rounds))
        if not isinstance(fact, RowSent | RoundPlayed):
            return False
        if new or rounds[-1] != fact.round:
            try:
                rounds.append(fact.round)
            except OverflowError:
                raise InputError(f"{self.files[file]} has a round {fact.round}, which no run has") from None
            for column, value in ((files, file), (starts, start), (ends, end), (flags, 0)):
                column.append(value)
        ends[-1] = end
        flags[-1] |= SENT if isinstance(fact, RowSent) else PLAYED
        return True

    @property
    def folder(self) -> Path:
        """Run directory of the chain."""
        return self.path.parent.parent

    @property
    def model(self) -> Path:
        """File of the model of the peer, which may be absent."""
        return self.path.with_name(f"{self.peer}.safetensors")

    @property
    def key(self) -> bytes | None:
        """Key of the digests of the parameters; ``None`` where these are public, or the key stayed with its owner."""
        path = self.path.with_name(f"{self.peer}{KEY_SUFFIX}")
        return read_bounded(path, largest=KEY_BYTES) if not self.public and path.is_file() else None

    @property
    def public(self) -> bool:
        """True if the parameters follow from public totals, by the account of the peer."""
        return all(began.public for began in self.beginnings)

    @property
    def opens_model(self) -> bool:
        """True if the file of the model can be compared with the evidence."""
        return self.ended is not None and self.model.is_file() and (self.public or self.key is not None)

    @property
    def last(self) -> int:
        """Last round that it played; -1 if there is none."""
        return int(self.played.rounds[-1]) if len(self.played.rounds) else -1

    def entries(self) -> Iterator[tuple[bytes, EvidenceEntry]]:
        """Yield the lines and the entries in them, read again."""
        return read_chain(self.path)

    def facts(self, round: int) -> list[Fact]:
        """Return what the chain has of a round, in its order."""
        if self._recent is None or self._recent[0] != round:
            first, after = (np.searchsorted(self._sorted, round, side) for side in ("left", "right"))
            self._recent = (round, [fact for each in self._order[first:after] for fact in self._read(int(each))])
        return self._recent[1]

    def _read(self, stretch: int) -> Iterator[Fact]:
        number, start, end = (int(each[stretch]) for each in self._places)
        with self.files[number].open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
        for line in data.split(b"\n"):
            yield decode_entry(line, str(self.files[number])).fact

    def sent(self, round: int) -> Mapping[int, set[str]]:
        """Return digests of the rows of a round by gossip step; an interrupted round was sent several times."""
        rows: dict[int, set[str]] = defaultdict(set)
        for fact in self.facts(round):
            if isinstance(fact, RowSent):
                rows[fact.step].add(fact.row)
        return rows

    def gaps(self, confirmed: Collection[int]) -> list[range]:
        """Return the rounds of which a peer has no evidence if it went on from an older copy of its files.

        Each gap lies between what the peer has before a restart, and the first round after it.

        Parameters
        ----------
        confirmed
            Incarnations that others have seen: a restart that nobody saw was written into the chain later.
        """
        again = zip(self.beginnings[1:], self._began_before[1:], strict=True)
        places = sorted({place for began, place in again if began.incarnation in confirmed})
        gaps = list[range]()
        for place in places:
            last = int(self._rounds[place - 1]) if place else -1
            if place < len(self._rounds):
                gaps.append(range(last + (last in self.played), int(self._rounds[place])))
            else:
                gaps.append(range(last + 1, sys.maxsize))
        return gaps


class PlayedRounds(Mapping[int, RoundPlayed]):
    """Rounds that a peer played, ascending, each read when it is asked for.

    Parameters
    ----------
    own
        Evidence of the peer.
    rounds
        Numbers of the rounds, ascending.
    """

    def __init__(self, own: PeerEvidence, rounds: NDArray[np.int64]) -> None:
        self.rounds, self._own = rounds, own

    def __getitem__(self, round: int) -> RoundPlayed:
        if round not in self:
            raise KeyError(round)
        return [fact for fact in self._own.facts(round) if isinstance(fact, RoundPlayed)][-1]

    def __contains__(self, round: object) -> bool:
        place = np.searchsorted(self.rounds, round) if isinstance(round, int) else len(self.rounds)
        return bool(place < len(self.rounds) and self.rounds[place] == round)

    def __iter__(self) -> Iterator[int]:
        return map(int, self.rounds)

    def __len__(self) -> int:
        return len(self.rounds)
