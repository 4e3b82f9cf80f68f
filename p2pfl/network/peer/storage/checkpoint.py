"""Checkpoints, from which a peer resumes whenever it was stopped.

Two files belong to a peer of a run, with different rules:

- The **checkpoint** ``NAME.state`` is all that belongs to its row after a round: the state, the page of the ledgers,
  bytes counted. It may be old. It is durable before anything of the next round is sent, so that a peer that is killed
  loses the round in progress and no other (or as many as ``transport.checkpoint`` says); it is written while that round
  trains. The one before is kept as
  ``NAME.previous.state``, and a hash tells which of them is whole.
- The **journal** ``NAME.journal`` must never be old, and is for the owner's eyes alone: the key from which masks are
  derived, which masks were used, what was spent. It is durable before what it speaks of is sent. A
  peer whose row goes back to a checkpoint goes on from the newest journal, so that it hides no round under an old mask
  again.

What is in them and from which round to go on is decided here without a clock or a loop; :class:`CheckpointStore`
reads and writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import blake3
import msgspec
import numpy as np
from safetensors import SafetensorError

from p2pfl.algorithms import State, Statistics
from p2pfl.core.errors import RunError, StorageError
from p2pfl.core.files import DRIVE, Disk, replace
from p2pfl.core.tensors import load, save, torch
from p2pfl.data.readings import DataPosition
from p2pfl.experiment import Plan
from p2pfl.experiment.timetable import Position
from p2pfl.network.peer.storage.journal import Journal, decode_journal, encode_journal
from p2pfl.network.peer.storage.later_versions import LaterVersionError, check_known
from p2pfl.network.protocol.incoming.equivocation import Proof
from p2pfl.network.protocol.ledgers.page import Page, Rows
from p2pfl.results.evidence import KEY_SUFFIX, SUFFIX
from p2pfl.results.models.model_description import describe_file, metadata
from p2pfl.results.notices.kinds import BestModelDamaged, CheckpointDamaged, Notice
from p2pfl.results.saved_models import model_file


@dataclass(frozen=True)
class Checkpoint:
    """A peer between two rounds.

    Attributes
    ----------
    peer, round
        Whose, and the round to go on with: the first that is not in it.
    state
        Of the algorithm and what wraps it, one row.
    page, rows
        Of the ledgers.
    bytes_out, bytes_in
        Since the run began.
    statistics
        By which all scale their features, where they agreed on them.
    data
        Rows that the peer has, where it reads its data again.
    pace
        Position in the timetable of the run.
    """

    peer: str
    round: int
    state: State
    page: Page = field(default_factory=Page)
    rows: Rows = field(default_factory=dict)
    bytes_out: int = 0
    bytes_in: int = 0
    statistics: Statistics | None = None
    data: DataPosition | None = None
    pace: Position | None = None


def rounds_apart(plan: Plan) -> int:
    """Return how many rounds there are from one checkpoint to the next.

    Parameters
    ----------
    plan
        The experiment, resolved for this peer.
    """
    fragile = plan.commits or plan.codec is not None or plan.asynchronous or plan.asked.algorithm.state_per_edge
    return 1 if fragile else plan.experiment.transport.checkpoint


HEADER = 100
"""Bytes of a tensor in the header of a file, and of the rest of the header."""

NOTE = 600
"""Bytes of a checkpoint beside its rows."""

FLOWS = 3
"""Rows of a checkpoint for each neighbour, where models of different gossip steps may be under way."""

EVIDENCE = 460
"""Bytes of an entry of the evidence; there is one for each gossip step and round."""

JOURNAL = 1700
"""Bytes of the journals of a round with masks."""

RECORD = 700
"""Bytes of the record and the notices of a round."""


def forecast_writes(plan: Plan, *, kept: int) -> int:
    """Forecast the bytes that a peer writes to its disk in a round, on average.

    A peer also writes its best model in each round that improves it; the constants are measured.

    Parameters
    ----------
    plan
        Experiment, with gossip.
    kept
        Further numbers per parameter that the algorithm and the optimiser keep.
    """
    row = plan.learner.layout.size * plan.learner.dtype.itemsize
    apart, count = rounds_apart(plan), len(plan.topology.peers)
    neighbours = sum(each.entries for each in plan.weights) / (len(plan.weights) * count) - 1
    rows = 2 + kept + (0 if plan.commits else FLOWS * neighbours)
    about = metadata(describe_file(plan, plan.topology.peers[0]))
    model = row + HEADER * (1 + len(plan.learner.layout.names)) + sum(map(len, about.values()))
    evidence = EVIDENCE * (plan.gossip.steps + 1)
    journal = JOURNAL if plan.asked.mode.hides else 0
    return int(model + (model + rows * row + NOTE) / apart + evidence + journal + RECORD)


def ends_with_checkpoint(round: int, *, apart: int, rounds: int) -> bool:
    """Return whether a round ends with a checkpoint: the first, the last, and every so many.

    The first always does, because a peer that has released a second round without one counts as one whose model is
    lost. Peers write after the same rounds, so that all that were stopped together have a common one to go on from.

    Parameters
    ----------
    round
        The round that has ended.
    apart
        As :func:`rounds_apart` returns it.
    rounds
        Number of rounds of the run.

    Examples
    --------
    >>> [round for round in range(8) if ends_with_checkpoint(round, apart=3, rounds=8)]
    [0, 2, 5, 7]
    """
    return round == 0 or (round + 1) % apart == 0 or round + 1 == rounds


class _Note(msgspec.Struct, frozen=True):
    """Part of a checkpoint that is not a tensor."""

    peer: str
    round: int
    page: Page
    bytes_out: int
    bytes_in: int
    data: DataPosition | None = None
    pace: Position | None = None


def pack(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of a checkpoint: safetensors with metadata and a hash of both.

    Examples
    --------
    >>> from p2pfl.core.neighbourhood import Public
    >>> row = torch.ones(1, 3)
    >>> unpack(pack(Checkpoint("ada", 7, State(row, Public(row))))).round
    7
    """
    c = checkpoint
    tensors = {"rows": c.state.rows, **c.state.tensors()}
    tensors |= {f"books.{name}": torch.from_numpy(np.ascontiguousarray(row)) for name, row in c.rows.items()}
    tensors |= {} if c.statistics is None else c.statistics.tensors()
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    note = msgspec.json.encode(_Note(c.peer, c.round, c.page, c.bytes_out, c.bytes_in, c.data, c.pace)).decode()
    return save(tensors, {"note": note, "hash": _digest(tensors, note)})


def unpack(data: bytes) -> Checkpoint:
    """Read what :func:`pack` wrote.

    Raises
    ------
    StorageError
        If a byte has changed, or some are missing.
    LaterVersionError
        If a later version has written it, with fields that the next write would lose.
    """
    try:
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        about = msgspec.json.decode(data[8 : 8 + size], type=dict[str, Any])["__metadata__"]
        note = msgspec.json.decode(about["note"], type=_Note)
    except (SafetensorError, msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise StorageError(f"the file is no checkpoint ({error})") from None
    if _digest(tensors, about["note"]) != about.get("hash"):
        raise StorageError("the checkpoint has changed since it was written")
    check_known(msgspec.json.decode(about["note"]), msgspec.json.decode(msgspec.json.encode(note)))
    rows = {
        name.removeprefix("books."): tensors.pop(name).numpy() for name in list(tensors) if name.startswith("books.")
    }
    scale = {
        name.removeprefix("scale."): tensors.pop(name).unsqueeze(0)
        for name in list(tensors)
        if name.startswith("scale.")
    }  # [1, F]
    state = State.restore(tensors.pop("rows"), tensors)
    statistics = Statistics(**scale) if scale else None
    return Checkpoint(
        note.peer, note.round, state, note.page, rows, note.bytes_out, note.bytes_in, statistics, note.data, note.pace
    )


def _digest(tensors: Mapping[str, torch.Tensor], note: str) -> str:
    hasher = blake3.blake3(note.encode())
    for name, tensor in sorted(tensors.items()):
        hasher.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        hasher.update(tensor.flatten().view(torch.uint8).numpy().data)
    return hasher.hexdigest()


class Best(msgspec.Struct, frozen=True):
    """The best model so far.

    Attributes
    ----------
    round
        The round that it comes from, counted from 0.
    loss
        Its mean loss.
    part
        On which of the peer's own data: ``validation``, or ``train`` where there is no validation part. It is never
        the test part, on which results are reported.
    """

    round: int
    loss: float
    part: str


@dataclass(frozen=True)
class Former:
    """Files that an earlier incarnation left.

    Attributes
    ----------
    kept
        Its checkpoints, the newest first.
    journal
        Its journal; ``None`` if it never got so far.
    """

    kept: tuple[Checkpoint, ...] = ()
    journal: Journal | None = None

    @property
    def past(self) -> bool:
        """True if nothing can go on from it: it promised to release no more, and not with the row that is kept.

        Or the run has ended, and its key is erased.
        """
        journal = self.journal
        if journal is None or not journal.over:
            return False
        return not journal.key or [each.round for each in self.kept[:1]] != [journal.ended]

    @property
    def begun(self) -> bool:
        """True if the peer has played a round, or has sent something hidden of the first one."""
        return bool(self.kept) or (self.journal is not None and self.journal.released >= 0)

    @property
    def bare(self) -> bool:
        """True if its models are lost: a peer writes a checkpoint before it releases anything of the second round."""
        journal = self.journal
        return not self.kept and journal is not None and journal.released >= 1 and not journal.over

    @property
    def rounds(self) -> list[int]:
        """Rounds with which the peer can continue; the common start counts as a checkpoint until the run ends."""
        if self.journal is not None and self.journal.over:
            return [] if self.past else [self.journal.ended]
        if self.bare:
            return []  # it comes late
        rounds = [checkpoint.round for checkpoint in self.kept]
        return rounds if rounds and rounds[0] > 1 else sorted({*rounds, 0}, reverse=True)

    def at(self, round: int | None) -> Former:
        """Return the checkpoint of this round alone, if there is one."""
        if round is None or round not in self.rounds:
            return self
        return Former(tuple(each for each in self.kept if each.round == round), self.journal)


class CheckpointStore:
    """A peer's files in a run directory.

    Parameters
    ----------
    folder
        Folder: ``peers`` of the run directory.
    peer
        Whose.
    disk
        On which.
    """

    def __init__(self, folder: Path, peer: str, *, disk: Disk = DRIVE) -> None:
        self.folder = folder
        self.peer = peer
        self.disk = disk
        self.about: Callable[[], Mapping[str, str]] = dict
        """Returns the metadata of a model's file, which say how to use it on raw values; asked when one is written."""
        self.written: Callable[[Path, int], object] = lambda _path, _round: None
        """Called with the path and the round of each model that :meth:`save` has written."""
        self.damaged: list[Notice] = []  # notices of files that exist and cannot be used
        # Joined once: each join interns its name anew, and thousands of rounds would double CPython's table of these.
        self._newest = folder / f"{peer}.state"
        self._former = folder / f"{peer}.previous.state"
        self._model = folder / f"{peer}.safetensors"
        self._journal = folder / f"{peer}.journal"
        self._best = folder / f"{peer}.best.safetensors"
        self._own = folder / f"{peer}.own.safetensors"
        self.evidence = folder / f"{peer}{SUFFIX}"
        """The peer's chain of evidence."""

    def checkpoints(self) -> list[Checkpoint]:
        """Return the complete checkpoints, newest first; report and remove incomplete ones."""
        checkpoints: list[Checkpoint] = []
        for path, previous in ((self._newest, True), (self._former, False)):
            try:
                checkpoint = unpack(self.disk.read(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError(
                    f"{path} cannot be read ({error.strerror}); check its permissions and the disk"
                ) from None
            except LaterVersionError as error:
                raise error.refusal(path) from None
            except StorageError as error:
                damaged = CheckpointDamaged(peer=self.peer, file=str(path), message=str(error), previous=previous)
                self.damaged.append(damaged)
                self.disk.remove(path)
                continue
            if not checkpoints or checkpoint.round < checkpoints[-1].round:
                checkpoints.append(checkpoint)
        return checkpoints

    def holds(self, round: int) -> bool:
        """Return whether the newest complete checkpoint is that of a round."""
        return [each.round for each in self.checkpoints()[:1]] == [round]

    def former(self) -> Former:
        """Return all intact checkpoints, and the journal."""
        return Former(tuple(self.checkpoints()), self.journal())

    def save(
        self,
        checkpoint: Checkpoint,
        model: Mapping[str, torch.Tensor],
        *,
        own: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Write a checkpoint and the model in it, and keep the one before.

        Parameters
        ----------
        checkpoint
            State of the peer.
        model, own
            Tensors of the model by name, and of the model with effects of the peer's own, if it has any.

        Raises
        ------
        StorageError
            If the disk is full or not writable; what was there stays.
        """
        replace(self._newest, pack(checkpoint), former=self._former, mode=0o600, disk=self.disk)
        about = {"round": str(checkpoint.round - 1)}
        self._write(self._model, model, about)
        if own:
            self._write(self._own, own, about)
        self.written(self._model, checkpoint.round - 1)

    def keep(self, best: Best, model: Mapping[str, torch.Tensor]) -> None:
        """Write the best model so far, in place of the one before.

        Raises
        ------
        StorageError
            If the disk is full or not writable; what was there stays.
        """
        self._write(self._best, model, {key: str(value) for key, value in msgspec.structs.asdict(best).items()})

    def best(self) -> Best | None:
        """Return what is known of the best model; ``None`` if there is none, or its file is damaged."""
        try:
            data = self.disk.read(self._best)
            size = int.from_bytes(data[:8], "little")
            about = msgspec.json.decode(data[8 : 8 + size])["__metadata__"]
            return msgspec.convert(about, Best, strict=False)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, KeyError, TypeError) as error:
            self.damaged.append(BestModelDamaged(peer=self.peer, file=str(self._best), message=str(error)))
            return None

    def place(self) -> str:
        """Return the file of the best model."""
        return str(self._best)

    def _write(self, path: Path, model: Mapping[str, torch.Tensor], about: Mapping[str, str]) -> None:
        data = model_file(model, {"peer": self.peer, **about, **self.about()})
        replace(path, data, mode=0o600, disk=self.disk)

    def back(self, round: int) -> None:
        """Forget what is newer than the checkpoint of this round."""
        for checkpoint in self.checkpoints():
            if checkpoint.round > round:
                self.disk.remove(self._newest)
                with contextlib.suppress(FileNotFoundError):
                    self.disk.rename(self._former, self._newest)

    def journal(self) -> Journal | None:
        """Return the journal, if there is one.

        Raises
        ------
        RunError
            It is there and cannot be read: without it masks might be used twice.
        """
        try:
            return decode_journal(self.disk.read(self._journal))
        except FileNotFoundError:
            return None
        except LaterVersionError as error:
            raise error.refusal(self._journal) from None
        except (OSError, StorageError) as error:
            raise RunError(
                f"{self._journal} cannot be used: {error}; begin a new run, because without the journal masks could be "
                "used twice"
            ) from None

    def accuse(self, peer: str, proof: Proof) -> Path:
        """Write the proof against another peer, for third parties.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        path = self.folder / f"{self.peer}.accuses-{peer}.json"
        replace(path, proof.to_bytes(), disk=self.disk)
        return path

    def evidence_key(self, draw: Callable[[], bytes]) -> bytes:
        """Return the key of the digest of the peer's samples in its evidence, drawn once and kept.

        Parameters
        ----------
        draw
            Function that draws the key if there is none.

        Raises
        ------
        StorageError
            It cannot be read or written.
        """
        path = self.folder / f"{self.peer}{KEY_SUFFIX}"
        try:
            return self.disk.read(path)
        except FileNotFoundError:
            drawn = draw()
            replace(path, drawn, mode=0o600, disk=self.disk)
            return drawn
        except OSError as error:
            raise StorageError(f"{path} cannot be read ({error.strerror}); check its permissions") from None

    def note(self, journal: Journal) -> None:
        """Write the journal, for its owner's eyes alone.

        Raises
        ------
        StorageError
            If it cannot be written, so that nothing may be sent.
        """
        replace(self._journal, encode_journal(journal), mode=0o600, disk=self.disk)
