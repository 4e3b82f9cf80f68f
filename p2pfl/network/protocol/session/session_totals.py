"""Totals within a session: participants, repeated messages, and failed attempts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from p2pfl.core.errors import DecodeError, PeerError, TopologyError
from p2pfl.network.protocol.interface.effects import Convened, Fail, Publish, Subscribe, Totalled, Unfinished
from p2pfl.network.protocol.interface.requests import Contribute, Convene
from p2pfl.network.protocol.session.shared import Shared
from p2pfl.network.protocol.totals.convergecast import PIECE, Convergecast
from p2pfl.network.protocol.totals.early import Early, slot_of
from p2pfl.network.protocol.totals.participants import Known, Participation
from p2pfl.network.protocol.totals.waits import Waits
from p2pfl.network.protocol.wire.messages import Digest, Pulse, mark_of
from p2pfl.network.protocol.wire.total_messages import Abort, Again, AgreedParticipants, Here, OfTotals, Subtotal, Total
from p2pfl.privacy.total_masks import TotalSlot
from p2pfl.topology import Tree

PLACE = "pub/total"
"""Place where a peer publishes messages for all of its children."""

RECEIPT = "totals"
"""Receipt of the subscription to the parent's place."""

Attempt = tuple[int, int]
"""Round and attempt, see :class:`~p2pfl.privacy.total_masks.TotalSlot`."""


class Sought(NamedTuple):
    """Total that is incomplete at this peer, in an attempt that another peer may have completed."""

    total: Convergecast
    participation: Participation


class Totals:
    """Participation in totals, one after the other.

    Parameters
    ----------
    shared
        State that all parts of the session use.
    piece
        Maximum number of bytes of a total in one message.
    outage
        Seconds to wait for a neighbour that works, as its heartbeats state, before it sends its part of a total.

    Attributes
    ----------
    lost
        Peers that caused attempts to fail; they take part in no later attempt.
    waits
        Result that the peer waits for; ``None`` while it computes, or uses no totals.
    """

    def __init__(self, shared: Shared, *, piece: int, outage: float = 0.0) -> None:
        self.shared, self.piece = shared, min(PIECE, piece)
        self.lost: set[str] = set()
        self.waits: Literal["participants", "total"] | None = None
        self._at: Attempt = (0, -1)
        self._failed: Attempt = (0, -1)  # the last attempt that has failed
        self._participation: Participation | None = None
        self._number = 0  # of the next total of this attempt
        self._current: Convergecast | None = None
        self._kept = deque[Convergecast](maxlen=2)  # the last totals of all, whose end children may still lack
        self._confirmations: dict[str, Total] = {}  # by neighbour: of its last contribution to a total of this peer
        self._sought: Sought | None = None  # the total at which an attempt failed, while another peer may have it
        self._times = Waits(shared.patience, outage)
        self._early = Early()
        self._here: dict[str, Here] = {}  # by neighbour, for an attempt that has not begun at this peer
        self._aborts: dict[str, Abort] = {}  # by neighbour, for such an attempt as well
        self._reports: dict[str, Abort] = {}  # by neighbour, for an attempt whose last total is complete here
        self._reporter = ""  # neighbour that reported the failure of the attempt; empty if this peer noticed it
        self._place = ""  # place of the parent, to which this peer subscribes
        self._digests: dict[TotalSlot, bytes] = {}  # of the last totals
        self._held: dict[str, TotalSlot] = {}  # by neighbour: its last total, as its heartbeats say

    # ------------------------------------------------------------------ requests of the peer

    def ask(self, event: Convene | Contribute) -> None:
        """Handle a request of the peer."""
        if isinstance(event, Convene):
            self._convene(event)
        else:
            self._contribute(event)

    def _convene(self, event: Convene) -> None:
        """Begin an attempt at the totals of a round."""
        shared, codec = self.shared, self.shared.codec
        again = self._failed[1] + 1 if self._failed[0] == event.round else 0
        if (event.round, again) <= self._at:
            raise PeerError("the totals of a round are taken one after the other, once; take them in one transaction")
        self._seek(event.round)
        self._at, self._number, self._reporter = (event.round, again), 0, ""
        self._current = None
        self._early.clear()
        up = {peer: shared.membership.up[peer] for peer in shared.membership.present}
        try:
            self._participation = participation = Participation(
                shared.edges.topology,
                tuple(peer for peer in shared.edges.topology.peers if peer not in self.lost),
                me=shared.me.peer,
                mark=mark_of(shared.me),
                round=event.round,
                attempt=again,
                swarm=codec.swarm,
                identity=codec.identity,
                identities=Known(
                    {peer: mark_of(announcement) for peer, announcement in up.items()},
                    {peer: announcement.identity for peer, announcement in up.items()},
                ),
            )
        except TopologyError as error:
            shared.do(Fail(error))
            return
        self._wait("participants")
        parent = participation.tree.parent(shared.me.peer)
        path = "" if parent is None else f"{parent}/{PLACE}"
        if path and path != self._place:
            self._place = path
            shared.do(Subscribe((path,), RECEIPT))
        else:
            self._begin()

    def _seek(self, round: int) -> None:
        """Before another attempt at a round, look for the total that is missing; before a new round, take reports."""
        participation, current = self._participation, self._current
        if round != self._at[0]:
            self._sought = None
            self.lost |= {peer for report in self._reports.values() for peer in report.lost} - {self.shared.me.peer}
        elif participation is not None and current is not None and current.down and not current.complete:
            self._sought = Sought(current, participation)
        self._reports.clear()

    def confirm_subscription(self, receipt: str) -> None:
        """Take part once this peer can receive all messages of its parent."""
        if receipt == RECEIPT:
            self._begin()

    def _contribute(self, event: Contribute) -> None:
        """Begin the next total of the attempt, or pass over one in which this peer has no part."""
        if self._participation is None or self._participation.agreed is None:
            raise PeerError("a total needs participants; convene them first")
        self._current = None
        reports, self._reports = self._reports, {}
        for sender, report in reports.items():
            self._receive_abort(sender, report)
        self._check_incarnations()
        if self._over(self._at):
            self._wait("total")
            return
        slot, self._number = TotalSlot(*self._at, self._number), self._number + 1
        early = self._early.take(slot)
        if event.to is not None and self.shared.me.peer not in event.to.peers:
            for sender in early:
                self.shared.refuse(sender, "not a message")
            self.shared.do(Totalled(event.values[:0]))
            return
        self._current = current = self._begun(event, slot, self._participation.agreed.tree)
        self._wait("total")
        self._send(current.contribute(event.values), total=current)
        for child, pieces in early.items():
            for piece in pieces:
                self._replay(child, partial(self._add, current, child, piece))

    def _begun(self, event: Contribute, slot: TotalSlot, tree: Tree) -> Convergecast:
        """Return the part of this peer in a total, and keep it if its children may lack the end of it."""
        begun = Convergecast(
            event.to or tree,
            self.shared.me.peer,
            slot=slot,
            size=len(event.values),
            bits=8 * event.values.itemsize,
            piece=self.piece,
            down=event.to is None,
        )
        if begun.down:
            self._kept.append(begun)
        return begun

    # ------------------------------------------------------------------ incoming messages

    def alive(self, sender: str) -> None:
        """Record the arrival of a message from a neighbour; it matters only while this peer waits."""
        if sender in self.shared.membership.up:
            self._times.note_message(sender, now=self.shared.now)

    def note_heartbeat(self, sender: str, pulse: Pulse) -> None:
        """Record what a neighbour states about itself while this peer waits."""
        if self.active:
            self._times.note_heartbeat(sender, waiting=pulse.waiting, work=pulse.work, now=self.shared.now)

    def receive(self, sender: str, message: OfTotals) -> None:
        """Handle a neighbour's message.

        Raises
        ------
        DecodeError
            The message is not credible, or a neighbour has no reason to send it.
        """
        at = message.round, message.attempt
        if isinstance(message, Abort):
            self._receive_abort(sender, message)
        elif isinstance(message, Total) and self._seeks(sender, message):
            self._adopt(message)
        elif self._over(at):
            self._report_failure((sender,))
        elif isinstance(message, Here | AgreedParticipants):
            self._receive_participants(sender, at, message)
        else:
            self._receive_piece(sender, message)

    def compare(self, sender: str, digest: Digest) -> None:
        """Compare the last total of a neighbour with that of this peer.

        Raises
        ------
        PeerError
            The totals differ, because one of the two peers, or a peer between them, has changed one.
        """
        slot = self._held[sender] = TotalSlot(digest.round, digest.attempt, digest.number)
        if self._digests.get(slot, digest.digest) != digest.digest:
            raise PeerError(
                f"{sender} and {self.shared.me.peer} hold different totals {slot.number} of round {slot.round - 1}, "
                "because a peer has changed one; find out which, and start the run again without it"
            )

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Children that may lack the last total of this peer: their heartbeats do not include it yet."""
        current, agreed = self._current, None if self._participation is None else self._participation.agreed
        if current is None or not current.complete or agreed is None or self.apart:
            return frozenset()
        membership, up = self.shared.membership, self.shared.membership.up
        heard = {*current.children} & membership.present & self.shared.edges.senders & up.keys()
        same = {child for child in heard if mark_of(up[child]) == agreed.members[child]}
        return frozenset(child for child in same if self._held.get(child, (0,)) < current.slot)

    @property
    def apart(self) -> frozenset[str]:
        """Neighbours that hold a total of a later attempt at the round whose totals this peer has completed."""
        if self._current is None or not self._current.complete:
            return frozenset()
        slot = self._current.slot
        later = {
            peer
            for peer, participants in self._held.items()
            if participants.round == slot.round and participants.attempt > slot.attempt
        }
        return frozenset(later)

    def _receive_participants(self, sender: str, at: Attempt, message: Here | AgreedParticipants) -> None:
        participation = self._participation
        if at > self._at and isinstance(message, Here):
            self._here[sender] = message
        elif at != self._at or participation is None:
            return  # belongs to a past attempt, or to one without this peer
        elif participation.agreed is not None and isinstance(message, Here):
            self._send(participation.again(), to=sender)
        else:
            self._times.note_progress(sender, now=self.shared.now)
            self._send(participation.receive(sender, message))

    def _receive_piece(self, sender: str, message: Subtotal | Total | Again) -> None:
        slot, current = TotalSlot(message.round, message.attempt, message.number), self._current
        if isinstance(message, Again):
            self._repeat(sender, message, slot)
        elif isinstance(message, Subtotal) and slot[:2] == self._at and slot.number >= self._number:
            self._hold(sender, message)
        elif current is None or current.slot != slot:
            return  # repeated, for a total that is complete
        elif isinstance(message, Subtotal):
            self._add(current, sender, message)
        elif sender == current.parent:
            self._times.note_progress(sender, now=self.shared.now)
            self._send(current.learn(message), total=current)

    def _seeks(self, sender: str, message: Total) -> bool:
        """Return whether a message brings the total at which an attempt failed, from a peer that was not lost."""
        sought, slot = self._sought, TotalSlot(message.round, message.attempt, message.number)
        return (
            self.waits == "participants"
            and sought is not None
            and sought.total.slot == slot
            and sender not in self.lost
        )

    def _adopt(self, message: Total) -> None:
        """Go back to the attempt that another peer has completed, once this peer has its total as well.

        A peer that has completed an attempt takes no part in the next one. So no other attempt is agreed on by peers
        of which one could still take this total: it would have to come from a peer that they have lost.
        """
        assert self._sought is not None  # noqa: S101 (see _seeks)
        current, participation = self._sought
        messages = current.learn(message)
        if current.complete:
            self._at, self._number = current.slot[:2], current.slot.number + 1
            self._failed = self._at[0], self._at[1] - 1
            self._current, self._participation, self._sought = current, participation, None
            self.waits = "total"
        self._send(messages, total=current)

    def _hold(self, sender: str, message: Subtotal) -> None:
        """Keep a piece of a subtotal until this peer contributes; pieces beyond the limit are requested again then.

        A peer may receive it before the participant set: both come from different peers.
        """
        if self._participation is None or sender not in self._participation.tree.peers or not message.data:
            raise DecodeError(f'"{sender}" sends a piece of a subtotal that it cannot have')
        self._early.hold(sender, message)

    def _repeat(self, sender: str, message: Again, slot: TotalSlot) -> None:
        """Send pieces again, or that those of the sender have arrived."""
        if not self._times.may_repeat(sender, now=self.shared.now):
            return
        current, confirmation = self._current, self._confirmations.get(sender)
        if current is not None and not current.down and current.slot == slot:
            self._send(current.again(sender, offset=message.offset), to=sender)
        elif confirmation is not None and slot_of(confirmation) == slot:
            self._send([confirmation], to=sender)
        for each in self._kept:
            if each.slot == slot:
                self._send(each.again(sender, offset=message.offset), to=sender)

    def _add(self, current: Convergecast, sender: str, message: Subtotal) -> None:
        self._times.note_progress(sender, now=self.shared.now)
        self._send(current.add(sender, message), total=current)

    # ------------------------------------------------------------------ failure

    def _over(self, at: Attempt) -> bool:
        """Return whether an attempt is known to have failed."""
        return at[0] == self._failed[0] and at[1] <= self._failed[1]

    def _receive_abort(self, sender: str, message: Abort) -> None:
        """Accept that an attempt has failed; keep the report if the attempt has not begun at this peer.

        Only an attempt that this peer has begun ends, and only once, so no report causes more messages than that.
        """
        at, lost = (message.round, message.attempt), {*message.lost}
        soon = message.attempt == (self._at[1] + 1 if message.round == self._at[0] else 0)
        if not lost <= {*self.shared.edges.topology.peers} or (at > self._at and not soon):
            raise DecodeError(f'"{sender}" aborts an attempt that cannot have begun')
        new = lost - self.lost - {self.shared.me.peer}
        if at == self._at and self._done:
            self._reports[sender] = message
        elif at > self._at:
            self._aborts[sender] = message
        elif at[0] == self._at[0] and (new or at == self._at) and not self._over(self._at):
            self._reporter = sender
            self._fail(new)

    def _check_incarnations(self) -> None:
        """End the attempt if a participant was restarted since it was agreed on: masks name its new incarnation."""
        agreed = None if self._participation is None else self._participation.agreed
        up = self.shared.membership.up
        if agreed is not None and not self._done and not self._over(self._at):
            expected = {peer: agreed.members[peer] for peer in up if peer in agreed.members}
            if other := {peer for peer, mark in expected.items() if mark_of(up[peer]) != mark}:
                self._fail(other)

    @property
    def _done(self) -> bool:
        """True if the last total of this attempt that the peer asked for is complete: it may have been the last one."""
        return self.waits is None and self._current is not None and self._current.complete

    def _replay(self, sender: str, step: Callable[[], None]) -> None:
        """Handle a message that was kept; an invalid one is refused as if it had just arrived."""
        try:
            step()
        except DecodeError:
            self.shared.refuse(sender, "not a message")

    def _fail(self, lost: set[str]) -> None:
        """Record that the attempt has failed, and notify all neighbours that are present."""
        self._failed = self._at
        self.lost |= lost
        self._report_failure(sorted(self.shared.edges.neighbours & self.shared.membership.present))

    def _report_failure(self, peers: tuple[str, ...] | list[str]) -> None:
        for peer in peers:
            self.shared.publish(f"in/{peer}", Abort(*self._failed, sorted(self.lost)))

    # ------------------------------------------------------------------ decisions

    @property
    def lacking(self) -> frozenset[str]:
        """Neighbours that owe a message for which this peer waits."""
        if self.waits == "participants" and self._participation is not None:
            return self._participation.lacking
        return frozenset(self._current.lacking) if self.waits == "total" and self._current is not None else frozenset()

    @property
    def active(self) -> bool:
        """True if the peer waits for participants or for a total."""
        return self.waits is not None

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return min([self._times.again_at, *map(self._deadline, self.lacking)])

    def decide(self) -> None:
        """Answer if the result is complete or the attempt has failed; otherwise request messages that may be lost."""
        self._check_incarnations()
        if self._over(self._at):
            self._answer(Unfinished(frozenset(self.lost), self._reporter))
        elif not self._try_answer():
            self._look()

    def _try_answer(self) -> bool:
        """Answer if the participants or the total are complete; return whether no request is pending."""
        participation, current = self._participation, self._current
        if self.waits == "participants" and participation is not None and participation.agreed is not None:
            self._sought = None
            self._answer(Convened(participation.agreed.peers, self._at[1]))
        elif self.waits == "total" and current is not None and current.complete:
            if current.down:
                self._digests = {**dict([*self._digests.items()][-1:]), current.slot: current.digest}
                self.shared.total = Digest(*current.slot, current.digest)
            else:  # nothing of it is kept, nor can it be asked for
                self._confirmations |= dict.fromkeys(current.children, current.confirmation)
                self._current = None
            self._answer(Totalled(current.total))
        return self.waits is None

    def _look(self) -> None:
        """End the attempt if a neighbour has exceeded its deadline; otherwise request messages that may be lost."""
        now = self.shared.now
        doomed = {peer for peer in self.lacking if self._deadline(peer) <= now}
        if doomed:
            self._fail(doomed)
            self._answer(Unfinished(frozenset(self.lost), self._reporter))
        elif now >= self._times.again_at:
            self._times.note_request(now=now)
            self._ask()

    def _ask(self) -> None:
        """Send messages again that may be lost, and request those that are missing."""
        current = self._current
        if self.waits == "participants" and self._participation is not None:
            self._send(self._participation.again())
            self._ask_for_sought()
        elif current is not None:
            for peer, offset in sorted(current.lacking.items()):
                if self._times.is_stalled(peer, now=self.shared.now):
                    self.shared.publish(f"in/{peer}", Again(*current.slot, offset))

    def _ask_for_sought(self) -> None:
        """Ask all neighbours that are not lost for the total at which the attempt before failed."""
        if self._sought is not None:
            current = self._sought.total
            for peer in sorted((self.shared.edges.neighbours & self.shared.membership.present) - self.lost):
                self.shared.publish(f"in/{peer}", Again(*current.slot, current.known))

    def _deadline(self, peer: str) -> float:
        """Return the deadline of a neighbour, which is past if it has left or has begun a new incarnation."""
        shared, agreed = self.shared, None if self._participation is None else self._participation.agreed
        membership = shared.membership
        announcement = membership.up.get(peer)
        left = peer in membership.excluded or peer in membership.gone - membership.lost
        if left or (agreed is not None and announcement is not None and mark_of(announcement) != agreed.members[peer]):
            return -math.inf
        return self._times.deadline(peer)

    # ------------------------------------------------------------------ outgoing messages

    def _begin(self) -> None:
        """Take part, and handle the messages that children have sent before."""
        if self._participation is None or self.waits != "participants":
            return
        self._send(self._participation.begin())
        self._ask_for_sought()
        early, self._here = self._here, {}
        for sender, message in early.items():
            at = message.round, message.attempt
            if at == self._at:
                self._replay(sender, partial(self._receive_participants, sender, at, message))
            elif at > self._at:
                self._here[sender] = message
        aborts, self._aborts = self._aborts, {}
        for sender, abort in aborts.items():
            if (abort.round, abort.attempt) >= self._at:
                self._replay(sender, partial(self._receive_abort, sender, abort))

    def _wait(self, phase: Literal["participants", "total"]) -> None:
        self.waits = phase
        self.shared.active.add("totals")
        self._times.begin(now=self.shared.now, behind=self._depths_behind)

    @property
    def _depths_behind(self) -> dict[str, int]:
        """Lengths of the paths behind each neighbour; of a total to one peer, whose senders may still be in others."""
        participation, current = self._participation, self._current
        if participation is None:
            return {}
        if current is not None and not current.down:
            return dict.fromkeys(participation.tree.peers, len(participation.tree.peers))
        return participation.tree.depths_behind(self.shared.me.peer)

    def _answer(self, answer: Convened | Totalled | Unfinished) -> None:
        self.waits = None
        self.shared.do(answer)

    def _send(
        self,
        messages: list[Here | AgreedParticipants] | list[Subtotal | Total] | list[Total],
        *,
        to: str = "",
        total: Convergecast | None = None,
    ) -> None:
        """Send messages to the parent, to all children, or again to one neighbour alone."""
        for message in messages:
            if to:
                peers: tuple[str, ...] = (to,)
            elif total is not None and not total.down:
                peers = (total.parent,) if total.parent is not None else total.children
            elif isinstance(message, Here | Subtotal):
                peers = (self._place.partition("/")[0],)
            else:
                peers = ()
            for path in [f"in/{peer}" for peer in peers] or [PLACE]:
                self.shared.do(Publish(path, message))
