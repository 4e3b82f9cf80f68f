"""Change of a running swarm: the message that its operator signs, and the checks of a peer before it follows.

A change ends a run after a round, and all its peers go on with another one from their last models, as ``p2pfl next``
begins it: with other settings in ``[learning]`` and ``[topology]``, another number of rounds and another roster. It
comes twice. First as a proposal without a round, to which each peer answers whether it can follow; then, once all have
agreed, with the round. The operator that the roster of the run names signs both.

What the operator can change is short on purpose. Data, models, privacy, telemetry, brokers, keys, files and code stay
those that the owner of each device has agreed to.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from p2pfl.core.errors import DecodeError, InputError, PeerError
from p2pfl.experiment.accounts import uncounted_start
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.file.own_code import references
from p2pfl.experiment.file.reading import flat, plain, read
from p2pfl.experiment.parts.peer_graph import built, is_own, peers_of
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.settings_rules import check as check_rules
from p2pfl.experiment.site_policy import policy_paths, read_policy
from p2pfl.privacy.keys import Identity, Roster, canonical, key_text, sign_text, signed_fields, verify_text

MAX_BYTES = 60 * 1024
"""Largest number of bytes of a change, as it travels."""

SECTIONS = ("learning", "topology")
"""Sections of the experiment file that a change replaces as a whole, besides ``rounds``."""

OF_OWNERS = ("learning.max_norm", "learning.example_noise", "learning.learner", "learning.device")
"""Keys of these sections that stay as they are: what they protect or run is the decision of a device's owner."""

ABOVE = re.compile(r"(?<![\w:/.])/(?:[^/\s\"'()]+/)+")
"""Folders of an absolute path in a sentence, which say more of a device than the operator needs."""

DOMAIN, ANSWER_DOMAIN = "swarm-change", "change-answer"

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

    def signed(self, operator: Identity) -> Self:
        """Return the change with the signature of the operator."""
        message = signed_fields(msgspec.to_builtins(self))
        return msgspec.structs.replace(self, signature=sign_text(operator, message, domain=DOMAIN))

    def check(self, operator: bytes, *, swarm: str, run: str) -> None:
        """Return if the operator has signed this for a run.

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
        if self.run != run:
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


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return what a change takes from an experiment."""
    table = plain(experiment)
    return {"rounds": table["rounds"], **{section: table[section] for section in SECTIONS}}


def changed_experiment(before: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return an experiment with the settings of a change.

    Raises
    ------
    InputError
        The settings are wrong, or concern what the operator cannot change.

    Examples
    --------
    >>> before = read({"rounds": 3, "learning": {"rate": 0.5}})
    >>> changed_experiment(before, settings_of(before) | {"rounds": 9}).rounds
    9
    >>> changed_experiment(before, {"data": {}})
    Traceback (most recent call last):
    p2pfl.core.errors.InputError: the operator cannot change "data"; they change rounds, learning and topology alone
    """
    table = plain(before)
    for name, value in settings.items():
        if name not in {"rounds", *SECTIONS}:
            raise InputError(
                f'the operator cannot change "{name[:40]}"; they change rounds, learning and topology alone'
            )
        table[name] = value
    after = read(table)
    was, now = flat(before), flat(after)
    for key in OF_OWNERS:
        if was.get(key) != now.get(key):
            raise InputError(f"the operator cannot change {key}; its owner sets it on each device")
    if added := {*references(plain(after))} - {*references(plain(before))}:
        raise InputError(f'the operator cannot name the code "{min(added)}"; only the owner of a device can')
    if after.topology.files and after.topology.files != before.topology.files:
        raise InputError(f'the operator cannot name the file "{after.topology.files[0]}"; only the owner can')
    return after


def changed_keys(before: Experiment, after: Experiment) -> dict[str, tuple[Any, Any]]:
    """Return the keys that differ, each with its value before and after.

    Examples
    --------
    >>> changed_keys(Experiment(rounds=3), Experiment(rounds=9))
    {'rounds': (3, 9)}
    """
    was, now = flat(before), flat(after)
    return {key: (was.get(key), now.get(key)) for key in now if was.get(key) != now.get(key)}


def followers(experiment: Experiment) -> Sequence[str]:
    """Return the peers of an experiment; none of a graph by a function of the user's own, which nobody calls here."""
    own = not experiment.topology.files and is_own(str(experiment.topology.kind))
    return () if own else peers_of(experiment)


def begun_after(experiment: Experiment, folder: Path, *, peer: str | None, roster: Path | None = None) -> Experiment:
    """Return an experiment that begins with the last models of the run in a directory.

    Parameters
    ----------
    experiment
        Settings of the next run.
    folder
        Directory of the run that ends.
    peer
        Peer whose model all have, if they have agreed on one; ``None`` if each begins with its own.
    roster
        File of its roster; ``None`` for the present one.
    """
    start = str(folder / "peers" / f"{'{peer}' if peer is None else peer}.safetensors")
    model = msgspec.structs.replace(experiment.model, pretrained=start)
    trust = experiment.trust if roster is None else msgspec.structs.replace(experiment.trust, roster=str(roster))
    return msgspec.structs.replace(experiment, model=model, trust=trust)


def refusal(change: SwarmChange, before: Experiment, *, peer: str, folder: Path | None) -> str | None:
    """Return why a peer cannot follow a change, in a clause without paths, as it is public; ``None`` if it can.

    Parameters
    ----------
    change
        Change whose signature was checked.
    before
        Experiment of the present run.
    peer
        Name of the peer.
    folder
        Directory of the present run; ``None`` if it keeps none.
    """
    try:
        after, roster = changed_experiment(before, change.settings), change.next_roster
        if isinstance(count := after.topology.peers, int) and count > MAX_BYTES:  # more than any roster has
            return f"its roster lacks most of the {count} peers"
        names = followers(after)
        if not roster.operator:
            return "its roster names no operator, so nobody could change the next run"
        if missing := [name for name in names if name not in roster.peers or roster.peers[name] in roster.revoked]:
            return f"its roster lacks {missing[0]}"
        return _beginning(before, after, peer=peer, folder=folder) if peer in names else None
    except InputError as error:
        return ABOVE.sub("", str(error) if folder is None else str(error).replace(f"{folder}/", ""))


def _beginning(before: Experiment, after: Experiment, *, peer: str, folder: Path | None) -> str | None:
    """Return why a peer cannot begin the next run with its last model; data are not read for that."""
    from p2pfl.experiment.parts.gossip_parts import mixing_weights  # noqa: PLC0415 (these import torch)
    from p2pfl.experiment.parts.learner_parts import check_names  # noqa: PLC0415
    from p2pfl.experiment.resolving import GIVEN  # noqa: PLC0415
    from p2pfl.topology import check_connected  # noqa: PLC0415

    if folder is None:
        return "its run keeps no files, so no other can follow it"
    if before.learning.learner is not None or Composition.of(before).algorithm.additive:
        return "nothing follows a run with a learner of its own, or with a model from totals"
    after = begun_after(after, folder, peer=peer if before.learning.consensus else None)
    composition = Composition.of(after, live=True)
    check_rules(composition)
    check_names(after, given=GIVEN)
    graph = built(after).without(after.learning.without) if after.learning.without else built(after)
    check_connected(graph)
    check_rules(composition.on(graph, mixing_weights(after, graph)))
    if composition.claims and uncounted_start(after) is not None:
        return "no account there adds up the epsilon of both runs; set privacy.budget, and go on with p2pfl next"
    if any(read_policy(path).officer is not None for path in policy_paths(after, [peer]).values()):
        return "the officer of its site approves each experiment; go on there with p2pfl next"
    return None
