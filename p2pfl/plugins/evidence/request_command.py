"""Requests to leave a run on the command line: ``p2pfl forget --ask`` and ``--request``."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from p2pfl.cli import folders, terminal
from p2pfl.cli.running.repeating import check_trust
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment, read
from p2pfl.experiment.accounts import data_folder
from p2pfl.experiment.parts.peer_graph import peers_of, remaining
from p2pfl.plugins.evidence.certificate_page import asked_by
from p2pfl.plugins.evidence.evidence_commands import ForgetOptions
from p2pfl.plugins.evidence.forgetting import changes_without, withdrawn_keys
from p2pfl.plugins.evidence.withdrawal_request import (
    SECRET_LENGTH,
    RunIdentity,
    SignedRequest,
    ask_to_leave,
    opening_path,
    replay_faults,
    request_faults,
    signing_peer,
    unknown_run,
    write_request,
)
from p2pfl.privacy.keys import Identity, Roster

if TYPE_CHECKING:  # it imports torch
    from p2pfl.experiment import Plan


@dataclass(frozen=True)
class Requests:
    """Requests to leave a run.

    Parameters
    ----------
    words, signed
        What the operator says of them, and those that peers have signed.
    starts
        Incarnations of those peers, which the evidence of the run has.
    unchecked
        What its directory does not tell of them.
    """

    words: str = ""
    signed: tuple[SignedRequest, ...] = ()
    starts: Mapping[str, frozenset[int]] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()


def ask(options: ForgetOptions) -> int:
    """Write the signed request of a peer to leave a run, or to leave people of its table out."""
    from p2pfl.data.tables.declaration import withdrawals  # noqa: PLC0415 (it imports torch)

    path, old = Path(options.ask or ""), Path(options.run[0])
    before = _experiment_of(old, options)
    if options.key is None:
        raise InputError("the peer that withdraws signs its request; name its private key with --key")
    signer, roster = Identity.load(options.key), _roster_of(options, before)
    peer = signing_peer(signer, roster)
    if options.peer not in ([], [peer]) or bool(options.peer) == (options.rows is not None):
        raise InputError(
            f"{peer}, whose key this is, asks for itself alone; name it with --peer {peer}, or people of its table "
            "with --rows"
        )
    if peer not in remaining(before, peers_of(before)):
        raise InputError(f"{peer} takes no part in {old}; name a run that has its data")
    changes_without(before, options.peer, options.rows)  # refuses people without keys
    people = frozenset[str]() if options.rows is None else withdrawals(options.rows, data_folder(), peer=peer)
    if options.rows is not None and not people:
        raise InputError(f"the file of {peer} names nobody; write one key of a person a line")
    secret = secrets.token_bytes(SECRET_LENGTH)
    request = ask_to_leave(
        RunIdentity.read(old, before),
        signer,
        roster,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        reason=" ".join(options.request),
        people=people,
        secret=secret,
    )
    write_request(request, path, secret=secret)
    lines = [f"{request.who} asks to leave {request.run}; give {path} to all who remain"]
    lines += [f"the key of the hash of these people stays with you: {opening_path(path)}"] if people else []
    return terminal.answer(options, msgspec.to_builtins(request), lambda _: _show(lines))


def check_requests(options: ForgetOptions) -> int:
    """Check that requests are of their peers, and are about this run."""
    if len(options.run) > 1 or options.rows or options.opening:
        raise InputError("a request is checked with one run directory and --roster; leave out the rest")
    old = Path(options.run[0])
    before = _experiment_of(old, options)
    asked = _valid_requests(options, old, before)
    if asked.words:
        raise InputError(f"{asked.words} is no file; name the request that the peer has signed")
    contents = [msgspec.to_builtins(each.request) for each in asked.signed]
    findings = [f"not checked: {each}" for each in asked.unchecked]
    lines = [*(asked_by(each.request) for each in asked.signed), *findings]
    return terminal.answer(options, {"requests": contents, "findings": findings}, lambda _: _show(lines))


def _experiment_of(old: Path, options: ForgetOptions) -> Experiment:
    """Return the experiment of a run, which the peer that leaves may not have played to its end."""
    if not folders.begun(old):
        raise InputError(f"{old} is no run directory, because it has no experiment.toml; check the path")
    check_trust(old, trust=options.trust_code, command="forget")
    return read(old / "experiment.toml", trust_code=True)  # as checked above


def requests_of(options: ForgetOptions, old: Path, before: Experiment, resolved: Plan) -> Requests:
    """Return the requests to leave a run, which a replay does as they ask."""
    after, asked = resolved.experiment, _valid_requests(options, old, before)
    leaving = {*after.learning.without} - {*before.learning.without}
    people = withdrawn_keys(after, resolved.federation.peers)
    without_people = "without" in after.data.options
    faults = [
        fault
        for each in asked.signed
        for fault in replay_faults(each, leaving=leaving, without_people=without_people, people=people)
    ]
    if faults:
        raise InputError(f"{'; '.join(faults)}; replay what was asked for")
    return asked


def _valid_requests(options: ForgetOptions, old: Path, before: Experiment) -> Requests:
    """Return the requests that the options name, each signed by its peer for this run."""
    files = [Path(each) for each in options.request if _is_file(each)]
    words = [each for each in options.request if not _is_file(each)]
    if lost := [each for each in words if each.endswith(".json")]:
        raise InputError(f"there is no request {lost[0]}; check the path")
    if not files:
        return Requests("; ".join(words))
    signed, roster = [*map(SignedRequest.read, files)], _roster_of(options, before)
    identity = RunIdentity.read(old, before)
    if faults := [fault for each in signed for fault in request_faults(each, identity, roster)]:
        raise InputError(f"{'; '.join(faults)}; ask the peer for a request to leave this run")
    requests = [each.request for each in signed]
    asking = Counter(each.peer for each in requests)
    if twice := sorted(peer for peer, number in asking.items() if number > 1):
        raise InputError(f"{twice[0]} has signed {asking[twice[0]]} of these requests; give the one that is to be done")
    starts = {peer: each for peer, each in identity.starts.items() if peer in asking}
    unchecked = [unknown_run(each, identity.run, starts) for each in requests if identity.live or each.incarnations]
    return Requests("; ".join(words), tuple(signed), starts, tuple(filter(None, unchecked)))


def _is_file(text: str) -> bool:
    """Return whether a text is the path of a file, which a long one cannot be."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def _roster_of(options: ForgetOptions, before: Experiment) -> Roster:
    """Return the public keys by which requests are checked."""
    path = options.roster or before.trust.roster
    if path is None:
        raise InputError(
            "the signature of a request is checked by the public keys of all peers; name them with --roster"
        )
    return Roster.read(path)


def _show(lines: Sequence[str]) -> None:
    for line in lines:
        terminal.note(line)
