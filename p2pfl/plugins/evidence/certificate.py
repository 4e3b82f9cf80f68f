"""Certificates that a run was replayed without peers or people, and that files of the old one were deleted."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.core.files import read_bounded
from p2pfl.core.files import replace as replace_file
from p2pfl.privacy.keys import (
    Identity,
    canonical,
    fingerprint,
    key_text,
    parse_key,
    sign_text,
    signed_fields,
    verify_text,
)
from p2pfl.results.run_files import DELETION_FILE

FILE = "forgotten.json"
"""Name of a certificate in the directory of the replay."""

DOMAIN = "forgotten"

LARGEST_FILE = 1 << 24
"""Most bytes of a certificate that are read."""

FolderName = Annotated[str, msgspec.Meta(pattern=r"^(?!\.{1,2}\Z)[^/\\\0]+\Z")]
"""Name of a folder or file, without a path."""

InnerPath = Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(?:[^\0]*/)?\.\.(?:/|\Z))[^\\\0]+\Z")]
"""Path that stays within a folder."""

PROMISE = (
    "The new model is, to the precision stated, the one that this software would have made without these data, if the "
    "peers that signed followed the protocol."
)

REMAINS = (
    "copies of the old model that were given to others or exported elsewhere, models that started from it, and backups",
    "figures that were published",
    "settings, costs and account of the old run, and signed evidence of gossip whose digests of models have a key",
    "what the old and the new model together show of who left",
)
"""Traces that no replay takes back."""


class DeletedFile(msgspec.Struct, frozen=True):
    """File of the old run that was deleted.

    Attributes
    ----------
    path
        Within the run directory.
    sha256
        Digest of its content.
    """

    path: InnerPath
    sha256: str


class EmptiedFile(msgspec.Struct, frozen=True):
    """File of the old run of which only what was learned from data was deleted.

    Attributes
    ----------
    path
        Within the run directory.
    keys
        Keys of its table that are null since.
    sha256
        Digest of its content before.
    """

    path: InnerPath
    keys: tuple[str, ...]
    sha256: str


class Deletion(msgspec.Struct, frozen=True):
    """List of what was deleted of a run, which lies in its directory from before the first file is gone.

    Attributes
    ----------
    deleted, emptied
        Files that are deleted, as a whole or in part.
    """

    deleted: tuple[DeletedFile, ...] = ()
    emptied: tuple[EmptiedFile, ...] = ()


class Withdrawal(msgspec.Struct, frozen=True):
    """People who have withdrawn from the table of a peer.

    Attributes
    ----------
    peer
        Its name.
    people
        How many.
    digest
        HMAC-SHA256 of their sorted keys under a key that stays with the owner.
    """

    peer: str
    people: int
    digest: str

    @property
    def who(self) -> str:
        """The people in words.

        Examples
        --------
        >>> Withdrawal("ada", 1, "").who, Withdrawal("ada", 30, "").who
        ('1 person of ada', '30 people of ada')
        """
        return f"{self.people} {'person' if self.people == 1 else 'people'} of {self.peer}"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Certificate of a replay.

    Attributes
    ----------
    schema
    run, replay
        Names of the directories of the old run and of its replay.
    date
        Time of the certificate, in UTC.
    request
        Who asked and when, in the words of the operator; empty if nobody has stated it.
    requests
        Requests that peers have signed (:class:`p2pfl.plugins.evidence.withdrawal_request.WithdrawalRequest`).
    starts
        Incarnations of each peer that asks, which the evidence of the old run has; none in a simulation.
    peers
        Peers that left.
    absent
        Peers that the old run already lacked.
    withdrawals
        People who left, by the owner of their rows.
    method, rounds
        ``replay``, and how many rounds were played again.
    precision
        To which precision the replay equals a run that never had these data.
    experiment_before, experiment_after
        SHA-256 of both experiments (:func:`p2pfl.experiment.approval.experiment_digest`); the former is empty if
        the model with which the old run started is gone.
    start
        SHA-256 of the model of an earlier run with which the replay starts; empty without one.
    models_before, models_after
        SHA-256 of each model file, by its name.
    parameters
        Digest of the tensors of the new model where all peers hold the same one, as exact models are.
    holders, others
        Peers whose copies of the old model this certificate is about, and those that remain besides them.
    data
        By remaining peer, whether its samples are those of the old run, apart from withdrawals; null if unknown.
    accepted
        What the difference of both models shows of few people or of one peer, which ``--unaccounted`` has accepted.
    deleted, emptied
        Files of the old run that were deleted, as a whole or in part.
    remains
        What no replay takes back.
    undone
        What was not done, and why.
    law
        Articles of the GDPR that the certificate serves.
    signer, signature
        Public key of who signed all other fields, and the signature in base64; empty if nobody did.
    """

    schema: Literal[1] = 1
    run: FolderName
    replay: FolderName
    date: str
    request: str = ""
    requests: tuple[dict[str, Any], ...] = ()
    starts: dict[str, tuple[int, ...]] = {}
    peers: tuple[str, ...]
    absent: tuple[str, ...] = ()
    withdrawals: tuple[Withdrawal, ...]
    method: Literal["replay"] = "replay"
    rounds: int
    precision: str
    experiment_before: str
    experiment_after: str
    start: str = ""
    models_before: dict[FolderName, str]
    models_after: dict[FolderName, str]
    parameters: str = ""
    holders: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    data: dict[str, bool | None]
    accepted: tuple[str, ...] = ()
    deleted: tuple[DeletedFile, ...]
    emptied: tuple[EmptiedFile, ...] = ()
    remains: tuple[str, ...] = REMAINS
    undone: tuple[str, ...]
    law: tuple[str, ...] = ("17 (erasure)", "19 (recipients)", "5(2) (accountability)", "12(3) (one month)")
    signer: str = ""
    signature: str = ""

    def signed_in(self, message: bytes) -> bool:
        """Return whether the owner of ``signer`` signed the bytes of the file that a signature covers."""
        return verify_text(self.signer, message, self.signature, domain=DOMAIN)

    @property
    def signed(self) -> str:
        """Words for the signer; any key passes the check of the signature, so compare the fingerprint."""
        return f"by the key {fingerprint(parse_key(self.signer))}" if self.signer else "by nobody yet"


def sign_certificate(certificate: Certificate, signer: Identity) -> Certificate:
    """Return a certificate with the signature of an identity."""
    named = msgspec.structs.replace(certificate, signer=key_text(signer.public))
    message = signed_fields(msgspec.to_builtins(named))
    return msgspec.structs.replace(named, signature=sign_text(signer, message, domain=DOMAIN))


def certificate_text(certificate: Certificate) -> bytes:
    """Return a certificate as JSON, which has been read again and is as it was signed.

    Raises
    ------
    InputError
        It has values that JSON has not, or is too large to be read.
    """
    try:
        text = msgspec.json.format(msgspec.json.encode(certificate)) + b"\n"
        message, read = _parsed(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"the certificate cannot be written as JSON ({error}); check the requests in it") from None
    if len(text) > LARGEST_FILE or (certificate.signer and not read.signed_in(message)):
        why = f"it has {len(text):,} bytes" if len(text) > LARGEST_FILE else "its signature does not hold in a file"
        raise InputError(f"nobody could check the certificate, because {why}; check the requests in it")
    return text


def write_certificate(certificate: Certificate, folder: Path) -> Path:
    """Write a certificate into the directory of the replay, and return its path.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    path = folder / FILE
    replace_file(path, certificate_text(certificate), mode=0o644)
    return path


def read_certificate(path: Path) -> tuple[bytes, Certificate]:
    """Return the bytes of a certificate that its signature covers, with fields of other versions, and the certificate.

    Raises
    ------
    InputError
        The file cannot be read, or is none.
    """
    text = read_bounded(path, largest=LARGEST_FILE)
    try:
        return _parsed(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no certificate ({error}); name a {FILE} that p2pfl forget wrote") from None


def _parsed(text: bytes) -> tuple[bytes, Certificate]:
    """Return the bytes that the signature of a certificate covers, and the certificate."""
    certificate = msgspec.json.decode(text, type=Certificate)
    return signed_fields(json.loads(text)), certificate


def people_digest(keys: Iterable[str], secret: bytes) -> str:
    """Return the keyed digest of the keys of people, whatever their order.

    Examples
    --------
    >>> people_digest(["b", "a"], bytes(32)) == people_digest(["a", "b"], bytes(32))
    True
    """
    return hmac.new(secret, canonical(sorted(keys)), hashlib.sha256).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file.

    Raises
    ------
    InputError
        It cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check its permissions") from None


def read_deletion(folder: Path) -> Deletion:
    """Return the list of what was deleted of a run; an empty one if nothing was.

    Raises
    ------
    InputError
        The file is no such list.
    """
    path = folder / DELETION_FILE
    if not path.is_file():
        return Deletion()
    try:
        return msgspec.json.decode(read_bounded(path, largest=LARGEST_FILE), type=Deletion)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"{path} is no list of deleted files ({error}); take it from a backup") from None


def write_deletion(deletion: Deletion, folder: Path) -> None:
    """Write the list of what is deleted of a run into its directory.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    replace_file(folder / DELETION_FILE, msgspec.json.format(msgspec.json.encode(deletion)) + b"\n", mode=0o644)
