"""Change of a running swarm: the message that its operator signs, and the answer of a peer.

A change ends a run after a round, and all its peers go on with another one from their last models, as ``p2pfl next``
begins it: with other settings in ``[learning]`` and ``[topology]``, another number of rounds and another roster. It
comes twice. First as a proposal without a round, to which each peer answers whether it can follow; then, once all have
agreed, with the round. The operator that the roster of the run names signs both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from p2pfl.core.errors import DecodeError, PeerError, StorageError
from p2pfl.experiment.schema import ENDLESS, Experiment
from p2pfl.privacy.keys import Identity, Roster, canonical, key_text, sign_text, signed_fields, verify_text

MAX_BYTES = 60 * 1024
"""Largest number of bytes of a change, as it travels."""

DOMAIN, ANSWER_DOMAIN = "swarm-change", "change-answer"

NEXT = "next"
"""Folder in a run directory with the experiment, the roster and the order of the run that follows it."""

ORDER = "order.json"
"""File there with the order."""

Digits = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Number = Annotated[int, Meta(ge=1, le=2**48)]
Round = Annotated[int, Meta(ge=1, le=2**32)]


class SwarmChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change of a running swarm.

    Attributes
    ----------
    swarm
        Name of the experiment.
    number
        Number that grows with each change of a swarm.
    run
        :func:`run_digest` of the run that ends.
    settings
        ``rounds`` and the tables ``learning`` and ``topology`` of the next run.
    roster
        Content of its roster file.
    last
        Number of rounds after which the run ends; ``None`` in a proposal.
    signature
        Signature of the operator of all other fields, in base64.

    Examples
    --------
    >>> operator = Identity(bytes(range(32)))
    >>> change = SwarmChange(swarm="plant", number=1, run="0" * 64, settings={"rounds": 9}, roster="")
    >>> signed = change.signed(operator)
    >>> SwarmChange.decode(signed.encode()).check(operator.public, swarm="plant", run="0" * 64)
    """

    swarm: Annotated[str, Meta(max_length=256)]
    number: Number
    run: Digits
    settings: dict[str, Any]
    roster: Annotated[str, Meta(max_length=MAX_BYTES)]
    last: Round | None = None
    signature: Annotated[str, Meta(max_length=128)] = ""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` returned.

        Raises
        ------
        DecodeError
            The bytes are no change; nothing else is raised.
        """
        if len(data) > MAX_BYTES:
            raise DecodeError(f"a change of a swarm has at most {MAX_BYTES} bytes")
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError):
            raise DecodeError("the bytes are no change of a swarm") from None  # the cause has words of the sender

    def encode(self) -> bytes:
        """Return the bytes of the change, as files have them and as it travels."""
        return msgspec.json.encode(self)

    @property
    def content(self) -> str:
        """SHA-256 of what changes, the same in a proposal and in the order that follows."""
        table = msgspec.to_builtins(self)
        return hashlib.sha256(canonical({**table, "last": None, "signature": ""})).hexdigest()

    @property
    def digest(self) -> bytes:
        """SHA-256 of all fields."""
        return hashlib.sha256(canonical(msgspec.to_builtins(self))).digest()

    @property
    def start(self) -> str:
        """Text by which the peers of the next run announce with what they begin, whether or not they have a model."""
        return f"change {self.digest.hex()}"

    def signed(self, operator: Identity) -> Self:
        """Return the change with the signature of the operator."""
        message = signed_fields(msgspec.to_builtins(self))
        return msgspec.structs.replace(self, signature=sign_text(operator, message, domain=DOMAIN))

    def check(self, operator: bytes, *, swarm: str, run: str | None) -> None:
        """Return if the operator has signed this for a run, or for any with ``None``.

        Raises
        ------
        PeerError
            They have not, or it is for another swarm or another run.
        """
        message = signed_fields(msgspec.to_builtins(self))
        if not verify_text(key_text(operator), message, self.signature, domain=DOMAIN):
            raise PeerError("the operator that the roster names has not signed it")
        if self.swarm != swarm:
            raise PeerError("it is for another swarm")
        if run is not None and self.run != run:
            raise PeerError("it is for another run of this swarm")

    @property
    def next_roster(self) -> Roster:
        """Roster of the next run.

        Raises
        ------
        InputError
            It is no roster.
        """
        return Roster.parse(self.roster)


class RunOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Order by which the run of a peer begins.

    Attributes
    ----------
    change
        The order.
    late
        True if the peer did not end the run before with the others, so that it takes their models in its first round.
    """

    change: SwarmChange
    late: bool

    def encode(self) -> bytes:
        """Return the bytes of its file."""
        return msgspec.json.encode(self)


class ChangeAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answer of a peer to a change.

    Attributes
    ----------
    swarm, peer
        Names of the swarm and of the peer.
    content
        :attr:`SwarmChange.content`.
    last
        Number of rounds after which the peer ends its run; ``None`` while it knows only the proposal.
    round
        Number of rounds that it has begun.
    refused
        Why it does not follow; empty if it does.
    signature
        Signature of the peer of all other fields, in base64.
    """

    swarm: Annotated[str, Meta(max_length=256)]
    peer: Annotated[str, Meta(max_length=22)]
    content: Digits
    last: Round | None
    round: Annotated[int, Meta(ge=0, le=2**32)]
    refused: Annotated[str, Meta(max_length=2048)] = ""
    signature: Annotated[str, Meta(max_length=128)] = ""

    def encode(self, identity: Identity) -> bytes:
        """Return the bytes of the answer with the signature of its peer."""
        signature = sign_text(identity, signed_fields(msgspec.to_builtins(self)), domain=ANSWER_DOMAIN)
        return msgspec.json.encode(msgspec.structs.replace(self, signature=signature))

    @classmethod
    def decode(cls, data: bytes, *, swarm: str, peer: str, public: bytes) -> Self:
        """Read the answer of a peer.

        Raises
        ------
        DecodeError
            The bytes are no answer of this peer in this swarm; nothing else is raised.
        """
        try:
            answer = msgspec.json.decode(data[:MAX_BYTES], type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
            raise DecodeError(f"the bytes are no answer to a change ({error})") from None
        message = signed_fields(msgspec.to_builtins(answer))
        ours = (answer.swarm, answer.peer) == (swarm, peer)
        if not ours or not verify_text(key_text(public), message, answer.signature, domain=ANSWER_DOMAIN):
            raise DecodeError(f'"{peer}" has not signed the answer')
        return answer


def run_digest(facts: Mapping[str, str]) -> str:
    """Return the SHA-256 of what all peers of a run announce alike, which names the run.

    Examples
    --------
    >>> run_digest({"rounds": "3"})[:16]
    'c7ba1203c69703d7'
    """
    return hashlib.sha256(canonical(dict(facts))).hexdigest()


def stated_rounds(facts: Mapping[str, str]) -> int:
    """Return the number of rounds that peers of a run announce; :data:`ENDLESS` without an end.

    Examples
    --------
    >>> stated_rounds({"rounds": "400"}), stated_rounds({"rounds": "endless"}) == ENDLESS
    (400, True)
    """
    text = facts.get("rounds", str(Experiment().rounds))
    return int(text) if text.isdecimal() and len(text) <= len(str(ENDLESS)) else ENDLESS


def order_of(experiment: Experiment) -> RunOrder | None:
    """Return the order by which a run begins; ``None`` if no change of the swarm began it.

    Raises
    ------
    StorageError
        The file of the order is damaged.
    """
    roster = experiment.trust.roster
    if roster is None or Path(roster).parent.name != NEXT:
        return None
    path = Path(roster).with_name(ORDER)
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunOrder)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise StorageError(f"{path} cannot be used ({error}); restore it from a backup") from None
