"""Check of a run by its evidence, without the data: signatures, chains, and whether peers agree with each other."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from p2pfl.core.errors import InputError, PeerError, StorageError
from p2pfl.experiment.file.reading import KEPT, read_kept
from p2pfl.experiment.swarm_change import order_of
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.privacy.keys import Roster, key_text
from p2pfl.results.evidence import (
    FIRST,
    KEY_SUFFIX,
    PeerBegan,
    RoundPlayed,
    RowSent,
    TotalTaken,
    first_file,
    line_digest,
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


NAMED = 20
"""Rounds in which a row did not arrive that a sentence names."""


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
        paths = sorted(
            {*map(first_file, [bundle] if bundle.is_file() else (bundle / "peers").glob("*.evidence*.jsonl"))}
        )
        if not paths:
            raise InputError(f"{bundle} has no evidence; name the run directory of live peers")
        for path in paths:
            own = PeerEvidence(path)
            other = chains.setdefault(own.peer, own)
            longer, shorter = sorted((own, other), key=lambda each: -each.count)
            if longer is not shorter and any(
                one != another for (one, _), (another, _) in zip(longer.entries(), shorter.entries(), strict=False)
            ):
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
    seen = _seen(chains)
    rows, gaps = [*_rows(chains), *_participations(chains)], {own.peer: own.gaps(seen[own.peer]) for own in chains}
    missing = {each for each in rows if any(each.round in gap for gap in gaps[each.peer])}
    findings += [each for each in rows if each not in missing]
    findings += _totals(chains)
    findings += _charges(chains)
    findings += [finding for own in chains for finding in _model(own)]
    noted = {"what peers sent and received": False, "totals": False, "charges": False}
    named = set[str]()
    for played in (played for own in chains for played in own.played.values()):
        noted["what peers sent and received"] |= bool(played.received)
        noted["totals"] |= bool(played.totals)
        noted["charges"] |= played.spent is not None
        named |= _named(played)
    noted["change of the swarm"] = any(began.change for own in chains for began in own.beginnings)
    noted["model files"] = any(own.opens_model for own in chains)
    checked = ["chains and signatures", *(name for name, there in noted.items() if there)]
    unchecked = list[str]()
    if not noted["what peers sent and received"] and not noted["totals"]:
        unchecked.append("the evidence has neither rows nor totals, as with secure sums and peers that do not wait")
    if recompute is not None:
        differences, computed, uncomputed = recompute(chains)
        findings, checked, unchecked = findings + differences, checked + computed, unchecked + uncomputed
    if roster is None:
        unchecked.append("no roster was given, so that nobody knows whose keys these are")
    unchecked += [
        f"{own.peer} was stopped in round {round}, by its own account, and others went on without it"
        for own in chains
        for round in sorted(own.interrupted)
        if round < own.last
    ]
    unchecked += [
        f"the evidence of {own.peer} stops after {1 + own.last} rounds, without an end"
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
    count = max((1 + own.last for own in chains), default=0)
    peers = tuple(own.peer for own in chains)
    return Verification(peers, count, tuple(sorted({*findings})), tuple(checked), tuple(unchecked))


def _notes(chains: Sequence[PeerEvidence]) -> Iterator[str]:
    """Yield what an honest run may show and an attacker may pretend: lost rows, restarts, other libraries."""
    yield from _unseen(chains)
    for own in chains:
        if any(began.grows for began in own.beginnings) and len({began.data for began in own.beginnings}) > 1:
            yield f"{own.peer} began again with other data, which data.refresh permits"
    for name in ("torch", "numpy"):
        versions = {own.peer: sorted({began.versions.get(name, "") for began in own.beginnings}) for own in chains}
        if len({*map(tuple, versions.values())}) > 1:
            listed = ", ".join(f"{' and '.join(each)} at {peer}" for peer, each in versions.items())
            yield f"peers had other versions of {name}, with which sums round differently: {listed}"


def _unseen(chains: Sequence[PeerEvidence]) -> Iterator[str]:
    """Yield rows that did not arrive, and starts that only others have in their evidence."""
    by_peer = {own.peer: own for own in chains}
    missed, strange = defaultdict[tuple[str, str], list[int]](list), dict[tuple[str, str], None]()
    receiving = {own.peer for own in chains if any(played.received for played in own.played.values())}
    starts = {own.peer: {began.incarnation for began in own.beginnings} for own in chains}
    for round, rounds in _by_round(chains):
        for peer, played in rounds.items():
            for other in by_peer.keys() & played.incarnations.keys():
                if peer in receiving and other not in played.received and 0 in by_peer[other].sent(round):
                    missed[peer, other].append(round)
                if played.incarnations[other] not in starts[other]:
                    strange[other, peer] = None
    for (peer, other), each in sorted(missed.items()):
        listed = f"{', '.join(map(str, each[:NAMED]))}{f' and {len(each) - NAMED} more' if each[NAMED:] else ''}"
        yield f"{peer} has no row of {other} in round {listed}, which {other} sent"
    for peer, other in sorted(strange):
        yield f"{other} has seen a start of {peer} that the evidence of {peer} does not have"


def _named(played: RoundPlayed) -> set[str]:
    return {*played.received} | {peer for total in played.totals for peer in total.participants}


def _chain(own: PeerEvidence, roster: Roster | None) -> Iterator[Difference]:
    """Yield breaks of a chain, and entries that its peer has not signed."""
    before, key, data, round = FIRST, "", None, -1
    known = None if roster is None else roster.peers.get(own.peer)
    for number, (line, entry) in enumerate(own.entries()):
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
    last = -1
    for fact in (entry.fact for _, entry in own.entries()):
        if isinstance(fact, RoundPlayed):
            if fact.round <= last:
                yield Difference(own.peer, fact.round, f"it played the round after round {last}, without a restart")
            last = fact.round
        elif isinstance(fact, PeerBegan):
            last = -1
    first = next(iter(own.played), sys.maxsize)
    for round in np.setdiff1d(own.sent_rounds, own.played.rounds).tolist():
        if first < round < own.last and round not in own.interrupted:
            yield Difference(own.peer, round, "it sent its row, and the round is not in its evidence")
    if own.ended is not None and own.ended.rounds != 1 + own.last:
        yield Difference(own.peer, -1, f"it ends after {own.ended.rounds} rounds, and has played up to {own.last}")


def _rows(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield rows of which receivers report something else than senders."""
    evidence = {own.peer: (own, max(own.last, *own.interrupted, -1)) for own in chains}
    for own in chains:
        for played in own.played.values():
            for sender, rows in played.received.items():
                if sender not in evidence:
                    continue
                theirs, last = evidence[sender]
                for gossip_step, row in rows.items():
                    round, step = map(int, gossip_step.split("."))
                    signed = theirs.sent(round).get(step, set())
                    if not signed:
                        yield Difference(sender, round, f"{own.peer} received its row, which is not in its evidence")
                    elif row not in signed:
                        yield Difference(
                            sender, round, f"it says that it sent another row than {own.peer} says that it received"
                        )
                    elif round not in theirs.played and round not in theirs.interrupted and round < last:
                        yield Difference(
                            sender, round, f"{own.peer} received its row, and the round is not in its evidence"
                        )


def _seen(chains: Sequence[PeerEvidence]) -> dict[str, set[int]]:
    """Return the incarnations of each peer that others have seen."""
    seen: dict[str, set[int]] = defaultdict(set)
    for own in chains:
        for played in own.played.values():
            for peer, incarnation in played.incarnations.items():
                seen[peer].add(incarnation)
    return seen


def _by_round(chains: Sequence[PeerEvidence]) -> Iterator[tuple[int, dict[str, RoundPlayed]]]:
    """Yield each round that somebody played, ascending, with what each of those peers says of it."""
    rounds = np.unique(np.concatenate([own.played.rounds for own in chains])) if chains else ()
    for round in map(int, rounds):
        yield round, {own.peer: own.played[round] for own in chains if round in own.played}


def _totals(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield totals that are not what all peers received, or not what their digest says."""
    for round, by_peer in _by_round(chains):
        taken: dict[tuple[int, int], dict[str, TotalTaken]] = defaultdict(dict)
        for peer, played in by_peer.items():
            for total in played.totals:
                taken[total.attempt, total.number][peer] = total
                try:
                    total.read()
                except InputError as error:
                    yield Difference(peer, round, str(error))
        for (_, number), totals in taken.items():
            digests = {peer: {total.digest} for peer, total in totals.items()}
            yield from _minority(digests, f"another total {number}", round=round)
            members = {peer: {total.participants} for peer, total in totals.items()}
            yield from _minority(members, f"other participants of total {number}", round=round)


def _participations(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield totals in which a peer took part, by the evidence of others and not by its own."""
    by_peer = {own.peer: own for own in chains}
    for round, rounds in _by_round(chains):
        taken = {
            (total.attempt, total.number, peer)
            for played in rounds.values()
            for total in played.totals
            for peer in total.participants
        }
        for attempt, number, peer in sorted(taken):
            own = by_peer.get(peer)
            if own is None or _stopped_in(own, round):
                continue
            totals = rounds[peer].totals if peer in rounds else ()
            if (attempt, number) not in {(each.attempt, each.number) for each in totals}:
                yield Difference(peer, round, f"it took part in total {number}, which is not in its evidence")


def _stopped_in(own: PeerEvidence, round: int) -> bool:
    """Return whether a peer says that it was stopped in a round, or ends with it and says nothing."""
    return round in own.interrupted or (own.ended is None and round == 1 + own.last)


def _charges(chains: Sequence[PeerEvidence]) -> Iterator[Difference]:
    """Yield charges that fall, or that are not those of the peers that played as many rounds."""
    restarted = {own.peer for own in chains if len(own.beginnings) > 1}  # each charged for what it played again
    last, counts = dict.fromkeys((own.peer for own in chains), 0.0), Counter[str]()
    for round, rounds in _by_round(chains):
        counts.update(rounds.keys())
        spent: dict[int, dict[str, float | None]] = defaultdict(dict)
        for peer, played in rounds.items():
            if played.spent is not None and played.spent < last[peer]:
                yield Difference(peer, round, "what it has spent falls")
            last[peer] = played.spent or last[peer]
            spent[counts[peer]][peer] = played.spent
        for charges in spent.values():
            others = {peer: charge for peer, charge in charges.items() if peer not in restarted}
            yield from _minority({peer: {charge} for peer, charge in others.items()}, "another charge", round=round)
            least = min((charge for charge in others.values() if charge is not None), default=0.0)
            for peer in restarted & charges.keys():
                if (charges[peer] or 0.0) < least:
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
