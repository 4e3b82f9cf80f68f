"""Tap on live peers, which records their releases and their messages."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import Unpack

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from p2pfl.algorithms.robust.attacks import Sums, sum_locally
from p2pfl.algorithms.robust.net import StepObserver, Work, compute_here
from p2pfl.core.draws import draw
from p2pfl.core.encodings import Ints
from p2pfl.core.neighbourhood import Neighbourhood, Public, Released, Wrapped
from p2pfl.core.rows import Layout, Rows
from p2pfl.experiment import Plan
from p2pfl.learning import Fitted, Fitting
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import decode
from p2pfl.network.transport.channel import Message
from p2pfl.network.virtual.timed_learner import Goals
from p2pfl.privacy.keys import exchange
from p2pfl.privacy.normal_stream import to_grid


@dataclass(frozen=True)
class TappedRelease:
    """Release of a live peer.

    Attributes
    ----------
    run, peer, round
        Identification of the release; each attempt at a round after a restart is another run.
    points
        Release less the public model before it, in points of the grid, ``[P]``.
    """

    run: int
    peer: str
    round: int
    points: Ints


@dataclass
class Tap:
    """Record of the releases and messages of live peers.

    Attributes
    ----------
    run
        Number of the current run or attempt.
    releases
        Releases in order.
    frames
        By run, all published payloads except announcements.
    keys
        By run, the public keys of all announcements.
    """

    run: int = 0
    releases: list[TappedRelease] = field(default_factory=list)
    frames: dict[int, set[bytes]] = field(default_factory=dict)
    keys: dict[int, set[bytes]] = field(default_factory=dict)

    def note(self, peer: str, round: int, released: Released, since: Public) -> None:
        """Record a release of points of the grid."""
        self.releases.append(TappedRelease(self.run, peer, round, subtract_public(released, since)))

    def overhear(self, client: str, message: Message) -> bool:
        """Record a message, and do not drop it; a memory transport calls this to decide which messages to drop."""
        del client
        if message.data and message.topic.endswith("/state"):
            content = decode(message.data)
            if isinstance(content, Announcement):
                self.keys.setdefault(self.run, set()).update((content.key, content.identity))
        elif message.data:
            self.frames.setdefault(self.run, set()).add(bytes(message.data))
        return False

    def table(self, runs: Sequence[int] | None = None) -> list[TappedRelease]:
        """Return the releases of some runs, by run, round and peer."""
        chosen = [each for each in self.releases if runs is None or each.run in runs]
        return sorted(chosen, key=lambda each: (each.run, each.round, each.peer))


def subtract_public(released: Released, since: Public) -> Ints:
    """Return a release less the public model before it, ``[P]`` points of the grid.

    Parameters
    ----------
    released
        Points of the grid, ``[1, P]``.
    since
        Public model before the release, ``[1, P]``.
    """
    assert released.grid is not None  # noqa: S101 (the caller masks rows)
    start = since.rows.cpu().double() * (1.0 if released.masses is None else released.masses.cpu().double())  # [1, P]
    points: Ints = released.rows[0].cpu().numpy() - to_grid(start[0].numpy().copy(), scale=2.0**released.grid)
    return points


@dataclass(frozen=True)
class TappedPlan(Plan):
    """Plan that shows a tap what its peers release.

    Attributes
    ----------
    tap
        Tap that records the releases.
    """

    tap: Tap = field(default_factory=Tap)

    @classmethod
    def of(cls, plan: Plan, tap: Tap, *, size: int, moving: bool = False) -> TappedPlan:
        """Return a plan with a tap.

        Parameters
        ----------
        plan, tap
            Plan, and the tap that records its releases.
        size
            P, the length of all rows.
        moving
            True if training changes the parameters. By default it does not, so that releases add only noise and
            masks.
        """
        parts = {each.name: getattr(plan, each.name) for each in fields(Plan)}
        kind = MovingLearner if moving else StillLearner
        learner = kind(Layout(("row",), ((size,),)), dtype=plan.learner.dtype, seed=plan.experiment.seed)
        return cls(**parts | {"learner": learner, "protection": replace(plan.protection, size=size), "tap": tap})

    def contested(
        self,
        hidden: Neighbourhood,
        *,
        round: int,
        observer: StepObserver,
        elsewhere: Callable[[Work], Awaitable[Rows]] = compute_here,
        together: Sequence[str] | None = None,
        sums: Sums = sum_locally,
    ) -> Neighbourhood:
        """Show the tap every release; see :meth:`p2pfl.experiment.Plan.contested`."""
        watched = TappedNeighbourhood(hidden, self.tap, round)
        return super().contested(
            watched, round=round, observer=observer, elsewhere=elsewhere, together=together, sums=sums
        )


class StillLearner(Goals):
    """Learner that does not change any model."""

    def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Return the rows, ``[R, P]``."""
        return replace(super().fit(rows, **options), rows=rows)


class MovingLearner(Goals):
    """Learner that moves every model by random numbers in every round."""

    def fit(self, rows: Rows, **options: Unpack[Fitting]) -> Fitted:
        """Return the moved rows, ``[R, P]``."""
        steps = [
            draw(self.seed, "audit step", peer, options["round"]).standard_normal(self.layout.size)
            for peer in options["peers"]
        ]
        moved = rows + torch.from_numpy(np.array(steps)).to(rows) / self.layout.size**0.5
        return replace(super().fit(rows, **options), rows=moved)


class TappedNeighbourhood(Wrapped):
    """Neighbourhood that shows a tap every release.

    Parameters
    ----------
    net
        Neighbourhood that releases and mixes.
    tap, round
        Tap that records the release, and the round number.
    """

    def __init__(self, net: Neighbourhood, tap: Tap, round: int) -> None:
        super().__init__(net)
        self._tap, self._round = tap, round

    async def release(self, rows: Rows, *, since: Public, masses: torch.Tensor | None = None) -> Released:
        """Release as the neighbourhood does."""
        released = await self._net.release(rows, since=since, masses=masses)
        if released.grid is not None:
            self._tap.note(self.peers[0], self._round, released, since)
        return released


Buffer = bytes | bytearray | memoryview

Note = Callable[[bytes, bytes, Buffer, Buffer | None], None]
"""Function that records a key, a nonce, a message and its header."""


@dataclass
class EncryptionRecord:
    """Record of everything that was encrypted, by run.

    Attributes
    ----------
    messages
        Digests of the messages, with their headers, by run and by key and nonce.
    """

    messages: dict[int, dict[tuple[bytes, bytes], set[bytes]]] = field(default_factory=dict)

    def note(self, run: int, key: bytes, nonce: bytes, data: Buffer, header: Buffer | None) -> None:
        """Record one encryption of a run."""
        whole = hashlib.sha256(hashlib.sha256(header or b"").digest())
        whole.update(data)
        self.messages.setdefault(run, {}).setdefault((key, nonce), set()).add(whole.digest())

    def keys(self, run: int) -> set[bytes]:
        """Return all keys that a run used."""
        return {key for key, _ in self.messages.get(run, {})}

    def count_repeats(self) -> int:
        """Return the number of keys and nonces, over all runs together, under which two messages were encrypted."""
        together: dict[tuple[bytes, bytes], set[bytes]] = {}
        for of_run in self.messages.values():
            for pair, messages in of_run.items():
                together.setdefault(pair, set()).update(messages)
        return sum(len(messages) > 1 for messages in together.values())


class RecordingCipher:
    """AES-GCM that records what it encrypts.

    Parameters
    ----------
    key
        Key.
    note
        Called with the key, the nonce, the message and its header before each encryption.
    """

    def __init__(self, key: bytes, note: Note) -> None:
        self._key, self._cipher, self._note = bytes(key), AESGCM(key), note

    def encrypt(self, nonce: bytes, data: Buffer, associated_data: Buffer | None) -> bytes:
        """Encrypt, and record it."""
        self._note(self._key, bytes(nonce), data, associated_data)
        return self._cipher.encrypt(nonce, data, associated_data)

    def decrypt(self, nonce: bytes, data: Buffer, associated_data: Buffer | None) -> bytes:
        """Decrypt."""
        return self._cipher.decrypt(nonce, data, associated_data)


@contextmanager
def record_ciphers(note: Note) -> Iterator[None]:
    """Call a function before everything that the peers of this process encrypt.

    The record is taken at the cipher itself, whichever part of a peer calls it: a key that two parts share by mistake
    shows as well.
    """
    real = vars(exchange)["AESGCM"]
    setattr(exchange, "AESGCM", lambda key: RecordingCipher(key, note))  # noqa: B010 (mypy knows it as a class)
    try:
        yield
    finally:
        setattr(exchange, "AESGCM", real)  # noqa: B010 (as above)
