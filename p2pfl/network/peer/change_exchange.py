"""Changes of the swarm at one peer: it takes them, keeps them, answers the operator, and relays them to neighbours.

No broker can keep a change from a part of the swarm: neighbours relay it among the sealed messages that a run needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

from p2pfl.core.errors import (
    DecodeError,
    InputError,
    RefusedError,
    StorageError,
    SwarmMovedError,
    TransportError,
)
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment import Experiment, Plan
from p2pfl.experiment.changed_run import refusal
from p2pfl.experiment.swarm_change import ChangeAnswer, RunOrder, SwarmChange, order_of, run_digest
from p2pfl.learning import ExternalLearner
from p2pfl.network.peer.connection import Connection
from p2pfl.network.peer.start import PeerStart
from p2pfl.network.protocol.membership.membership import Membership
from p2pfl.network.protocol.membership.swarm_changes import HeldChange
from p2pfl.network.protocol.wire.message_codec import answer_topic, change_topic, order_topic
from p2pfl.network.protocol.wire.messages import ChangeRelay
from p2pfl.network.transport import Message
from p2pfl.privacy.keys import Roster, fingerprint
from p2pfl.results.notices.kinds import ChangeRefused, ChangeTaken, ChangeUnconfirmed, Notice

RELAY_INTERVAL = 2.0
"""Seconds after which a peer sends a change to neighbours that lack it again, and checks whether they have gone on."""

ENDING = ".change"
"""End of the name of the file of a peer's change."""


class ChangeExchange:
    """Changes of the swarm at one peer.

    Parameters
    ----------
    start
        The peer; its roster names an operator.
    held
        What it holds.
    experiment
        Experiment of the run.
    order
        Order by which the run began; ``None`` if no change of the swarm began it.
    folder
        Directory of the run; ``None`` if it keeps none.
    followed
        File with the largest number of an order that this device has followed; ``None`` without a folder of keys.
    notify
        Called with each notice.
    continues
        False if the learner of the peer cannot begin with the model of a file.
    """

    def __init__(
        self,
        start: PeerStart,
        held: HeldChange,
        experiment: Experiment,
        *,
        order: RunOrder | None,
        folder: Path | None,
        followed: Path | None,
        notify: Callable[[Notice], None],
        continues: bool = True,
    ) -> None:
        self.held = held
        self._start, self._experiment, self._folder, self._followed = start, experiment, folder, followed
        self._notify, self._continues = notify, continues
        self._connection: Connection | None = None
        self._arrived: dict[str, ChangeRelay] = {}  # newest by neighbour; the broker has the empty name
        self._news = asyncio.Event()
        self._complained = set[tuple[str, str]]()
        self._asked = set[str]()  # neighbours that hand over the order by which they went on
        self.order = order

    @classmethod
    def of(cls, start: PeerStart, plan: Plan, *, notify: Callable[[Notice], None]) -> Self | None:
        """Return the changes at a peer; ``None`` if its roster names no operator.

        Raises
        ------
        StorageError
            The file of an earlier change is damaged.
        """
        roster = start.membership.trust
        if not isinstance(roster, Roster) or not roster.operator:
            return None
        experiment = plan.experiment
        store, keys = start.keeper.store, experiment.trust.keys
        folder = None if store is None else store.folder.parent
        followed = None if keys is None else Path(keys) / f"{start.name}{ENDING}"
        change = None if store is None else read_change(store.folder, start.name)
        order = order_of(experiment)
        least = max(_number(followed), 0 if order is None else order.change.number)
        new = not start.keeper.former.begun and (order is None or order.late)
        held = HeldChange(
            roster.operator,
            start.swarm,
            run_digest(start.me.facts),
            least,
            change,
            peer=start.name,
            installed=roster if new else None,
        )
        own = experiment.learning.learner is not None
        return cls(
            start,
            held,
            experiment,
            order=order,
            folder=folder,
            followed=followed,
            notify=notify,
            continues=not own or isinstance(plan.learner.bare, ExternalLearner),
        )

    # ------------------------------------------------------------------ for the rounds

    @property
    def last(self) -> int | None:
        """Number of rounds after which the run ends; ``None`` as long as nobody has ordered it."""
        return self.held.last

    def begin(self, round: int, *, done: int) -> None:
        """Note the first round, and how many the peer has; a change that ends the run before it came too late.

        Raises
        ------
        SwarmMovedError
            The others end the run before this peer could take part again.
        """
        self.held.round, self.held.begun = round, True
        if self.held.last is not None and done < self.held.last <= round:
            raise SwarmMovedError(f"the others end this run after round {self.held.last} by a change of the operator")
        if (last := self.held.last) is not None and last < round:
            self.held.reason = f"it ends the run after round {last}, and this peer goes on with round {round + 1}"
            self._complain("", self.held.reason, ordered=True)

    def check_neighbours(self, membership: Membership) -> None:
        """End a run for which no neighbour came if an order that this peer holds leaves none to wait for.

        Each neighbour is out of the swarm by the order, or has gone on by it.

        Raises
        ------
        SwarmMovedError
            There is none.
        """
        change = self.held.change
        if change is None or self.held.last is None:
            return
        stay = membership.neighbours & {*change.next_roster.peers}
        begun = {peer for peer, each in membership.up.items() if each.facts.get("start") == change.start}
        if stay <= begun:
            raise SwarmMovedError(f"the others have ended this run by change {change.number} of the operator")

    async def before(self, round: int) -> None:
        """Before the last round, wait until the neighbours hold the change: without this peer they do not end it."""
        self.held.round = round
        connection = self._connection
        if connection is None or self.held.last != round + 1:
            return
        session = connection.session
        by = connection.clock() + session.shared.patience
        await connection.until(lambda: not self.held.lacking(session.membership.present), by=by)
        if lacking := self.held.lacking(session.membership.present):
            notice = ChangeUnconfirmed(peer=self._start.name, neighbours=tuple(lacking), last=round + 1)
            self._notify(notice)

    # ------------------------------------------------------------------ messages

    async def run(self, connection: Connection) -> None:
        """Take, keep and relay changes until this is cancelled."""
        self._connection, topic = connection, change_topic(self._start.swarm)
        connection.take_change = self._arrive

        def take(message: Message) -> bool:
            ours = message.topic in {topic, *(order_topic(self._start.swarm, peer=peer) for peer in self._asked)}
            if message.topic == topic and message.data:
                self._arrive("", ChangeRelay(bytes(32), memoryview(bytes(message.data))))
            elif ours:
                self.held.collect(bytes(message.data))
                self._news.set()
            return ours

        connection.diverts.append(take)
        try:
            await connection.channel.subscribe(topic)
        except RefusedError as error:
            self._complain("", f"the broker lets nobody read them here ({error}); install the broker again")
        try:
            if self.order is not None:  # for devices that were away
                data = self.order.change.encode()
                await connection.channel.publish(
                    order_topic(self._start.swarm, peer=self._start.name), data, retain=True
                )
            if self.held.change is not None:
                await self._answer(self.held.change, self.held.reason)
            while True:
                self._relay(connection)
                await self._follow(connection)
                await self._wait()
                for sender in [*self._arrived]:
                    await self._take(sender, self._arrived.pop(sender))
                connection.look()
        except TransportError:  # the connection ends, which the peer itself reports
            return

    async def _wait(self) -> None:
        """Wait for something new, or until it is time to check the neighbours again."""
        try:
            async with asyncio.timeout(RELAY_INTERVAL):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    def _arrive(self, sender: str, message: ChangeRelay) -> None:
        self._arrived[sender] = message
        self._news.set()

    async def _take(self, sender: str, message: ChangeRelay) -> None:
        """Take what a neighbour, or the broker, has sent."""
        data = bytes(message.data)
        if not data:
            self.held.confirm(sender, message.digest)
            return
        self.held.collect(data)
        verdict, why, change = self.held.judge(data)
        if verdict == "new" and change is not None:
            why = await self._keep(change, data, sender=sender)
            verdict = "refused" if why else "known"
        if verdict == "refused":
            self._refuse(sender, why, change)
            if change is not None and not sender:  # an old one that a neighbour replays hides no answer
                await self._answer(change, why)
        elif change is not None and sender:
            self.held.confirm(sender, change.digest)
            self._send(sender, ChangeRelay(change.digest))

    async def _keep(self, change: SwarmChange, data: bytes, *, sender: str) -> str:
        """Make a change durable, and hold it; return why it came too late, or an empty text."""
        reason = await asyncio.to_thread(self._prepare, change, data)
        verdict, why, _ = self.held.judge(data)
        if verdict == "refused":  # rounds went on meanwhile
            return why
        self.held.hold(change, reason=reason)
        if reason:
            self._complain(sender, reason, ordered=change.last is not None)
        else:
            by = fingerprint(self.held.operator)
            notice = ChangeTaken(
                peer=self._start.name,
                number=change.number,
                digest=change.content,
                operator=by,
                neighbour=sender or None,
                last=change.last,
            )
            self._notify(notice)
        await self._answer(change, reason)
        return ""

    def _prepare(self, change: SwarmChange, data: bytes) -> str:
        """Return why this peer cannot follow a change; write one that it can follow."""
        reason = (
            refusal(change, self._experiment, peer=self._start.name, folder=self._folder, continues=self._continues)
            or ""
        )
        if not reason and self._folder is not None:
            replace_file(change_file(self._folder / "peers", self._start.name), data, mode=0o600)
            if change.last is not None and self._followed is not None:
                replace_file(self._followed, f"{change.number}\n".encode(), mode=0o600)
        return reason

    async def _answer(self, change: SwarmChange, reason: str) -> None:
        """Publish the answer of this peer for the operator."""
        if self._connection is None:
            return
        start, held = self._start, self.held.change
        ends = self.held.last if held is not None and held.content == change.content else None
        answer = ChangeAnswer(
            swarm=start.swarm,
            peer=start.name,
            content=change.content,
            last=ends,
            round=self.held.round + 1,
            refused=reason[:2048],
        )
        topic = answer_topic(start.swarm, peer=start.name)
        await self._connection.channel.publish(topic, answer.encode(start.identity), retain=True)

    def _relay(self, connection: Connection) -> None:
        """Send the change to the neighbours that are not known to hold it."""
        change = self.held.change
        if change is not None:
            for peer in self.held.lacking(connection.session.membership.present):
                self._send(peer, ChangeRelay(change.digest, memoryview(change.encode())))

    def _send(self, peer: str, message: ChangeRelay) -> None:
        if self._connection is not None:
            self._connection.post(f"in/{peer}", message)

    async def _follow(self, connection: Connection) -> None:
        """End this run if neighbours show that others have gone on with the next one; ask them for their order.

        Raises
        ------
        SwarmMovedError
            They have, and this peer has kept the order.
        """
        membership, start = connection.session.membership, self._start
        ours, there = start.me.facts["start"], membership.greeted & membership.neighbours
        begun = {peer: membership.up[peer].facts.get("start", "") for peer in there}
        starts = dict.fromkeys(membership.neighbours, "") | {peer: text for peer, text in begun.items() if text != ours}
        unknown = {peer for peer, text in starts.items() if text and text not in self.held.orders}
        if asked := sorted(unknown - self._asked):
            self._asked.update(asked)
            await connection.channel.subscribe(*(order_topic(start.swarm, peer=peer) for peer in asked))
        order = self.held.moved(starts)
        if order is None:
            return
        if why := await asyncio.to_thread(self._prepare, order, order.encode()):
            self._complain("", why, ordered=True)
            del self.held.orders[order.start]
            return
        by = fingerprint(self.held.operator)
        raise SwarmMovedError(f"the others have ended this run by change {order.number} of the operator {by}")

    # ------------------------------------------------------------------ complaints

    def _refuse(self, sender: str, why: str, change: SwarmChange | None) -> None:
        """Count what is not used, and report it once; what the broker retains for another run is no news."""
        if sender and self._connection is not None:
            self._connection.session.shared.refuse(sender, "no change of this run")
        if sender or change is not None:
            self._complain(sender, why, ordered=change is not None and change.last is not None)

    def _complain(self, sender: str, why: str, *, ordered: bool = False) -> None:
        if (sender, why) not in self._complained:
            self._complained.add((sender, why))
            self._notify(
                ChangeRefused(peer=self._start.name, neighbour=sender or None, ordered=ordered, message=why[:500])
            )


def change_file(folder: Path, peer: str) -> Path:
    """Return the file of a peer's change in the folder ``peers`` of a run directory."""
    return folder / f"{peer}{ENDING}"


def read_change(folder: Path, peer: str) -> SwarmChange | None:
    """Return the change that a peer holds in the folder ``peers`` of a run directory; ``None`` without one.

    Raises
    ------
    StorageError
        The file is damaged.
    """
    path = change_file(folder, peer)
    try:
        return SwarmChange.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, DecodeError) as error:
        raise StorageError(f"{path} cannot be used ({error}); remove it, and the change comes again") from None


def _number(path: Path | None) -> int:
    """Return the largest number of an order that a device has followed; 0 before the first."""
    if path is None:
        return 0
    try:
        return int(path.read_text("ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        raise InputError(f"{path} is no number of a change; restore it from a backup") from None
