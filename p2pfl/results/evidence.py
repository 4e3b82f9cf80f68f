r"""Evidence of a live run: what a peer sent, received and computed, as signed entries without data or secrets.

Each line of ``peers/NAME.evidence.jsonl`` has the SHA-256 of the line before it, and a signature of the peer:

    line_n = JSON(number n, before = SHA-256(line_(n-1)), fact, signature = Ed25519(key, "evidence", n, before, fact))

A long chain goes on in ``NAME.evidence.1.jsonl``, ``NAME.evidence.2.jsonl`` and so on, each of at most :data:`SEGMENT`
bytes and a line. A file that is full is synced before the next one begins, and never changes again.

So nobody, the peer included, can leave out or change an entry without a break, or an entry of a neighbour that does not
fit: what a peer says that it received is what the sender says that it sent.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import blake3
import msgspec
import numpy as np

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import DRIVE, OWNER_ONLY, Disk, replace
from p2pfl.core.tensors import torch
from p2pfl.privacy.keys import Identity, sign_text, verify_text

SUFFIX = ".evidence.jsonl"
"""Ending of the name of a chain, beside the model of its peer."""

KEY_SUFFIX = ".evidence.key"
"""Ending of the name of the key of a peer's digests, which stays with its owner."""

DOMAIN = "evidence"

GossipStep = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\.[0-9]{1,9}\Z")]
"""Round and gossip step of a row, such as "3.0", as a key of JSON."""

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
"""Digest of a row, which is the name of a file as well."""

FIRST = "0" * 64
"""Digest before the first entry."""

KEPT_TOTAL = 1 << 20
"""Largest total in bytes whose integers an entry has; larger ones have a digest alone."""

SEGMENT = 1 << 24
"""Bytes of a file of a chain after which the next one begins."""

LARGEST_LINE = 1 << 28
"""Most bytes of a line of a chain that are read."""


class PeerBegan(msgspec.Struct, frozen=True, tag="began", kw_only=True):
    """A peer begins, or begins again after it was stopped.

    Attributes
    ----------
    peer, incarnation, swarm
        Who begins, with which incarnation, in which run.
    key
        Public key that signs the entries from here on.
    experiment, statement
        SHA-256 of the resolved experiment, and of the privacy statement printed before the run.
    versions
        Of p2pfl, torch and numpy.
    code
        SHA-256 of the code of each ``package.module:name`` that the experiment names.
    roster
        Digest of the roster; empty without one.
    data
        Keyed digest of the samples, whose key stays with the owner; null without samples.
    charge
        What a round costs at most, in units of the accountant; null without a guarantee.
    public
        True if the parameters follow from public totals. Otherwise the digests of parameters have the key of the data,
        as without one they would confirm a guess of a sample.
    grows
        True if the peer reads data again between rounds, so that they may be others after a restart.
    follows
        SHA-256 of the last line of the chain of the run from whose models this one begins; empty where there is none.
    change
        SHA-256 of the order of the operator by which the run begins; empty where none began it.
    """

    peer: str
    incarnation: int
    swarm: str
    key: str
    experiment: str
    statement: str
    versions: dict[str, str]
    code: dict[str, str]
    roster: str
    data: str | None
    charge: str | None
    public: bool = False
    grows: bool = False
    follows: str = ""
    change: str = ""


class RowSent(msgspec.Struct, frozen=True, tag="sent"):
    """A peer is about to send its row of a gossip step.

    Attributes
    ----------
    round, step, row
        Which, and the digest of the row as it travels.
    """

    round: int
    step: int
    row: Digest


class TotalTaken(msgspec.Struct, frozen=True):
    """A total that all peers received.

    Attributes
    ----------
    attempt, number
        Which of the round.
    participants
        Who contributed.
    digest
        Of its integers.
    values
        The integers, int64, little-endian, compressed, in base64; empty if there are too many.
    """

    attempt: int
    number: int
    participants: tuple[str, ...]
    digest: str
    values: str = ""

    def read(self) -> Ints | None:
        """Return the integers; ``None`` if there are too many.

        Raises
        ------
        InputError
            They are no integers, more than an entry may have, or not those of the digest.
        """
        if not self.values:
            return None
        try:
            data = zlib.decompressobj().decompress(base64.b64decode(self.values, validate=True), KEPT_TOTAL + 1)
            total = np.frombuffer(data, "<i8")
        except (ValueError, zlib.error) as error:
            raise InputError(f"total {self.number} is malformed ({error}); ask the peer for its file again") from None
        if len(data) > KEPT_TOTAL or blake3.blake3(data).hexdigest() != self.digest:
            raise InputError(f"total {self.number} is not what its digest says")
        return total


class RoundPlayed(msgspec.Struct, frozen=True, tag="played", kw_only=True):
    """A peer has played a round.

    Attributes
    ----------
    round
        Which.
    received
        By sender, the digest of each of its rows, by the sender's round and gossip step. Peers that do not wait for
        each other have rows of other rounds.
    totals
        Totals of the round, in the order in which they were taken.
    row
        Digest of the parameters after the round, keyed unless they are public.
    spent
        Epsilon spent so far; null without a guarantee.
    incarnations
        Incarnation of each neighbour that was present at the end of the round.
    public
        True if ``row`` has no key, as the parameters follow from rows that the peers of the run keep.
    """

    round: int
    received: dict[str, dict[GossipStep, Digest]]
    totals: tuple[TotalTaken, ...]
    row: Digest
    spent: float | None
    incarnations: dict[str, int] = msgspec.field(default_factory=dict)
    public: bool = False


class PeerEnded(msgspec.Struct, frozen=True, tag="ended"):
    """A peer has ended.

    Attributes
    ----------
    rounds, model
        How many rounds it has, and the digest of the tensors of its model, keyed unless they are public.
    """

    rounds: int
    model: str


Fact = PeerBegan | RowSent | RoundPlayed | PeerEnded


class EvidenceEntry(msgspec.Struct, frozen=True):
    """Entry of a chain.

    Attributes
    ----------
    number, before
        Place in the chain, from 0, and the SHA-256 of the line before.
    fact
        What happened.
    signature
        Of all of this, in base64.
    """

    number: int
    before: str
    fact: Fact
    signature: str = ""

    @property
    def message(self) -> bytes:
        """Bytes that are signed."""
        return _encoder.encode(msgspec.structs.replace(self, signature=""))

    def signed_by(self, key: str, *, line: bytes) -> bool:
        """Return whether the owner of a public key signed the line of the entry.

        The bytes of the line count, with fields that only other versions of the program know.
        """
        ending = f'"signature":"{self.signature}"}}'.encode()
        unsigned = line.removesuffix(ending) + b'"signature":""}'
        return line.endswith(ending) and verify_text(key, unsigned, self.signature, domain=DOMAIN)


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(EvidenceEntry)
_SEGMENT_NAME = re.compile(r"(.+)\.evidence(?:\.([1-9][0-9]{0,8}))?\.jsonl", re.DOTALL)


class _Numbered(msgspec.Struct, frozen=True):
    """Place of an entry, of whatever version."""

    number: int


_numbered = msgspec.json.Decoder(_Numbered)


def line_digest(line: bytes) -> str:
    """Return the digest of a line of a chain, by which the next one refers to it."""
    return hashlib.sha256(line).hexdigest()


def former_chain(pretrained: str | None, peer: str) -> Path | None:
    """Return the file of a peer's chain in the run whose models another run begins with; ``None`` where it has none."""
    return None if pretrained is None else Path(pretrained).with_name(f"{peer}{SUFFIX}")


def chain_files(chain: Path, *, disk: Disk = DRIVE) -> list[Path]:
    """Return the files of a chain in their order, given the first, which may be elsewhere by now.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("ada.evidence.jsonl", "ada.evidence.10.jsonl", "ada.evidence.9.jsonl", "ada.evidence.key"):
    ...     (folder / name).touch()
    >>> [path.name for path in chain_files(folder / "ada.evidence.jsonl")]
    ['ada.evidence.jsonl', 'ada.evidence.9.jsonl', 'ada.evidence.10.jsonl']
    """
    names = [(place, name) for name in disk.names(chain.parent) if (place := _place(name)) and place[0] == chain.name]
    return [chain.with_name(name) for _, name in sorted(names)]


def first_file(file: Path) -> Path:
    """Return the first file of the chain of which this is one; any other file as it is."""
    place = _place(file.name)
    return file if place is None else file.with_name(place[0])


def _place(name: str) -> tuple[str, int] | None:
    """Return the name of the first file of a chain and the number of this one; ``None`` if it is of no chain."""
    match = _SEGMENT_NAME.fullmatch(name)
    return None if match is None else (f"{match[1]}{SUFFIX}", int(match[2] or 0))


def last_digest(chain: Path | None) -> str:
    """Return the digest of the last line of a chain, which stands for all of it; empty if it is not here.

    Raises
    ------
    InputError
        A file cannot be read.
    """
    for file in reversed([] if chain is None else chain_files(chain)):
        if line := _end_of(file):
            return line_digest(line)
    return ""


def _end_of(file: Path) -> bytes:
    """Return the last line of a file, of which no more than twice its length is read, or 128 kB."""
    try:
        with file.open("rb") as opened:
            size, length = opened.seek(0, os.SEEK_END), 1 << 16
            while True:
                start = max(0, size - length)
                opened.seek(start)
                data = opened.read(length)
                if start == 0 or b"\n" in data[:-1]:
                    return _last_line(data, len(data))
                if length >= LARGEST_LINE:
                    raise InputError(f"{file} has a line of more than {LARGEST_LINE} bytes; ask for the file again")
                length *= 2
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}); check its permissions") from None


def _last_line(data: bytes, end: int) -> bytes:
    r"""Return the last line before an end.

    Examples
    --------
    >>> _last_line(b"one\ntwo\nth", 8), _last_line(b"one\ntwo", 7), _last_line(b"one\n", 4)
    (b'two', b'two', b'one')
    """
    end -= data[end - 1 : end] == b"\n"
    return data[data.rfind(b"\n", 0, end) + 1 : end]


class Chain:
    """The entries of one peer, to which this process alone appends.

    Parameters
    ----------
    path
        First file, which may have entries of earlier incarnations; an incomplete last line is cut off.
    identity
        Signs the entries.
    disk
        Disk of the files.
    segment
        Bytes of a file after which the next one begins.

    Raises
    ------
    StorageError
        A file cannot be read or written.
    """

    def __init__(self, path: Path, identity: Identity, *, disk: Disk = DRIVE, segment: int = SEGMENT) -> None:
        self.path, self.identity, self.disk, self.segment = path, identity, disk, segment
        self._number, self._before = 0, FIRST
        try:
            files = chain_files(path, disk=disk) or [path]
            self._file, self._size = files[-1], -1
            for file in reversed(files):
                line, size = self._read_end(file)
                self._size = size if self._size < 0 else self._size
                if line:  # a file without one was begun, and the process ended
                    self._number, self._before = _numbered.decode(line).number + 1, line_digest(line)
                    break
        except OSError as error:
            raise StorageError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
        except msgspec.MsgspecError as error:
            raise StorageError(f"{path} does not end with an entry ({error}); move the evidence elsewhere") from None

    def _read_end(self, file: Path) -> tuple[bytes, int]:
        """Return the last complete line of a file and the size up to it; cut off what follows."""
        try:
            data = self.disk.read(file)
        except FileNotFoundError:
            data = b""
        end = data.rfind(b"\n") + 1
        if end < len(data):
            replace(file, data[:end], mode=OWNER_ONLY, disk=self.disk)
        return _last_line(data, end) if end else b"", end

    def append(self, fact: Fact) -> None:
        """Append an entry.

        Raises
        ------
        StorageError
            It cannot be written.
        """
        entry = EvidenceEntry(self._number, self._before, fact)
        signature = sign_text(self.identity, entry.message, domain=DOMAIN)
        line = _encoder.encode(msgspec.structs.replace(entry, signature=signature))
        try:
            if self._size >= self.segment:
                self.disk.sync(self._file)  # before a later entry exists, so that the chain can only lose its end
                _, number = _place(self._file.name) or ("", 0)
                stem = self.path.name.removesuffix(SUFFIX)
                self._file, self._size = self.path.with_name(f"{stem}.evidence.{number + 1}.jsonl"), 0
            self.disk.append(self._file, line + b"\n", mode=OWNER_ONLY)
        except OSError as error:
            raise StorageError(
                f"{self._file} cannot be written ({error.strerror}); check its permissions and free some space"
            ) from None
        self._number, self._before = self._number + 1, line_digest(line)
        self._size += len(line) + 1


def read_chain(path: Path) -> Iterator[tuple[bytes, EvidenceEntry]]:
    """Yield the lines of a chain, whose first file this is, with the entries in them; nothing is verified.

    Raises
    ------
    InputError
        A file cannot be read, or a line is no entry.
    """
    for file in chain_files(path) or [path]:
        for _, line, entry in read_entries(file):
            yield line, entry


def read_entries(file: Path) -> Iterator[tuple[int, bytes, EvidenceEntry]]:
    """Yield the lines of one file of a chain, with where they begin and the entries in them.

    Raises
    ------
    InputError
        The file cannot be read, or a line is no entry.
    """
    place = 0
    try:
        with file.open("rb") as opened:
            for number, whole in enumerate(iter(lambda: opened.readline(LARGEST_LINE), b""), start=1):
                line = whole.removesuffix(b"\n")
                yield place, line, decode_entry(line, f"{file}, line {number}")
                place += len(whole)
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}); check its permissions") from None


def decode_entry(line: bytes, where: str) -> EvidenceEntry:
    """Return the entry in a line.

    Raises
    ------
    InputError
        There is none.
    """
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise InputError(f"{where}: this is no entry of a chain ({error}); ask for the file again") from None


class Witness:
    """Notes of a peer on its rounds, as entries of its chain.

    Parameters
    ----------
    chain
        Its chain.
    key
        Key of the digests of its parameters, 32 bytes; ``None`` where these are public.
    keep
        Function that keeps a row and its weight before the row leaves; ``None`` where rows are not kept.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        key: bytes | None = None,
        keep: Callable[[torch.Tensor, float | None], None] | None = None,
    ) -> None:
        self.chain, self.key, self.keep = chain, key, keep
        self._received: dict[str, dict[str, str]] = defaultdict(dict)
        self._totals: list[TotalTaken] = []

    def begin(self, fact: PeerBegan) -> None:
        """Note that the peer begins."""
        self.chain.append(fact)

    def send(self, row: torch.Tensor, *, round: int, step: int, mass: float | None) -> None:
        """Note the row ``[P]`` of a gossip step before it leaves."""
        if self.keep is not None:
            self.keep(row, mass)
        self.chain.append(RowSent(round, step, row_digest(row, mass)))

    def receive(self, row: torch.Tensor, *, sender: str, round: int, step: int, mass: float | None) -> None:
        """Note a row ``[P]`` that arrived, as it travelled, of a gossip step of its sender."""
        self._received[sender][f"{round}.{step}"] = row_digest(row, mass)

    def take(self, total: Ints, *, attempt: int, number: int, participants: Sequence[str]) -> None:
        """Note a total ``[K]`` that all peers received; what came of a failed attempt is forgotten."""
        data = np.ascontiguousarray(total, "<i8").tobytes()
        values = base64.b64encode(zlib.compress(data, 1)).decode() if len(data) <= KEPT_TOTAL else ""
        if number == 0:
            self._totals = []
        digest = blake3.blake3(data).hexdigest()
        self._totals.append(TotalTaken(attempt, number, tuple(participants), digest, values))

    def play(
        self,
        row: torch.Tensor,
        *,
        round: int,
        spent: float | None,
        incarnations: Mapping[str, int],
        public: bool = False,
    ) -> None:
        """Note that a round has been played, with the parameters ``[P]`` after it, beside these neighbours.

        The digest of parameters that are ``public`` needs no key if the peers keep the rows from which they follow.
        """
        public &= self.keep is not None
        received = {sender: dict(rows) for sender, rows in sorted(self._received.items())}
        self.chain.append(
            RoundPlayed(
                round=round,
                received=received,
                totals=tuple(self._totals),
                row=row_digest(row, None, key=None if public else self.key),
                spent=spent,
                incarnations=dict(sorted(incarnations.items())),
                public=public,
            )
        )
        self._received.clear()
        self._totals = []

    def end(self, tensors: Mapping[str, torch.Tensor], *, rounds: int) -> None:
        """Note the model with which the peer ends."""
        self.chain.append(PeerEnded(rounds, tensors_digest(tensors, key=self.key)))


def row_digest(row: torch.Tensor, mass: float | None, *, key: bytes | None = None) -> str:
    """Return the digest of a row ``[P]`` as it travels, and of its weight; integers count by their values.

    Parameters
    ----------
    row, mass
        The row, and its weight.
    key
        Key of 32 bytes, without which nobody can confirm a guess of the row; ``None`` for a digest of all.

    Examples
    --------
    >>> row_digest(torch.tensor([1], dtype=torch.int32), None) == row_digest(torch.tensor([1]), None)
    True
    """
    numbers = row.detach().cpu().contiguous()
    numbers = numbers if numbers.is_floating_point() else numbers.to(torch.int64)
    hashed = _hash(key)
    hashed.update(f"{numbers.dtype} {mass!r} ".encode())
    if numbers.numel():
        hashed.update(numbers.view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _hash(key: bytes | None) -> blake3.blake3:
    return blake3.blake3() if key is None else blake3.blake3(key=key)


def tensors_digest(tensors: Mapping[str, torch.Tensor], *, key: bytes | None = None) -> str:
    """Return the digest of the tensors of a model by name, with a key as :func:`row_digest` takes one."""
    hashed = _hash(key)
    for name, tensor in sorted(tensors.items()):
        numbers = tensor.detach().cpu().contiguous()
        hashed.update(f"{name} {numbers.dtype} {[*numbers.shape]} ".encode())
        if numbers.numel():
            hashed.update(numbers.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def data_commitment(digests: Any, secret: bytes) -> str:
    """Return the keyed digest of the digests of a peer's samples, which nobody can guess without the key."""
    return blake3.blake3(_encoder.encode(digests), key=secret).hexdigest()
