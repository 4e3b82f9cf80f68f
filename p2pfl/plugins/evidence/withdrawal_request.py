"""Requests to leave a run, which the peer that withdraws signs and those who remain check before they replay."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.core.files import OWNER_ONLY, create, read_bounded
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment import Experiment
from p2pfl.experiment.approval import experiment_digest
from p2pfl.plugins.evidence.certificate import Certificate, Withdrawal, people_digest
from p2pfl.plugins.evidence.starting_model import lacks_start
from p2pfl.privacy.keys import Identity, Roster, key_text, parse_key, sign_text, signed_fields, verify_text
from p2pfl.results.evidence import SUFFIX, PeerBegan, RoundPlayed, read_chain
from p2pfl.results.lock import PEER_LOCK, RUN_LOCK

DOMAIN = "withdrawal"

SECRET_LENGTH = 32
"""Bytes of the key of the hash of people."""

KEY_SUFFIX = ".key"
"""Suffix of the file with that key, whose name is else that of the request."""

LARGEST_FILE = 1 << 20
"""Most bytes of a request that are read."""


class WithdrawalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request of a peer to leave a run, or to leave people of its table out of it.

    Attributes
    ----------
    schema
    peer
        Who asks.
    run
        Name of a live run; the name of the directory of a simulation.
    incarnations
        Starts of the peer in a live run, which no other run has.
    experiment
        SHA-256 of the experiment of the run (:func:`p2pfl.experiment.approval.experiment_digest`).
    roster
        Digest of the roster by which the signature is checked.
    people, digest
        People of its table who leave, and the keyed hash of their identifiers; 0 and empty if the peer itself leaves.
    date, reason
        Time of the request, in UTC, and why, in the words of the peer.
    signer, signature
        Public key of who signed all other fields, and the signature in base64.
    """

    schema: Literal[1] = 1
    peer: str
    run: str
    incarnations: tuple[int, ...] = ()
    experiment: str
    roster: str
    people: Annotated[int, msgspec.Meta(ge=0)] = 0
    digest: str = ""
    date: str
    reason: str = ""
    signer: str = ""
    signature: str = ""

    @property
    def who(self) -> str:
        """Return in words who is to leave."""
        return Withdrawal(self.peer, self.people, self.digest).who if self.people else self.peer


@dataclass(frozen=True)
class SignedRequest:
    """Request with the table of its file, whose fields of other versions its signature covers, too.

    Parameters
    ----------
    request, table
        The request, and the values of its file.
    secret
        Key of the hash of people, where it lies beside the file of the request; empty elsewhere.
    """

    request: WithdrawalRequest
    table: Mapping[str, Any]
    secret: bytes = b""

    @classmethod
    def of(cls, table: Mapping[str, Any], *, origin: str, secret: bytes = b"") -> SignedRequest:
        """Return the request in a table.

        Raises
        ------
        InputError
            It is none, or has values that a certificate could not repeat as they were signed.
        """
        try:
            request = msgspec.convert(table, WithdrawalRequest)
            repeated = msgspec.json.decode(msgspec.json.encode(table))
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{origin} is no request ({error}); name a file that p2pfl forget --ask wrote") from None
        if signed_fields(repeated) != signed_fields(table):
            raise InputError(
                f"{origin} is no request, because it has numbers that JSON has not; name a file that p2pfl forget "
                "--ask wrote"
            )
        return cls(request, table, secret)

    @classmethod
    def read(cls, path: Path) -> SignedRequest:
        """Return the request in a file.

        Raises
        ------
        InputError
            The file cannot be read, or is none.
        """
        try:
            table = json.loads(read_bounded(path, largest=LARGEST_FILE))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is no request ({error}); name a file that p2pfl forget --ask wrote") from None
        signed, key = cls.of(table, origin=str(path)), opening_path(path)
        return replace(signed, secret=read_openings(key)[0]) if signed.request.people and key.is_file() else signed

    def signature_fault(self, roster: Roster | None) -> str:
        """Return what is wrong with the signature; empty if it is that of the peer by the roster.

        Parameters
        ----------
        roster
            Public keys of all peers; without it any key passes.
        """
        request = self.request
        if not verify_text(request.signer, signed_fields(self.table), request.signature, domain=DOMAIN):
            return f"the request of {request.peer} was changed after it was signed, or nobody has signed it"
        if roster is None:
            return ""
        try:
            roster.check(request.peer, parse_key(request.signer))
        except P2PFLError as error:
            return f"the request of {request.peer} is not signed by its key in the roster: {error}"
        return ""


@dataclass(frozen=True)
class RunIdentity:
    """Facts that tell a run from others, as its directory has them.

    Parameters
    ----------
    run
        Name of a live run, or of the directory of a simulation.
    experiment
        SHA-256 of its experiment; empty if the model from which it started is gone.
    live
        True if peers played it over a network.
    rosters
        Digests of the rosters with which its peers began.
    starts
        Incarnations of each peer that its evidence has.
    """

    run: str
    experiment: str
    live: bool = False
    rosters: frozenset[str] = frozenset()
    starts: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, experiment: Experiment) -> RunIdentity:
        """Return the identity of the run in a directory.

        Raises
        ------
        InputError
            Its evidence cannot be read.
        """
        digest = "" if lacks_start(experiment) else experiment_digest(experiment)
        if not any((folder / lock).exists() for lock in (RUN_LOCK, PEER_LOCK)):
            return cls(folder.resolve().name, digest)
        starts, rosters = defaultdict[str, set[int]](set), set[str]()
        for chain in sorted((folder / "peers").glob(f"*{SUFFIX}")):
            for _, entry in read_chain(chain):
                match entry.fact:
                    case PeerBegan() as began:
                        starts[began.peer].add(began.incarnation)
                        rosters.add(began.roster)
                    case RoundPlayed() as played:
                        for peer, incarnation in played.incarnations.items():
                            starts[peer].add(incarnation)
        seen = {peer: frozenset(each) for peer, each in starts.items()}
        return cls(experiment.name, digest, live=True, rosters=frozenset(rosters - {""}), starts=seen)


def ask_to_leave(
    identity: RunIdentity,
    signer: Identity,
    roster: Roster,
    *,
    date: str,
    reason: str,
    people: Collection[str] = (),
    secret: bytes = b"",
) -> WithdrawalRequest:
    """Return the signed request of the peer whose key this is.

    Parameters
    ----------
    identity
        The run.
    signer, roster
        Key of the peer, and the public keys of all.
    date, reason
        Time in UTC, and why.
    people, secret
        Keys of people who leave, and the key of their hash; none if the peer itself leaves.

    Raises
    ------
    InputError
        The key is not that of a peer in the roster, or the directory of a live run is not that of the peer.
    """
    peer = signing_peer(signer, roster)
    if identity.live and peer not in identity.starts:
        raise InputError(
            f"{identity.run} was live, and its directory has no evidence of {peer}; ask from the directory that {peer} "
            "has written"
        )
    request = WithdrawalRequest(
        peer=peer,
        run=identity.run,
        incarnations=tuple(sorted(identity.starts.get(peer, ()))),
        experiment=identity.experiment,
        roster=roster.digest,
        people=len(people),
        digest=people_digest(people, secret) if people else "",
        date=date,
        reason=reason,
        signer=key_text(signer.public),
    )
    message = signed_fields(msgspec.to_builtins(request))
    return msgspec.structs.replace(request, signature=sign_text(signer, message, domain=DOMAIN))


def signing_peer(signer: Identity, roster: Roster) -> str:
    """Return the peer of a roster whose key this is.

    Raises
    ------
    InputError
        There is none.
    """
    owners = [peer for peer, key in roster.peers.items() if key == signer.public and key not in roster.revoked]
    if not owners:
        raise InputError(
            f"the key {signer.fingerprint} is that of no peer in the roster; sign with the key of the peer that "
            "withdraws"
        )
    return owners[0]


def request_faults(signed: SignedRequest, identity: RunIdentity, roster: Roster) -> list[str]:
    """Return why a request is not one of its peer to leave a run; nothing if it is.

    Parameters
    ----------
    signed
        The request.
    identity
        The run, by the files of who checks.
    roster
        Public keys of all peers.
    """
    request = signed.request
    if fault := signed.signature_fault(roster):
        return [fault]
    faults = list[str]()
    if request.run != identity.run or (identity.experiment and request.experiment != identity.experiment):
        which = request.run if request.run != identity.run else "another experiment of that name"
        faults.append(f"{request.peer} asks to leave {which}, not this run ({identity.run})")
    if request.roster not in {roster.digest, *identity.rosters}:
        faults.append(f"{request.peer} has signed its request for another roster than {roster.fingerprint}")
    met = identity.starts.get(request.peer, frozenset())
    if met and met.isdisjoint(request.incarnations):
        faults.append(f"{request.peer} asks to leave another run of this name: it was started at other times there")
    return faults


def replay_faults(
    signed: SignedRequest, *, leaving: Collection[str], without_people: bool, people: Mapping[str, Collection[str]]
) -> list[str]:
    """Return why a replay is not what a request asks for; nothing if it is.

    Parameters
    ----------
    signed
        The request.
    leaving
        Peers that the replay leaves out.
    without_people
        True if owners leave people out of it.
    people
        Their keys, by local owner.
    """
    request = signed.request
    if not request.people:
        others = ", ".join(sorted(leaving)) or "no peer"
        return [] if request.peer in leaving else [f"{request.peer} asks to leave, and the replay leaves out {others}"]
    if not without_people:
        return [f"{request.peer} asks for {request.people} people of its table, and the replay leaves out none"]
    if request.peer not in people:
        return []  # its owner alone knows them
    if not signed.secret:
        return [f"the key of the hash of people is not beside the request of {request.peer}; put it there"]
    if people_digest(people[request.peer], signed.secret) != request.digest:
        return [f"the people whom {request.peer} leaves out are not those of its request"]
    return []


def unknown_run(request: WithdrawalRequest, run: str, starts: Mapping[str, Collection[int]]) -> str:
    """Return what cannot be told of the run that a request is about; empty if starts of its peer were compared.

    Parameters
    ----------
    request, run
        The request, and the name of the run.
    starts
        Incarnations of peers that the evidence of the run has.
    """
    if starts.get(request.peer):
        return ""
    return f"whether {request.peer} asks to leave this run or another of its name, which {run} had no evidence to tell"


def certified_faults(signed: SignedRequest, certificate: Certificate, roster: Roster | None) -> list[str]:
    """Return why a request in a certificate does not fit it; nothing if it does.

    Parameters
    ----------
    signed, certificate
        The request, and the certificate that has it.
    roster
        Public keys of all peers; without it any key passes.
    """
    request = signed.request
    if fault := signed.signature_fault(roster):
        return [fault]
    faults = list[str]()
    other = certificate.experiment_before not in {"", request.experiment}
    seen = {*certificate.starts.get(request.peer, ())}
    if other or (not request.incarnations and request.run != certificate.run):
        faults.append(f"{request.peer} asks to leave another run")
    elif seen and seen.isdisjoint(request.incarnations):
        faults.append(f"{request.peer} asks to leave another run of this name")
    withdrawn = {each.peer: each.digest for each in certificate.withdrawals}
    if not request.people and request.peer not in certificate.peers:
        faults.append(f"{request.peer} asks to leave, and the certificate is not about it")
    if request.people and withdrawn.get(request.peer, request.digest) != request.digest:
        faults.append(f"{request.peer} asks for other people than those that the certificate is about")
    if request.people and request.peer in certificate.holders and request.peer not in withdrawn:
        faults.append(f"{request.peer} asks for people of its table, and its certificate is about none")
    return faults


def opening_path(path: Path) -> Path:
    """Return where the key of the hash of people lies beside a request, which stays with the owner."""
    return path.with_suffix(KEY_SUFFIX)


def write_request(request: WithdrawalRequest, path: Path, *, secret: bytes) -> None:
    """Write a request as JSON, and the key of the hash of people beside it.

    Raises
    ------
    InputError
        One of these files exists, the path is that of a key or of none, or the request has no text.
    StorageError
        A file cannot be written.
    """
    if not path.name or path.suffix.lower() == KEY_SUFFIX:
        raise InputError(
            f"{path} is no name for a request, beside which its key lies; choose another one, as request.json"
        )
    try:
        text = msgspec.json.format(msgspec.json.encode(request)) + b"\n"
    except UnicodeEncodeError:
        raise InputError("the reason has bytes that are no text; write it in UTF-8 after --request") from None
    if request.people:
        create(opening_path(path), _openings_text([secret]), mode=OWNER_ONLY)
    try:
        create(path, text, mode=0o644)
    except P2PFLError:
        if request.people:
            opening_path(path).unlink(missing_ok=True)  # it opens nothing
        raise


def write_openings(path: Path, secrets: Collection[bytes]) -> None:
    """Write keys of hashes of people, which only the owner reads.

    Raises
    ------
    StorageError
        The file cannot be written.
    """
    replace_file(path, _openings_text(secrets), mode=OWNER_ONLY)


def _openings_text(secrets: Collection[bytes]) -> bytes:
    return "".join(f"{each.hex()}\n" for each in secrets).encode()


def read_openings(path: Path) -> list[bytes]:
    """Return the keys of hashes of people in a file.

    Raises
    ------
    InputError
        It has none.
    """
    try:
        secrets = [bytes.fromhex(line) for line in path.read_text("utf-8").split()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no key of a hash ({error}); name the file that p2pfl forget wrote") from None
    if not secrets:
        raise InputError(f"{path} is no key of a hash, because it is empty; name the file that p2pfl forget wrote")
    return secrets
