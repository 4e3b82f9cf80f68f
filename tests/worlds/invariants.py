"""What must hold after every event of every history, checked on the peers themselves.

A peer's mailbox, outboxes, envelope and ledgers are replaced by the same ones that also tell the :class:`Watch` what
they did. So the peer's decisions are its own, and the watch compares those of both ends of each edge, which no peer
can.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial

import msgspec
import numpy as np

from p2pfl.core.errors import DecodeError, RunError
from p2pfl.core.rows import Rows, raw
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.incoming.mailbox import AHEAD, Mailbox, Newest, Verdict
from p2pfl.network.protocol.ledgers.flows import FlowLedger, GossipStep, Row
from p2pfl.network.protocol.ledgers.mask_slots import Mask
from p2pfl.network.protocol.ledgers.page import Page
from p2pfl.network.protocol.ledgers.page import Rows as Beside
from p2pfl.network.protocol.ledgers.peer_ledgers import PeerLedgers
from p2pfl.network.protocol.wire.envelope import PLACE
from p2pfl.network.protocol.wire.reliable_stream import Outbox
from p2pfl.network.protocol.wire.trailer import SignedStatement
from p2pfl.network.protocol.wire.wire_codec import parts
from p2pfl.network.protocol.wire.wire_rows import Delivery, Head
from worlds import totals
from worlds.insiders import Insider
from worlds.keys import KeyWatch, WatchedEnvelope
from worlds.settled import SettledWatch
from worlds.sums import SumWatch
from worlds.watched_ledgers import Entered, WatchedFlows, WatchedMasks

Life = tuple[str, int]
"""A peer and its incarnation."""


def lived(peer: Peer) -> Life:
    """Whose life it is."""
    return peer.name, peer.me.incarnation


class InvariantError(RunError):
    """Something that must never happen has."""


class Watch:
    """Looks at all peers of a world.

    Parameters
    ----------
    said
        By peer, all payloads that it has published.
    settles
        Whether peers settle rounds, so that what a dropped peer exchanged is taken back at one end first.

    Attributes
    ----------
    failure
        The first thing that went wrong, empty as long as nothing did.
    """

    def __init__(
        self,
        said: Mapping[str, Collection[bytes]],
        *,
        settles: bool = False,
        insiders: Mapping[str, Insider] | None = None,
    ) -> None:
        self.said = said
        self.insiders = insiders or {}
        self.settles = settles
        self.settled = SettledWatch(self.fail)
        self.failure = ""
        self.peers: dict[str, Peer] = {}
        self.dead: set[str] = set()
        self.rows: dict[tuple[Life, GossipStep], int] = {}
        """By life and exchange, the checksum of the row that was sent."""
        self.lives: dict[str, dict[int, Peer]] = {}
        """By peer, all that it has been."""
        self.pages: dict[tuple[str, bytes], Entered] = {}
        """By peer and page, what was in the row when the page was written."""
        self.belated: set[str] = set()
        """Peers whose row something entered, or left, after the exchange that it belongs to."""
        self.keys = KeyWatch(self.fail)
        self.sums = SumWatch(self.fail, self.keys)
        self._used: set[tuple[Life, str, GossipStep]] = set()
        self._changed: set[str] = set()
        self._greeted: Counter[str] = Counter()
        self._came: Counter[str] = Counter()  # bytes, by peer, when it was last checked

    def fail(self, sentence: str) -> None:
        """Note what must not be; the first counts."""
        self.failure = self.failure or sentence

    def adopt(self, peer: Peer) -> None:
        """Watch a peer that has not joined yet."""
        self.peers[peer.name] = peer
        self.lives.setdefault(peer.name, {})[peer.me.incarnation] = peer
        self.dead.discard(peer.name)
        self._greeted.pop(peer.name, None)
        self._came.pop(peer.name, None)
        peer.mailbox = (WatchedNewest if peer.plan.asynchronous else WatchedMailbox)(self, peer)

    def joined(self, peer: Peer) -> None:
        """Watch the session of a peer that has just joined."""
        session, codec = peer.session, peer.session.shared.codec
        session.streams.outboxes = [WatchedOutbox(self, peer, each) for each in session.streams.outboxes]
        if codec.envelope is not None:
            codec.envelope = WatchedEnvelope.of(codec.envelope, self.keys, genuine=self._said)
        session.shared.ledgers = WatchedBooks.of(session.ledgers, self, peer)
        if peer.connection.relay is not None:
            self.sums.watched(peer.connection.relay)
        if isinstance(peer.plan.algorithm, totals.Adding):
            totals.watched(peer, self.keys)
        if self.settles:
            self.settled.watch(peer)
        if peer.name in self.insiders:
            self.insiders[peer.name].corrupt(peer)

    def changed(self, name: str) -> None:
        """A ledger of this peer has changed."""
        self._changed.add(name)

    # ------------------------------------------------------------------ rows

    def sent(self, life: Life, gossip_step: GossipStep, numbers: bytes | memoryview) -> None:
        """Note the row that a peer sends in an exchange."""
        if (life, gossip_step) in self.rows:
            self.fail(f"{life[0]} sent two rows in exchange {gossip_step}")
        self.rows[life, gossip_step] = zlib.crc32(numbers)

    def covered(self, peer: Peer, terms: Mapping[Mask, int], numbers: bytes | memoryview) -> None:
        """Note a release that has been sent under these masks, for the first and only time."""
        if peer.hiding.cover is not None:
            self.keys.released(peer.name, terms, numbers, masks=peer.hiding.cover.masks)

    def _said(self, name: str, payload: bytes) -> bool:
        """Return whether a peer has sealed this; a bit may change in the tag of another neighbour, which is its own."""
        said = self.said.get(name, set())
        if payload in said:
            return True
        try:
            prefix, _, ciphertext = parts(payload, prefix=PLACE)
        except DecodeError:
            return False
        sealed = bytes(ciphertext)
        return bool(sealed) and any(each.startswith(prefix) and each.endswith(sealed) for each in said)

    def arrived(self, name: str, sender: Life, delivery: Delivery) -> None:
        """Compare a row that a mailbox keeps with what its sender sent in that exchange."""
        if sender[0] in self.insiders:
            return
        if self.rows.get((sender, delivery.gossip_step)) != zlib.crc32(raw(delivery.row)):
            self.fail(f"{name} kept a row of {sender} for exchange {delivery.gossip_step} that {sender} did not send")

    def used(self, life: Life, sender: str, delivery: Delivery, *, gossip_step: GossipStep) -> None:
        """A row is mixed."""
        name, _ = life
        if delivery.gossip_step != gossip_step:
            self.fail(f"{name} used a row of exchange {delivery.gossip_step} of {sender} in exchange {gossip_step}")
        if (life, sender, gossip_step) in self._used:
            self.fail(f"{name} used the row of {sender} of exchange {gossip_step} twice")
        self._used.add((life, sender, gossip_step))

    # ------------------------------------------------------------------ after every event

    def after(self, name: str) -> None:
        """Check the peer that has just run, and the edges whose ledgers it changed.

        Raises
        ------
        InvariantError
            Something does not hold.
        """
        peer = self.peers.get(name)
        if peer is not None and name not in self.dead and peer.phase != "joining":
            self._bounded(peer)
            self._known(peer)
            if self.settles:
                self.settled.after(peer)
        if self._changed:
            for changed in sorted(self._changed):
                self._balanced(changed)
            self._changed.clear()
        if self.failure:
            raise InvariantError(self.failure)

    def flows(self, name: str) -> dict[str, dict[GossipStep, Row]] | None:
        """What a peer's row has at its end of those of each partner; ``None`` where nothing is conserved."""
        ledgers = self.peers[name].session.ledgers
        return ledgers.final if isinstance(ledgers, WatchedBooks) and ledgers.conserving else None

    def moved(self, name: str) -> dict[int, Row]:
        """Return what has entered a peer's row, by the round in which it did."""
        ledgers = self.peers[name].session.ledgers
        return ledgers.entered.moved if isinstance(ledgers, WatchedBooks) else {}

    def _bounded(self, peer: Peer) -> None:
        session, came = peer.session, peer.connection.bytes_in
        if self._came[peer.name] == came:
            return  # what is held grows by what comes
        self._came[peer.name] = came
        for (sender, _), inbox in session.streams.inboxes.items():
            if inbox.reserved > 2 * session.shared.row_bytes + (inbox.window + 1) * max(inbox.widest, 1):
                self.fail(f"{peer.name} sets {inbox.reserved} bytes aside for {sender}")
        mailbox = peer.mailbox
        most = AHEAD + len(session.streams.outboxes) * session.streams.window
        if isinstance(mailbox, WatchedMailbox) and mailbox.longest > most:
            self.fail(f"{mailbox.longest} rows of one neighbour wait in the mailbox of {peer.name}")

    def _known(self, peer: Peer) -> None:
        """Peers proven to be present are who they claim to be, and nobody honest is taken for malicious."""
        if peer.membership.excluded:
            self._excluded(peer)
        if self._greeted[peer.name] == len(peer.membership.proven):
            return
        self._greeted[peer.name] = len(peer.membership.proven)
        for other in sorted(peer.membership.proven):
            announcement = peer.membership.up[other]
            true = self.lives[other].get(announcement.incarnation)
            if true is None or (announcement.key, announcement.nonce) != (true.me.key, true.me.nonce):
                self.fail(f"{peer.name} takes somebody else for {other}")

    def _excluded(self, peer: Peer) -> None:
        """A peer that is no insider has excluded insiders alone."""
        if peer.name not in self.insiders and (excluded := peer.membership.excluded - {*self.insiders}):
            self.fail(f"{peer.name} has excluded {', '.join(sorted(excluded))}, who did not lie")

    def _balanced(self, name: str) -> None:
        ledgers = self._books(name)
        if ledgers is None or self.settles:
            return
        for other in sorted(ledgers.flows.partners):
            theirs = self._books(other)
            if theirs is not None:
                self._flows(name, other, ledgers.flows, theirs.flows)

    def _books(self, name: str) -> PeerLedgers | None:
        peer = self.peers.get(name)
        there = peer is not None and name not in self.dead and peer.phase not in {"joining", "gathering"}
        return peer.session.ledgers if peer is not None and there else None

    def _flows(self, one: str, other: str, a: FlowLedger, b: FlowLedger) -> None:
        """What an edge moved at one end it moved back at the other, or is held by who can take it back."""
        if not isinstance(a, WatchedFlows) or not isinstance(b, WatchedFlows):
            return
        if len(self.lives[one]) + len(self.lives[other]) > 2:  # a life plays again what the one before had applied
            return
        here, there = a.net.get(other, {}), b.net.get(one, {})
        held = {(one, each) for each in _held(a, other)} | {(other, each) for each in _held(b, one)}
        for gossip_step in here.keys() | there.keys():
            if gossip_step in here and gossip_step in there:
                if not np.array_equal(here[gossip_step], -there[gossip_step]):
                    self.fail(f"{one} and {other} moved different flows in exchange {gossip_step}")
            elif (one if gossip_step in here else other, gossip_step) not in held:
                self.fail(
                    f"the flow of exchange {gossip_step} between {one} and {other} is at one end and held by none"
                )


def _held(flows: FlowLedger, partner: str) -> set[GossipStep]:
    return {gossip_step for other, gossip_step in flows.list_unsettled() if other == partner}


class WatchedMailbox(Mailbox):
    """A mailbox that tells what it keeps and gives."""

    def __init__(self, watch: Watch, peer: Peer) -> None:
        super().__init__()
        self.watch = watch
        self.peer = peer

    @property
    def longest(self) -> int:
        """Rows of one sender that wait, at most."""
        return max(map(len, self._waiting.values()), default=0)

    def deliver(self, sender: str, head: Head, row: Rows, *, signed: SignedStatement | None = None) -> Verdict:
        """Keep a row, or say why not."""
        verdict = super().deliver(sender, head, row, signed=signed)
        if verdict == "kept":
            life = sender, self.peer.membership.up[sender].incarnation
            self.watch.arrived(self.peer.name, life, Delivery(head, row))
        return verdict

    def take(self, sender: str) -> Delivery | None:
        """The sender's row of this exchange, once."""
        delivery = super().take(sender)
        if delivery is not None:
            self.watch.used(lived(self.peer), sender, delivery, gossip_step=self.gossip_step)
        return delivery


class WatchedNewest(WatchedMailbox, Newest):
    """The same of peers that wait for nobody, who use rows of whichever exchange."""

    def collect(self) -> dict[str, Delivery]:
        """The rows that have come since one last asked, each once."""
        came = super().collect()
        for sender, delivery in came.items():
            life = f"{sender} in its life {self.peer.membership.up[sender].incarnation}"
            self.watch.used(lived(self.peer), life, delivery, gossip_step=delivery.gossip_step)
        return came


class WatchedOutbox(Outbox):
    """An outbox that tells what is put into it."""

    def __init__(self, watch: Watch, peer: Peer, outbox: Outbox) -> None:
        super().__init__(outbox.incarnation, phase=outbox.phase, chunk=outbox.chunk, trailer=outbox.trailer)
        self.watch = watch
        self.peer = peer

    def put(self, parts: Collection[bytes | memoryview]) -> None:
        """Queue a message."""
        head, numbers, *_ = parts
        del head
        self.watch.sent(lived(self.peer), self.peer.mailbox.gossip_step, numbers)
        masks = self.peer.session.ledgers.masks
        if isinstance(masks, WatchedMasks) and masks.latest is not None:
            self.watch.covered(self.peer, masks.latest, numbers)
            masks.latest = None
        super().put(tuple(parts))


class WatchedBooks(PeerLedgers):
    """PeerLedgers whose ledgers are watched, in this life and from the page that it goes on from."""

    watch: Watch
    owner: Peer
    entered: Entered
    round: int = 0
    """Round of the gossip step that was opened last."""
    final: dict[str, dict[GossipStep, Row]] | None = None
    """The flows in the row at its end."""

    @classmethod
    def of(cls, ledgers: PeerLedgers, watch: Watch, owner: Peer) -> WatchedBooks:
        """The same, watched, before anything is in them."""
        watched = cls(
            ledgers.peer,
            gossip=ledgers.flows.partners if ledgers.conserving else None,
            masks=ledgers.masks.partners,
            until=ledgers.masks.until,
            heaviest=ledgers.heaviest,
        )
        watched.watch, watched.owner = watch, owner
        watched._watched(Entered())
        return watched

    def _watched(self, entered: Entered) -> None:
        self.entered = entered
        changed = partial(self.watch.changed, self.peer)
        self.flows = WatchedFlows.of(self.flows, entered, owner=self.peer, changed=changed, fail=self.watch.fail)
        self.masks = WatchedMasks.of(self.masks)

    def page(self) -> tuple[Page, Beside]:
        """What to save with the row."""
        page, rows = super().page()
        self.watch.pages[self.peer, msgspec.json.encode(page)] = self.entered.copy()
        return page, rows

    def open(self, gossip_step: GossipStep, row: Row, *, weights: Mapping[str, float], chain: int) -> None:
        """Begin to mix a row."""
        super().open(gossip_step, row, weights=weights, chain=chain)
        self.round, _ = gossip_step

    def apply(self, partner: str, gossip_step: GossipStep, row: Row) -> Row | None:
        """Apply a row that came in time."""
        return self._entered(super().apply(partner, gossip_step, row))

    def close(self, *, weight: float | None = None) -> Row | None:
        """End the gossip step, with what came late."""
        return self._entered(super().close(weight=weight))

    def _entered(self, moved: Row | None) -> Row | None:
        """Note what enters the row in this round."""
        if moved is not None:
            self.entered.moved[self.round] = self.entered.moved.get(self.round, 0.0) + moved
        return moved

    def _owe(self, gossip_step: GossipStep, flow: Row) -> None:
        if gossip_step != self._current:  # it is over
            self.watch.belated.add(self.peer)
        super()._owe(gossip_step, flow)

    def remainder(self) -> Row | None:
        """What is still missing from the row, which nothing enters afterwards."""
        if isinstance(self.flows, WatchedFlows):
            self.final = {partner: dict(each) for partner, each in self.flows.net.items()}
        return self._entered(super().remainder())

    def turn(self, page: Page, rows: Mapping[str, Row], *, round: int, late: bool = False) -> None:
        """Go on from a page."""
        super().turn(page, rows, round=round, late=late)
        self.round = round - 1
        self._watched(self.watch.pages.get((self.peer, msgspec.json.encode(page)), Entered()).copy())
