"""What must hold of totals: all that go on hold the same, the sum over its participants, and no key hides two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from p2pfl.algorithms import State
from p2pfl.algorithms.algorithm import AsyncLearner
from p2pfl.core.draws import draw
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import P2PFLError
from p2pfl.core.neighbourhood import Neighbourhood, Recipient, Released
from p2pfl.core.traits import Traits
from p2pfl.experiment import Plan
from p2pfl.network.peer import Peer
from p2pfl.privacy.total_masks import Ring, TotalMasks, TotalSlot
from worlds.keys import KeyWatch

SIZE = 40
"""Numbers of a total."""

LARGEST = 2**40
"""Their magnitude."""

HARMLESS = frozenset({"latency", "loss", "duplication", "overtaking", "clocks", "stragglers", "forgeries"})
"""Faults under which every total completes."""

Taken = dict[tuple[int, int], dict[str, list[int]]]
"""By round and number of the total, what each peer holds."""


@dataclass(frozen=True)
class Adding:
    """Algorithm that takes two totals in a round, whose first number says who takes part, and others to one peer.

    Attributes
    ----------
    peers, seed
        All peers, and the seed of their numbers.
    routes
        Recipients and senders of totals to one peer, which all rounds take, the last of them after the other totals.
    taken, received
        What peers were given, and what recipients alone were.
    """

    traits: ClassVar[Traits] = Traits()
    peers: tuple[str, ...]
    seed: int
    routes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    taken: Taken = field(default_factory=lambda: defaultdict(dict))
    received: Taken = field(default_factory=lambda: defaultdict(dict))

    async def round(self, state: State, learner: AsyncLearner, net: Neighbourhood, round: int) -> State:
        """Take both totals."""
        (me,) = net.peers
        await learner.fit(state.rows, peers=net.peers, round=round)
        half = len(self.routes) // 2
        found = [await net.total(partial(self.own, round=round, number=0), size=SIZE)]
        await self._send(net, round, range(half))
        found.append(await net.total(partial(self.own, round=round, number=1), size=SIZE))
        await self._send(net, round, range(half, len(self.routes)))
        for number, total in enumerate(found):  # both or neither: an attempt that ends between them gives none
            self.taken[round, number][me] = total.tolist()
        return State(state.rows.clone(), Released(state.rows).public)

    async def _send(self, net: Neighbourhood, round: int, some: range) -> None:
        """Take some of the totals to one peer."""
        for number in some:
            recipient, senders = self.routes[number]

            def take(total: Ints, slot: tuple[int, int] = (round, number), peer: str = recipient) -> None:
                self.received[slot][peer] = total.tolist()

            answer = partial(self.word, round=round, number=number)
            await net.total(answer, size=SIZE, to=Recipient(recipient, take, senders))

    def word(self, peer: str, round: int, number: int) -> Ints:
        """What a peer adds to a total to one peer: numbers of the whole ring."""
        return draw(self.seed, f"word {number}", peer, round).integers(-(2**63), 2**63, SIZE)  # [K]

    def own(self, peer: str, round: int, number: int) -> Ints:
        """What a peer adds: a bit of its own, and numbers."""
        drawn = draw(self.seed, f"term {number}", peer, round).integers(-LARGEST, LARGEST, SIZE)  # [K]
        drawn[0] = 2 ** self.peers.index(peer)
        return drawn

    def sum(self, total: list[int], round: int, number: int) -> Ints | None:
        """The sum over the participants that a total names; ``None`` if it names none."""
        among = [peer for place, peer in enumerate(self.peers) if total[0] >> place & 1]
        if not among or total[0] >> len(self.peers):
            return None
        found: Ints = np.sum([self.own(peer, round, number) for peer in among], axis=0)
        return found


def adding(plan: Plan, *, seed: int) -> Plan:
    """The plan of a world that takes totals, in two of three worlds some to one peer as well."""
    graph, random = plan.topology.union, draw(seed, "world recipient")
    routes = []
    for _ in range(max(0, int(random.integers(-3, 7)))):
        recipient = graph.peers[int(random.integers(len(graph.peers)))]
        near = sorted({*graph.neighbours(recipient), recipient})
        senders = random.permutation(near)[: int(random.integers(1, len(near) + 1))]
        routes.append((recipient, tuple(sorted(senders.tolist()))))
    return replace(plan, algorithm=Adding(plan.topology.peers, seed, tuple(routes)))


def wrong(algorithm: Adding, finished: Collection[str]) -> str:
    """Why totals must not be what they are; empty if they may.

    A total counts at a peer that has finished its run, or has gone on to the totals of a later round. Another peer can
    have completed an attempt that nobody else did: the others took the totals again without it.
    """
    for (round, number), held in sorted(algorithm.taken.items()):
        for peer, total in held.items():
            expected = algorithm.sum(total, round, number)
            if expected is None or expected.tolist() != total or not total[0] >> algorithm.peers.index(peer) & 1:
                return f"the total {number} of round {round} is not the sum over its participants"
        later = {peer for (other, _), each in algorithm.taken.items() if other > round for peer in each}
        counted = {peer: total for peer, total in held.items() if peer in later or peer in finished}
        if len({tuple(total) for total in counted.values()}) > 1:
            return f"{', '.join(sorted(counted))} hold different totals {number} of round {round}"
    return ""


def misdirected(algorithm: Adding) -> str:
    """Why totals to one peer must not be what they are; empty if they may.

    A recipient has the sum in the ring over exactly the senders, and who counts a round has all that it was sent.
    """
    for (round, number), held in sorted(algorithm.received.items()):
        recipient, senders = algorithm.routes[number]
        expected = np.sum([algorithm.word(peer, round, number) for peer in senders], axis=0)
        if held != {recipient: expected.tolist()}:
            return f"the total {number} to {recipient} in round {round} is not the sum over its senders"
    for (round, _), counted in sorted(algorithm.taken.items()):
        for number, (recipient, _) in enumerate(algorithm.routes):
            if recipient in counted and (round, number) not in algorithm.received:
                return f"{recipient} counts round {round} without the total {number} to it"
    return ""


def whole(algorithm: Adding, rounds: int) -> bool:
    """Whether every peer holds every total, over all peers."""
    everybody = 2 ** len(algorithm.peers) - 1
    all_ = [algorithm.taken[round, number] for round in range(rounds) for number in (0, 1)]
    return all({*held} == {*algorithm.peers} and held[algorithm.peers[0]][0] == everybody for held in all_)


class Result(Protocol):
    """How a peer ended."""

    @property
    def state(self) -> State | None:
        """Its state, if it ended with one."""

    @property
    def error(self) -> BaseException | None:
        """What it ended with otherwise."""

    @property
    def killed(self) -> bool:
        """Whether it ended for good before its time."""


def verdict(
    algorithm: Adding, ended: Mapping[str, Result], *, rounds: int, kinds: frozenset[str], faults: Counter[str]
) -> str:
    """Why peers that take totals must not have ended like this: all hold the same ones, or end with a sentence."""
    finished = {name for name, result in ended.items() if result.state is not None}
    if failure := wrong(algorithm, finished) or misdirected(algorithm):
        return failure
    faults["totals to one peer"] += sum(len(held) for held in algorithm.received.values())
    faults["totals"] += sum(len(held) for held in algorithm.taken.values())
    for name, result in ended.items():
        if result.state is None and not result.killed:
            faults["peers that ended without a total"] += 1
            if not isinstance(result.error, P2PFLError):
                return f"{name} ended with {type(result.error).__name__}: {result.error}"
    if not kinds - HARMLESS and not whole(algorithm, rounds):
        return "not every peer holds every total, although nothing was lost for good"
    return ""


def watched(peer: Peer, keys: KeyWatch) -> None:
    """Watch the masks of a peer's totals."""
    hiding, given = peer.hiding, peer.hiding.totals

    def totals() -> TotalMasks | None:
        masks = given()
        return None if masks is None else WatchedMasks(**vars(masks), watch=keys)

    hiding.totals = totals  # type: ignore[method-assign]


@dataclass(frozen=True)
class WatchedMasks(TotalMasks):
    """Masks of totals that tell which key hides what."""

    watch: KeyWatch = field(kw_only=True, repr=False)

    def hide(self, values: Ints, *, peer: str, slot: TotalSlot, participants: Sequence[str], bits: int) -> Ring:
        """Hide a contribution."""
        for other, key in self.keys(peer, slot=slot, participants=participants).items():
            self.watch.used(key, f"mask of the total of {peer} with {other}", values.tobytes())
        return super().hide(values, peer=peer, slot=slot, participants=participants, bits=bits)
