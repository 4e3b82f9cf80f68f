"""Check of a run by its evidence, without the data: signatures, chains, and whether peers agree with each other."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from p2pfl.core.errors import InputError, PeerError, StorageError
from p2pfl.core.files import read_bounded
from p2pfl.experiment.file.reading import KEPT, read_kept
from p2pfl.experiment.swarm_change import order_of
from p2pfl.privacy.keys import KEY_BYTES, Roster, key_text
from p2pfl.results.evidence import (
    FIRST,
    KEY_SUFFIX,
    SUFFIX,
    EvidenceEntry,
    PeerBegan,
    PeerEnded,
    RoundPlayed,
    RowSent,
    TotalTaken,
    line_digest,
    read_chain,
    tensors_digest,
)

Value = TypeVar("Value", bound=Hashable)

AGREED = {
    "swarm": "another run",
    "experiment": "another experiment",
    "statement": "another privacy statement",
    "code": "other code",
    "roster": "another roster",
    "charge": "another charge a round",
    "change": "another change of the swarm",
    "grows": "another word on whether data are read again",
}
"""Facts that all peers of a run state alike when they begin, and a phrase for a peer that differs."""


class Difference(msgspec.Struct, frozen=True, order=True):
    """Something in the evidence that an honest run does not have.

    Attributes
    ----------
    peer, round
        Whose evidence, empty for a file that nobody has signed, and of which round; -1 for the run as a whole.
    sentence
        What differs.
    """

    peer: str
    round: int
    sentence: str

    def __str__(self) -> str:
        round = "" if self.round < 0 else f", round {self.round}"
        return f"{self.peer}{round}: {self.sentence}" if self.peer else self.sentence


@dataclass(frozen=True, eq=False)
class PeerEvidence:
    """Evidence of one peer.

    Parameters
    ----------
    peer, path
        Its name, and the file of its chain.
    lines, entries
        Lines of the chain, and the entries in them.
    """

    peer: str
    path: Path
    lines: Sequence[bytes]
    entries: Sequence[EvidenceEntry]

    @classmethod
    def read(cls, path: Path) -> PeerEvidence:
        """Return the evidence in a file.

        Raises
        ------
        InputError
            The file cannot be read, or has no entries.
        """
        chain = read_chain(path)
        if not chain:
            raise InputError(f"{path} has no entries; ask its peer for the whole file")
        return cls(path.name.removesuffix(SUFFIX), path, *map(tuple, zip(*chain, strict=True)))

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
    def beginnings(self) -> list[PeerBegan]:
        """Statements of the peer at its beginning, and after each restart."""
        return [each.fact for each in self.entries if isinstance(each.fact, PeerBegan)]

    @property
    def played(self) -> dict[int, RoundPlayed]:
        """Rounds that it played; of a round that was played again after a restart, the last."""
        return {each.fact.round: each.fact for each in self.entries if isinstance(each.fact, RoundPlayed)}

    @property
    def sent(self) -> dict[tuple[int, int], set[str]]:
        """Digests of the rows that it sent, by round and gossip step; an interrupted round was sent several times."""
        rows: dict[tuple[int, int], set[str]] = defaultdict(set)
        for entry in self.entries:
            if isinstance(entry.fact, RowSent):
                rows[entry.fact.round, entry.fact.step].add(entry.fact.row)
        return rows

    @property
    def interrupted(self) -> set[int]:
        """Rounds in which the peer was stopped, by its own account, and which it did not play later."""
        rounds, begun = set[int](), set[int]()
        for entry in self.entries:
            if isinstance(entry.fact, RowSent):
                begun.add(entry.fact.round)
            elif isinstance(entry.fact, PeerBegan):
                rounds |= begun
        return rounds - {*self.played}

    def gaps(self, confirmed: Collection[int]) -> list[range]:
        """Return the rounds of which a peer has no evidence if it went on from an older copy of its files.

        Each gap lies between what the peer has before a restart, and the first round after it.

        Parameters
        ----------
        confirmed
            Incarnations that others have seen: a restart that nobody saw was written into the chain later.
        """
        gaps, played, last, restarted = list[range](), self.played, -1, False
        for entry in self.entries:
            if isinstance(entry.fact, RowSent | RoundPlayed):
                if restarted:
                    gaps.append(range(last + (last in played), entry.fact.round))
                last, restarted = entry.fact.round, False
            elif isinstance(entry.fact, PeerBegan):
                restarted |= entry.number > 0 and entry.fact.incarnation in confirmed
        return [*gaps, range(last + 1, sys.maxsize)] if restarted else gaps

    @property
    def ended(self) -> PeerEnded | None:
        """End of the peer; ``None`` if it has not ended."""
        last = self.entries[-1].fact
        return last if isinstance(last, PeerEnded) else None


@dataclass(frozen=True)
class Verification:
    """Result of a check.

    Parameters
    ----------
    peers, rounds
        Peers whose evidence was given, and the largest number of rounds that one has played.
    findings
        What an honest run does not have, by peer and round.
    checked
        What was checked, in phrases.
    open
        What could not be checked, and why.
    """

    peers: tuple[str, ...]
    rounds: int
    findings: tuple[Difference, ...]
    checked: tuple[str, ...]
    open: tuple[str, ...]


Recompute = Callable[[Sequence[PeerEvidence]], tuple[list[Difference], list[str], list[str]]]
"""Function that computes again what follows from settings and public numbers; it returns differences, what it computed,
and what it could not."""


def find_chains(bundles: Sequence[Path]) -> list[PeerEvidence]:
    """Return the evidence in run directories, of each peer once.

    Parameters
    ----------
    bundles
        Run directories, or chains themselves.

    Raises
    ------
    InputError
        A directory has no evidence, or two have different evidence of one peer.
    """
    chains: dict[str, PeerEvidence] = {}
    for bundle in bundles:
        paths = [bundle] if bundle.is_file() else sorted((bundle / "peers").glob(f"*{SUFFIX}"))
        if not paths:
            raise InputError(f"{bundle} has no evidence; name the run directory of live peers")
        for path in paths:
            own = PeerEvidence.read(path)
            other = chains.setdefault(own.peer, own)
            longer, shorter = sorted((own, other), key=lambda each: -len(each.lines))
            if longer.lines[: len(shorter.lines)] != shorter.lines:
                raise InputError(
                    f"there are two different chains of {own.peer}, in {other.folder} and {own.folder}: it has played "
                    "twice, or one was changed; verify each with the others alone"
                )
            chains[own.peer] = longer
    return [chains[peer] for peer in sorted(chains)]


def verify(
    chains: Sequence[PeerEvidence], *, roster: Roster | None = None, recompute: Recompute | None = None
) -> Verification:
    """Check the evidence of some or all peers of a run.

    Parameters
    ----------
    chains
        Evidence of each peer.
    roster
        Public keys of all peers; without it, a key is only held to be the same throughout a chain.
    recompute
        Computes again what follows from the settings; ``None`` without them.
    """
    findings = [finding for own in chains for finding in _chain(own, roster)]
    findings += _agreement(chains)
    findings += [finding for own in chains for finding in _changes(own, roster)]
    findings += [finding for own in chains for finding in _rounds(own)]
    rows, gaps = [*_rows(chains), *_participations(chains)], _gaps(chains)
    missing = {each for each in rows if any(each.round in gap for gap in gaps[each.peer])}
    findings += [each for each in rows if each not in missing]
    findings += _totals(chains)
    findings += _charges(chains)
    findings += [finding for own in chains for finding in _model(own)]
    rounds_played = [played for own in chains for played in own.played.values()]
    noted = {
        "what peers sent and received": any(played.received for played in rounds_played),
        "totals": any(played.totals for played in rounds_played),
        "change of the swarm": any(began.change for own in chains for began in own.beginnings),
        "charges": any(played.spent is not None for played in rounds_played),
        "model files": any(own.opens_model for own in chains),
    }
    checked = ["chains and signatures", *(name for name, there in noted.items() if there)]
    unchecked = list[str]()
    if not noted["what peers sent and received"] and not noted["totals"]:
        unchecked.append("the evidence has neither rows nor totals, as with secure sums and peers that do not wait")
    if recompute is not None:
        differences, computed, uncomputed = recompute(chains)
        findings, checked, unchecked = findings + differences, checked + computed, unchecked + uncomputed
    if roster is None:
        unchecked.append("no roster was given, so that nobody knows whose keys these are")
    named = {peer for own in chains for played in own.played.values() for peer in _named(played)}
    unchecked += [
        f"{own.peer} was stopped in round {round}, by its own account, and others went on without it"
        for own in chains
        for round in sorted(own.interrupted)
        if round < max(own.played, default=-1)
    ]
    unchecked += [
        f"the evidence of {own.peer} stops after {1 + max(own.played, default=-1)} rounds, without an end"
        for own in chains
        if own.ended is None
    ]
    closed = [own.peer for own in chains if own.ended is not None and own.model.is_file() and not own.opens_model]
    if closed:
        unchecked.append(f"the models of {', '.join(closed)} need the keys of their owners, NAME{KEY_SUFFIX}")
    for peer in sorted({each.peer for each in missing}):
        rounds = sorted({each.round for each in missing if each.peer == peer})
        unchecked.append(
            f"{peer} went on from an older copy of its files, so it has no evidence of rounds {rounds[0]} to "
            f"{rounds[-1]}, in which others received its rows or totals"
        )
    unchecked += _notes(chains)
    if absent := sorted(named - {own.peer for own in chains}):
        unchecked.append(f"the evidence of {', '.join(absent)} was not given")
    listed = {*(roster.peers if roster is not None else ())}
    if unnamed := sorted(listed - named - {own.peer for own in chains}):
        unchecked.append(
            f"whether {', '.join(unnamed)} of the roster took part: no evidence given is theirs or names them"
        )
    count = max((1 + max(own.played, default=-1) for own in chains), default=0)
    peers = tuple(own.peer for own in chains)
    return Verification(peers, count, tuple(sorted({*findings})), tuple(checked), tuple(unchecked))


def _notes(chains: Sequence[PeerEvidence]) -> Iterator[str]:
    """Yield what an honest run may show and an attacker may pretend: lost rows, restarts, other libraries."""
    by_peer = {own.peer: own for own in chains}
    for own in chains:
        if any(began.grows for began in own.beginnings) and len({began.data for began in own.beginnings}) > 1:
            yield f"{own.peer} began again with other data, which data.refresh permits"
        known = {began.incarnation for began in own.beginnings}
        for other in chains:
            rounds = sorted(
                round
                for round, played in own.played.items()
                if other.peer in played.incarnations and (round, 0) in other.sent and other.peer not in played.received
            )
            if rounds and any(played.received for played in own.played.values()):
                listed = ", ".join(map(str, rounds))
                yield f"{own.peer} has no row of {other.peer} in round {listed}, which {other.peer} sent"
            seen = {played.incarnations.get(own.peer) for played in other.played.values()} - {None}
            if seen - known:
                yield f"{other.peer} has seen a start of {own.peer} that the evidence of {own.peer} does not have"
    for name in ("torch", "numpy"):
        versions = {
            peer: sorted({began.versions.get(name, "") for began in own.beginnings}) for peer, own in by_peer.items()
        }
        if len({*map(tuple, versions.values())}) > 1:
            listed = ", ".join(f"{' and '.join(each)} at {peer}" for peer, each in versions.items())
            yield f"peers had other versions of {name}, with which sums round differently: {listed}"


def _named(played: RoundPlayed) -> set[str]:
    return {*played.received} | {peer for total in played.totals for peer in total.participants}


def _chain(own: PeerEvidence, roster: Roster | None) -> Iterator[Difference]:
    """Yield breaks of a chain, and entries that its peer has not signed."""
    before, key, data, round = FIRST, "", None, -1
    known = None if roster is None else roster.peers.get(own.peer)
    for number, (line, entry) in enumerate(zip(own.lines, own.entries, strict=True)):
        fact = entry.fact
        round = fact.round if isinstance(fact, RowSent | RoundPlayed) else round
        if (entry.number, entry.before) != (number, before):
            yield Difference(own.peer, round, f"the chain breaks at entry {number}: one was removed, added or changed")
        before = line_digest(line)
        if number == 0 and not isinstance(fact, PeerBegan):
            yield Difference(own.peer, round, "the chain does not start with its beginning")
        if isinstance(fact, PeerBegan):
            yield from _beginning(own, fact, roster)
            if known is None and fact.roster and key and fact.key != key:
                yield Difference(own.peer, round, "the key is another one after a restart")
            if data is not None and fact.data != data and not fact.grows:
                yield Difference(own.peer, round, "the data are others after a restart")
            key, data = fact.key, fact.data
        if not key or not entry.signed_by(key, line=line):
            yield Difference(own.peer, round, f"entry {number} is not signed by its peer")


def _beginning(own: PeerEvidence, began: PeerBegan, roster: Roster | None) -> Iterator[Difference]:
    """Yield a beginning of another peer than the file says, or with another key than the roster has."""
    if began.peer != own.peer:
        yield Difference(own.peer, -1, f"the chain is that of {began.peer}")
    if roster is not None and own.peer not in roster.peers:
        yield Difference(own.peer, -1, "the roster has no key of it")
    elif roster is not None and began.key != key_text(roster.peers[own.peer]):
        yield Difference(own.peer, -1, "the key is not that of the roster")


def _agreement(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield peers that began with something else than most."""
    for name, phrase in AGREED.items():
        stated = {own.peer: {_plain(getattr(began, name)) for began in own.beginnings} for own in chains}
        yield from _minority(stated, phrase, round=-1)
    versions = {own.peer: {began.versions.get("p2pfl", "") for began in own.beginnings} for own in chains}
    yield from _minority(versions, "another version of p2pfl", round=-1)


def _changes(own: PeerEvidence, roster: Roster | None) -> Iterator[Difference]:
    """Yield that the order at hand is not the one by which a run began, or that the operator has not signed it."""
    file = own.folder / KEPT
    if not file.is_file() or not any(began.change for began in own.beginnings):
        return
    try:
        order = order_of(read_kept(file, whole=False))
        if order is None:
            return  # it stayed in the folder of the run before
        change = order.change
        if {began.change for began in own.beginnings} != {change.digest.hex()}:
            yield Difference(own.peer, -1, "the order of the operator is not that by which the run began")
        elif roster is not None:
            change.check(roster.operator, swarm=own.beginnings[0].swarm, run=None)
    except (PeerError, StorageError) as error:
        yield Difference(own.peer, -1, f"the order by which the run began is not valid ({error})")


def _plain(value: object) -> Hashable:
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else str(value)


def _minority(values: Mapping[str, set[Value]], phrase: str, *, round: int) -> Iterator[Difference]:
    """Yield the peers with a value that most do not have; all where no value has a majority."""
    counts = Counter(value for own in values.values() for value in own)
    if len(counts) < 2:
        return
    (common, first), (_, second) = counts.most_common(2)
    for peer, own in values.items():
        if own != {common}:
            yield Difference(peer, round, f"it has {phrase} than the others")
        elif first == second:
            yield Difference(peer, round, f"peers differ: it has {phrase} than some, and there is no majority")


def _rounds(own: PeerEvidence) -> Iterator[Difference]:
    """Yield rounds that are missing, or come twice or in another order without a restart, and a wrong end."""
    played, last = sorted(own.played), -1
    for fact in (entry.fact for entry in own.entries):
        if isinstance(fact, RoundPlayed):
            if fact.round <= last:
                yield Difference(own.peer, fact.round, f"it played the round after round {last}, without a restart")
            last = fact.round
        elif isinstance(fact, PeerBegan):
            last = -1
    for before, after in pairwise(played):
        rows = {round for round, _ in own.sent if before < round < after}
        for round in sorted(rows - own.interrupted):
            yield Difference(own.peer, round, "it sent its row, and the round is not in its evidence")
    last = max(played, default=-1)
    if own.ended is not None and own.ended.rounds != 1 + last:
        yield Difference(own.peer, -1, f"it ends after {own.ended.rounds} rounds, and has played up to {last}")


def _rows(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield rows of which receivers say something else than senders."""
    evidence = {own.peer: (own.sent, {*own.played} | own.interrupted) for own in chains}
    for own in chains:
        for played in own.played.values():
            for sender, rows in played.received.items():
                if sender not in evidence:
                    continue
                sent, theirs = evidence[sender]
                for gossip_step, row in rows.items():
                    round, step = map(int, gossip_step.split("."))
                    signed = sent.get((round, step), set())
                    if not signed:
                        yield Difference(sender, round, f"{own.peer} received its row, which is not in its evidence")
                    elif row not in signed:
                        yield Difference(
                            sender, round, f"it says that it sent another row than {own.peer} says that it received"
                        )
                    elif round not in theirs and round < max(theirs, default=-1):
                        yield Difference(
                            sender, round, f"{own.peer} received its row, and the round is not in its evidence"
                        )


def _gaps(chains: Sequence[PeerEvidence]) -> dict[str, list[range]]:
    """Return by peer the rounds that a copy of its files lost, by restarts that others confirm."""
    seen: dict[str, set[int]] = defaultdict(set)
    for own in chains:
        for played in own.played.values():
            for peer, incarnation in played.incarnations.items():
                seen[peer].add(incarnation)
    return {own.peer: own.gaps(seen[own.peer]) for own in chains}


def _totals(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield totals that are not what all peers received, or not what their digest says."""
    taken: dict[tuple[int, int, int], dict[str, TotalTaken]] = defaultdict(dict)
    for own in chains:
        for round, played in own.played.items():
            for total in played.totals:
                taken[round, total.attempt, total.number][own.peer] = total
                try:
                    total.read()
                except InputError as error:
                    yield Difference(own.peer, round, str(error))
    for (round, _, number), totals in taken.items():
        yield from _minority(
            {peer: {total.digest} for peer, total in totals.items()}, f"another total {number}", round=round
        )
        members = {peer: {total.participants} for peer, total in totals.items()}
        yield from _minority(members, f"other participants of total {number}", round=round)


def _participations(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield totals in which a peer took part, by the evidence of others and not by its own."""
    by_peer = {own.peer: own for own in chains}
    taken = {
        (round, total.attempt, total.number, peer)
        for own in chains
        for round, played in own.played.items()
        for total in played.totals
        for peer in total.participants
    }
    for round, attempt, number, peer in sorted(taken):
        own = by_peer.get(peer)
        if own is None or _stopped_in(own, round):
            continue
        played = own.played.get(round)
        if played is None or (attempt, number) not in {(each.attempt, each.number) for each in played.totals}:
            yield Difference(peer, round, f"it took part in total {number}, which is not in its evidence")


def _stopped_in(own: PeerEvidence, round: int) -> bool:
    """Return whether a peer says that it was stopped in a round, or ends with it and says nothing."""
    return round in own.interrupted or (own.ended is None and round == 1 + max(own.played, default=-1))


def _charges(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield charges that fall, or that are not those of the peers that played as many rounds."""
    spent: dict[tuple[int, int], dict[str, set[float | None]]] = defaultdict(dict)
    for own in chains:
        last = 0.0
        for count, (round, played) in enumerate(sorted(own.played.items()), start=1):
            if played.spent is not None and played.spent < last:
                yield Difference(own.peer, round, "what it has spent falls")
            last = played.spent or last
            spent[round, count][own.peer] = {played.spent}
    restarted = {own.peer for own in chains if len(own.beginnings) > 1}  # each charged for what it played again
    for (round, _), by_peer in spent.items():
        others = {peer: charges for peer, charges in by_peer.items() if peer not in restarted}
        yield from _minority(others, "another charge", round=round)
        least = min((charge for charges in others.values() for charge in charges if charge is not None), default=0.0)
        for peer in restarted & by_peer.keys():
            if any((charge or 0.0) < least for charge in by_peer[peer]):
                yield Difference(peer, round, "it has spent less than the others, although it began again")


def _model(own: PeerEvidence) -> Iterator[Difference]:
    """Yield a model file that is not the one with which its peer ended."""
    if own.ended is None or not own.opens_model:
        return
    from safetensors import SafetensorError  # noqa: PLC0415 (only where there is a model)
    from safetensors.torch import load_file  # noqa: PLC0415 (it imports torch)

    try:
        tensors = load_file(own.model)
    except SafetensorError:
        yield Difference(own.peer, -1, "the file of its model is damaged")
        return
    if tensors_digest(tensors, key=own.key) != own.ended.model:
        yield Difference(own.peer, -1, "the file of its model is not the model with which it ended")
