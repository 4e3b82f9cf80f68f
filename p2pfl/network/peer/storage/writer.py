"""Keeps on disk what a later incarnation of a peer goes on from, before anything is sent that it must not forget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from p2pfl.core.rows import Rows
from p2pfl.network.peer.storage.checkpoint import Checkpoint, CheckpointStore, Former
from p2pfl.network.peer.storage.journal import Journal
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.ledgers.mask_slots import START
from p2pfl.privacy.keys import KEY_BYTES, Announced, Source


def erase_keys(folder: Path) -> None:
    """Erase the exchange keys from a run directory, once the run has ended and nothing resumes it.

    Whoever takes the disk later cannot open what they recorded of the run, or remove masks from it.

    Parameters
    ----------
    folder
        The run directory.

    Raises
    ------
    RunError
        A journal cannot be read.
    StorageError
        A journal cannot be written.
    """
    for path in sorted((folder / "peers").glob("*.journal")):
        store = CheckpointStore(path.parent, path.stem)
        journal = store.journal()
        if journal is not None and journal.key:
            store.note(replace(journal, key=b""))


class Keeper:
    """The shell around one peer's store.

    Parameters
    ----------
    store
        Store; nothing is written if there is none.
    former
        State that an earlier incarnation left.
    incarnation
        The number of this one, unless the one before was as great.
    peer, source
        Whose key to draw if there was no incarnation before.
    remember
        Called before anything is sent, to write the keys that were trusted on first use.

    Attributes
    ----------
    journal
        What must never go back.
    nonce
        16 bytes for this incarnation alone, which it announces: what is resumed twice from two copies differs in them.
    """

    def __init__(
        self,
        store: CheckpointStore | None,
        former: Former | None,
        *,
        incarnation: int,
        peer: str,
        source: Source,
        remember: Callable[[], None] | None = None,
    ) -> None:
        self.store = store
        self.remember = remember
        self.former = former or Former()
        old = self.former.journal
        if old is None:
            self.journal = Journal(incarnation, source.bytes(KEY_BYTES, purpose="exchange", peer=peer))
        else:
            self.journal = replace(old, incarnation=max(incarnation, old.incarnation + 1))
        self._erased = not self.journal.key
        if self.former.bare or self._erased:
            key = source.bytes(KEY_BYTES, purpose="exchange", peer=peer, round=self.journal.incarnation)
            self.journal = replace(self.journal, key=key)
        if self.former.bare:  # masks under the old key are in rows that are lost
            self.journal = replace(self.journal, until=START)
        self.nonce = Announced.draw(source, peer=peer, incarnation=self.journal.incarnation).nonce
        self._written = self.journal
        self._saving: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def begin(self) -> None:
        """Note that there is this incarnation; a key that was erased stays so, as nothing is shared under another."""
        if self.store is not None:
            journal = replace(self.journal, key=b"") if self._erased and self.former.past else self.journal
            await asyncio.to_thread(self.store.note, journal)

    async def back(self, round: int) -> None:
        """Go on from a round: newer checkpoints are of a course that is not taken."""
        if self.store is not None:
            await asyncio.to_thread(self.store.back, round)

    async def save(
        self,
        checkpoint: Checkpoint,
        state_dict: Callable[[Rows], Mapping[str, Rows]],
        *,
        own: Mapping[str, Rows] | None = None,
    ) -> None:
        """Begin to write a checkpoint, and the model in it as others read it, once the one before is written.

        Parameters
        ----------
        checkpoint
            State of the peer.
        state_dict
            Function that returns the tensors of a model by name.
        own
            Tensors of the model with effects of the peer's own, for a file that it keeps; none if it is empty.
        """
        store = self.store
        if store is None:
            return
        await self._await_save()

        def write() -> None:
            store.save(checkpoint, state_dict(checkpoint.state.rows[0]), own=own)

        self._saving = asyncio.create_task(asyncio.to_thread(write))

    def note_rounds(self, rounds: int) -> None:
        """Note, with what is next made durable, that there were so many rounds, and that they are all played."""
        self.journal = replace(self.journal, ended=rounds)

    async def durable(self, extended: Callable[[Journal], Journal | None]) -> None:
        """Wait until a later incarnation could go on from here: nothing is sent before.

        Parameters
        ----------
        extended
            Function that returns a journal with the releases so far; ``None`` as long as there is nothing to write.
        """
        if self.remember is not None:
            await asyncio.to_thread(self.remember)
        if self.store is None:
            return
        async with self._lock:  # a caller may go on only after the write that contains its state
            if self._noting is not None and not self._noting.done():
                await asyncio.shield(self._noting)  # of a caller that was cancelled
            await self._await_save()
            now = extended(self.journal)
            if now is None:
                return
            self.journal = now
            if now != self._written:
                self._written = now
                self._noting = asyncio.create_task(asyncio.to_thread(self.store.note, now))
                await asyncio.shield(self._noting)  # which goes on even if the caller is cancelled

    async def _await_save(self) -> None:
        """Wait for the last checkpoint, which may have found no room."""
        if self._saving is not None:
            await asyncio.shield(self._saving)
            self._saving = None

    def accuse(self, peer: str, proof: Proof) -> Path | None:
        """Keep the proof against a peer that was excluded, and return where."""
        return None if self.store is None else self.store.accuse(peer, proof)

    async def end(self) -> None:
        """Wait for what is being written: a next incarnation is to find it ended."""
        writing = [task for task in (self._saving, self._noting) if task is not None]
        await asyncio.gather(*writing, return_exceptions=True)
