"""Keys of masks whose other half was dropped: those that this peer publishes, and those that it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError
from p2pfl.network.protocol.interface.effects import Disclosed, Undecided
from p2pfl.network.protocol.interface.requests import Disclose
from p2pfl.network.protocol.session.decisions.copies import Copies
from p2pfl.network.protocol.session.decisions.signed_statements import PLACE
from p2pfl.network.protocol.session.shared import PULSE, Shared
from p2pfl.network.protocol.wire.verdict_messages import Halves


@dataclass
class MaskKeys:
    """Keys of the masks that releases share with dropped ones.

    Parameters
    ----------
    shared, copies
        State that the parts of the session share, and the releases that have arrived.
    """

    shared: Shared
    copies: Copies
    _masked: dict[int, frozenset[str]] = field(default_factory=dict)  # by round, mask partners of the own release
    _own: dict[int, dict[str, bytes]] = field(default_factory=dict)  # by round, the keys that this peer has published
    _halves: dict[tuple[int, str, int], dict[str, bytes]] = field(default_factory=dict)  # by round and incarnation
    _asked: Disclose | None = None
    _since: float = 0.0
    _reported: float = 0.0

    def begin(self, round: int, masked: Mapping[str, int]) -> None:
        """Note with which partners this peer has masked its release of a round."""
        self._masked[round] = frozenset(masked)

    def disclose(self, asked: Disclose) -> None:
        """Publish the keys of this peer's masks, and begin to wait for those of neighbours."""
        self._asked, self._since, self._reported = asked, self.shared.now, self.shared.now
        self._own[asked.round] = dict(asked.keys)
        self.shared.publish(PLACE, self._keys(asked.round, asked.keys))

    def _keys(self, round: int, keys: Mapping[str, bytes], wanting: tuple[str, ...] = ()) -> Halves:
        return Halves(round, dict(keys), wanting, self.shared.me.incarnation)

    def receive(self, sender: str, message: Halves, *, near: bool) -> None:
        """Keep the keys of a neighbour, and answer its request; ``near`` is true if the round is a present one.

        Raises
        ------
        DecodeError
            The keys are of other peers than neighbours of the sender, or of an incarnation that has not released.
        """
        around = {*self.shared.edges.topology.union.neighbours(sender)}
        if not {*message.keys} <= around or any(len(key) not in (0, 32) for key in message.keys.values()):
            raise DecodeError(f'expected keys of masks of "{sender}", got others')
        if not near:
            return
        present = self.shared.membership.up[sender].incarnation
        if message.incarnation not in (self.copies.incarnation(sender, message.round), present):
            raise DecodeError(f'expected keys of the incarnation of "{sender}" that released, got those of another one')
        halves = self._halves.setdefault((message.round, sender, message.incarnation), {})
        halves |= message.keys | halves  # the first key counts
        own, masked = self._own.get(message.round, {}), self._masked.get(message.round)
        keys = {peer: own[peer] for peer in message.wanting if peer in own}
        if masked is not None:
            keys |= {peer: b"" for peer in message.wanting if peer not in masked and peer not in own}
        if keys:
            self.shared.publish(f"in/{sender}", self._keys(message.round, keys))

    @property
    def active(self) -> bool:
        """True if the peer waits for keys."""
        return self._asked is not None

    @property
    def waits(self) -> frozenset[str]:
        """Peers whose keys this peer waits for."""
        return frozenset(sender for sender, _ in self._missing_keys())

    @property
    def wake(self) -> float:
        """Time of the next decision if no event arrives before it."""
        return min(self._reported + PULSE, self._since + self.shared.patience)

    def _missing_keys(self) -> list[tuple[str, str]]:
        asked = self._asked
        if asked is None:
            return []
        return sorted(pair for pair in asked.awaited if pair[1] not in self._received_keys(asked.round, pair[0]))

    def _received_keys(self, round: int, sender: str) -> Mapping[str, bytes]:
        """Return the keys of the masks in a neighbour's release of a round, as far as they have arrived."""
        return self._halves.get((round, sender, self.copies.incarnation(sender, round)), {})

    def decide(self) -> None:
        """Answer if all keys are there, or the timeout has passed; request those that are missing."""
        asked, lacking, now = self._asked, self._missing_keys(), self.shared.now
        assert asked is not None  # noqa: S101 (set while this is active)
        gone = {sender for sender, _ in lacking} - self.shared.membership.present
        if not lacking:
            self._asked = None
            keys = {(sender, peer): self._received_keys(asked.round, sender)[peer] for sender, peer in asked.awaited}
            self.shared.do(Disclosed(keys))
        elif gone or now >= self._since + self.shared.patience:
            self._asked = None
            self.shared.do(Undecided(frozenset(gone or {sender for sender, _ in lacking})))
        elif now >= self._reported + PULSE:
            self._reported = now
            for sender in sorted({sender for sender, _ in lacking}):
                wanting = tuple(peer for each, peer in lacking if each == sender)
                self.shared.publish(f"in/{sender}", self._keys(asked.round, asked.keys, wanting))

    def forget(self, oldest: int) -> None:
        """Discard the keys of rounds before the oldest one."""
        self._halves = {key: keys for key, keys in self._halves.items() if key[0] >= oldest}
        self._own = {each: keys for each, keys in self._own.items() if each >= oldest}
        self._masked = {each: peers for each, peers in self._masked.items() if each >= oldest}
