r"""Evidence of a live run: what a peer sent, received and computed, as signed entries without data or secrets.

Each line of ``peers/NAME.evidence.jsonl`` has the SHA-256 of the line before it, and a signature of the peer:

    line_n = JSON(number n, before = SHA-256(line_(n-1)), fact, signature = Ed25519(key, "evidence", n, before, fact))

So nobody, the peer included, can leave out or change an entry without a break, or an entry of a neighbour that does not
fit: what a peer says that it received is what the sender says that it sent.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import blake3
import msgspec
import numpy as np
import torch

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import DRIVE, OWNER_ONLY, Disk, read_bounded, replace
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

LARGEST_CHAIN = 1 << 30
"""Most bytes of a chain that are read."""


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


def line_digest(line: bytes) -> str:
    """Return the digest of a line of a chain, by which the next one refers to it."""
    return hashlib.sha256(line).hexdigest()


def former_chain(pretrained: str | None, peer: str) -> Path | None:
    """Return the file of a peer's chain in the run whose models another run begins with; ``None`` where it has none."""
    return None if pretrained is None else Path(pretrained).with_name(f"{peer}{SUFFIX}")


def last_digest(chain: Path | None) -> str:
    """Return the digest of the last line of a chain, which stands for all of it; empty if it is not here."""
    if chain is None or not chain.is_file():
        return ""
    data = read_bounded(chain, largest=LARGEST_CHAIN)
    return line_digest(_last_line(data, len(data))) if data else ""


def _last_line(data: bytes, end: int) -> bytes:
    r"""Return the last line before an end; the others of a long chain are never copied.

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
        File, which may have entries of earlier incarnations; an incomplete last line is cut off.
    identity
        Signs the entries.
    disk
        Disk of the file.

    Raises
    ------
    StorageError
        The file cannot be read or written.
    """

    def __init__(self, path: Path, identity: Identity, *, disk: Disk = DRIVE) -> None:
        self.path, self.identity, self.disk = path, identity, disk
        try:
            data = disk.read(path)
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise StorageError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
        end = data.rfind(b"\n") + 1
        if end < len(data):
            replace(path, data[:end], mode=OWNER_ONLY, disk=disk)
        self._number, self._before = data.count(b"\n"), line_digest(_last_line(data, end)) if end else FIRST

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
            self.disk.append(self.path, line + b"\n", mode=OWNER_ONLY)
        except OSError as error:
            raise StorageError(
                f"{self.path} cannot be written ({error.strerror}); check its permissions and free some space"
            ) from None
        self._number, self._before = self._number + 1, line_digest(line)


def read_chain(path: Path) -> list[tuple[bytes, EvidenceEntry]]:
    """Return the lines of a chain with the entries in them; nothing is verified.

    Raises
    ------
    InputError
        The file cannot be read, or a line is no entry.
    """
    lines = read_bounded(path, largest=LARGEST_CHAIN).splitlines()
    entries = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append((line, _decoder.decode(line)))
        except msgspec.MsgspecError as error:
            raise InputError(
                f"{path}, line {number}: this is no entry of a chain ({error}); ask for the file again"
            ) from None
    return entries


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
