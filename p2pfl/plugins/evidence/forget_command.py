"""``p2pfl forget``: a run as if peers or people had never been in it, and the certificate of that."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from p2pfl.cli import folders, terminal
from p2pfl.cli.experiments import note_tables, warn_unaccounted
from p2pfl.cli.running.repeating import check_repeatable, check_trust
from p2pfl.core.errors import InputError, RunError
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment import Experiment, read
from p2pfl.experiment.approval import experiment_digest
from p2pfl.experiment.parts.peer_graph import peers_of
from p2pfl.plugins.evidence.certificate import (
    FILE,
    Certificate,
    Withdrawal,
    certificate_text,
    people_digest,
    read_certificate,
    sign_certificate,
    write_certificate,
)
from p2pfl.plugins.evidence.certificate_check import check_certificate, check_together
from p2pfl.plugins.evidence.certificate_page import certificate_page, sentences
from p2pfl.plugins.evidence.evidence_commands import ForgetOptions
from p2pfl.plugins.evidence.forgetting import (
    PEERS,
    accepted_exposures,
    changes_without,
    check_left,
    check_same,
    common_parameters,
    compare_data,
    delete_models,
    list_deletion,
    listed_models,
    lone_difference,
    model_digests,
    precision_of,
    withdrawn_keys,
)
from p2pfl.plugins.evidence.request_command import ask, check_requests, requests_of
from p2pfl.plugins.evidence.starting_model import check_start, lacks_start, start_digest
from p2pfl.plugins.evidence.withdrawal_request import SECRET_LENGTH, read_openings, write_openings
from p2pfl.privacy.keys import Identity, Roster
from p2pfl.results.run_files import records_of, table_of

if TYPE_CHECKING:  # it imports torch
    from p2pfl.experiment import Plan

OPENING_FILE = "withdrawn.key"
"""Name of the file with the key of the hashes of withdrawn keys, which stays with the owner."""


def run(options: ForgetOptions) -> int:
    """Replay, certify and delete, or check a certificate.

    Raises
    ------
    InputError
        Options do not go together, nobody leaves, or the run cannot be replayed.
    RunError
        A certificate is not so.
    """
    if options.check:
        return check_requests(options) if options.request else _check(options)
    return _forget(options)


def _forget(options: ForgetOptions) -> int:
    """Replay, certify and delete; or write a request to do so."""
    if len(options.run) > 1:
        raise InputError("several runs go with --check alone; forget in one run after the other")
    if options.ask is not None:
        return ask(options)
    old = Path(options.run[0])
    check_repeatable(old, live=options.replayed is not None)
    check_trust(old, trust=options.trust_code, command="forget")
    signer = None if options.key is None else Identity.load(options.key)
    before = read(old / "experiment.toml", trust_code=True)  # as checked above
    make = _played if options.replayed is not None else _replayed
    replay, resolved = make(options, old, before)
    after = resolved.experiment
    withdrawn = withdrawn_keys(after, resolved.federation.peers)
    asked = requests_of(options, old, before, resolved)
    fresh = secrets.token_bytes(SECRET_LENGTH)
    openings = dict.fromkeys(withdrawn, fresh) | {
        each.request.peer: each.secret for each in asked.signed if each.secret
    }
    if withdrawn:
        write_openings(replay / OPENING_FILE, dict.fromkeys(openings[peer] for peer in sorted(withdrawn)))
    data = compare_data(old, resolved, replay=replay)
    leaving = sorted({*after.learning.without} - {*before.learning.without})
    undone = ["the models of the old run were kept, as --keep asks"] if options.keep else []
    if signer is None:
        undone.append("nobody has signed this certificate; sign it with --key")
    holders = tuple(sorted(data))
    deletion = list_deletion(old)
    if lacks_start(before):
        undone.append("the model with which the old run started is gone, so nobody can tell the digest of its settings")
    if unknown := check_start(after, peers=leaving, people=withdrawn):
        undone.append(unknown)
    certificate = Certificate(
        run=old.resolve().name,
        replay=replay.resolve().name,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        request=asked.words,
        requests=tuple(dict(each.table) for each in asked.signed),
        starts={peer: tuple(sorted(starts)) for peer, starts in sorted(asked.starts.items())},
        peers=tuple(leaving),
        absent=tuple(sorted({*before.learning.without})),
        withdrawals=tuple(
            Withdrawal(peer, len(keys), people_digest(keys, openings[peer])) for peer, keys in sorted(withdrawn.items())
        ),
        rounds=1 + max((record.round for record in records_of(replay / "metrics.jsonl")), default=-1),
        precision=precision_of(resolved),
        experiment_before="" if lacks_start(before) else experiment_digest(before),
        experiment_after=experiment_digest(after),
        start=start_digest(after),
        models_before=listed_models(deletion),
        models_after=model_digests(replay),
        parameters=common_parameters(resolved, replay),
        holders=holders,
        others=tuple(sorted({*peers_of(after)} - {*after.learning.without, *holders})),
        data={peer: None if peer in withdrawn else same for peer, same in data.items()},
        accepted=accepted_exposures(resolved, leaving),
        deleted=() if options.keep else deletion.deleted,
        emptied=() if options.keep else deletion.emptied,
        undone=tuple(undone),
    )
    if signer is not None:
        certificate = sign_certificate(certificate, signer)
    certificate_text(certificate)  # refuses one that nobody could check while all files are there
    page = certificate_page(certificate).encode()
    if not options.keep:
        delete_models(old, deletion)
    path = write_certificate(certificate, replay)
    if options.html is not None:
        replace_file(Path(options.html), page, mode=0o644)
    return terminal.answer(
        options, msgspec.to_builtins(certificate) | {"file": str(path)}, lambda _: _show(certificate, path)
    )


def _replayed(options: ForgetOptions, old: Path, before: Experiment) -> tuple[Path, Plan]:
    """Replay a simulation without those who leave, and return its directory and plan."""
    from p2pfl.simulation import simulate  # noqa: PLC0415 (it imports torch)

    changes = changes_without(before, options.peer, options.rows)
    if lacks_start(before) and options.start is None:
        raise InputError(
            f"{before.model.pretrained}, with which the run started, is gone; if p2pfl forget has replayed its run, "
            "name a model of that replay with --start"
        )
    if options.start is not None:
        changes.append(f'model.pretrained="{options.start}"')
    after = read(old / "experiment.toml", changes=changes, trust_code=True)
    summary = table_of(old / "summary.json", what="a summary")
    plans = list["Plan"]()

    def begin(resolved: Plan) -> Path:
        """Return the directory of the replay, once nothing is left that could refuse it."""
        check_left(before, resolved, compare_data(old, resolved))
        _check_difference(resolved, before, accepted=options.unaccounted)
        requests_of(options, old, before, resolved)
        people = withdrawn_keys(resolved.experiment, resolved.federation.peers)
        check_start(resolved.experiment, peers=options.peer, people=people)
        warn_unaccounted(resolved)
        note_tables(resolved)
        plans.append(resolved)
        return folders.new(options.runs, before.name, suffix="without")

    again = simulate(
        after,
        folder=begin,
        baselines=summary.get("alone") is not None or summary.get("pooled") is not None,
        workers=max(1, len(summary.get("workers", ()))),
        unaccounted=options.unaccounted,
    )
    return Path(again.folder or ""), plans[0]


def _played(options: ForgetOptions, old: Path, before: Experiment) -> tuple[Path, Plan]:
    """Return the directory and the plan of a replay that live peers have played."""
    import p2pfl  # noqa: PLC0415 (it imports torch)

    if options.peer or options.rows is not None:
        raise InputError("--replayed says who has left by its settings; leave out --peer and --rows")
    replay = Path(options.replayed or "")
    check_repeatable(replay, live=True)
    if replay.resolve() == old.resolve():
        raise InputError(f"{replay} is the run itself; name the directory of its replay after --replayed")
    check_trust(replay, trust=options.trust_code, command="forget")
    after = read(replay / "experiment.toml", trust_code=True)  # as checked above
    check_same(before, after)
    names = sorted({path.name.split(".")[0] for path in (replay / PEERS).glob("*.safetensors")})
    resolved = p2pfl.plan(after, only=names, unaccounted=True)
    same = model_digests(old) == model_digests(replay)
    check_left(before, resolved, compare_data(old, resolved, replay=replay), same_models=same)
    return replay, resolved


def _check_difference(resolved: Plan, before: Experiment, *, accepted: bool) -> None:
    """Refuse to replay an exact model without one peer, whose totals the difference of both models shows.

    Raises
    ------
    InputError
        The model follows from exact totals, one peer leaves alone, and nobody has accepted the difference.
    """
    after = resolved.experiment
    shown = lone_difference(resolved, {*after.learning.without} - {*before.learning.without})
    if shown is not None and not accepted:
        fewest = "three" if after.privacy.colluders else "two"  # one of two that leave subtracts its own totals
        raise InputError(
            f"{shown}; let {fewest} peers leave at once, or agree with --unaccounted, which the certificate records"
        )


def _check(options: ForgetOptions) -> int:
    """Check certificates, and print what they say."""
    paths = [path / FILE if path.is_dir() else path for path in map(Path, options.run)]
    read_files = [read_certificate(path) for path in paths]
    certificates = [certificate for _, certificate in read_files]
    roster = None if options.roster is None else Roster.read(options.roster)
    faults, lines, held = list[str](), list[str](), True
    for path, (message, certificate) in zip(paths, read_files, strict=True):
        beside = path.resolve().parent.parent / certificate.run
        old = beside if beside.is_dir() else Path(options.runs) / certificate.run
        result = check_certificate(certificate, message, replay=path.parent, old=old, roster=roster)
        held = held and bool(result.models)
        own = [*result.faults]
        if options.opening is not None:
            own += _unopened(certificate, Path(options.opening), options.rows)
        faults += [f"{path}: {'; '.join(own)}"] if own else []
        lines += [f"checked: {', '.join(result.checked)}", *(f"not checked: {each}" for each in result.unchecked)]
    together = check_together(certificates, roster=roster, held=held)
    faults += together.faults
    if faults:
        raise RunError("; ".join(faults))
    lines += [f"checked: {each}" for each in together.checked]
    lines += [f"not checked: {each}" for each in together.unchecked]
    contents = [msgspec.to_builtins(each) | {"file": str(path)} for path, each in zip(paths, certificates, strict=True)]

    def show(_: object) -> None:
        for path, certificate in zip(paths, certificates, strict=True):
            _show(certificate, path)
        for line in lines:
            terminal.note(line)

    return terminal.answer(options, {"certificates": contents, "findings": lines}, show)


def _unopened(certificate: Certificate, key: Path, rows: str | None) -> list[str]:
    """Return the withdrawals whose hash is not that of the keys of people in the files of their owners."""
    from p2pfl.data.tables.declaration import withdrawals  # noqa: PLC0415 (it imports torch)

    if rows is None:
        raise InputError("--opening compares the hash with keys of people; name their files with --rows")
    openings = read_openings(key)
    people = {each.peer: withdrawals(rows, None, peer=each.peer) for each in certificate.withdrawals}
    return [
        f"the hash of the {each.people} people who left {each.peer} does not open with {key} and these keys"
        for each in certificate.withdrawals
        if each.digest not in {people_digest(people[each.peer], secret) for secret in openings}
    ]


def _show(certificate: Certificate, path: Path) -> None:
    for sentence in (*sentences(certificate), f"certificate: {path}"):
        terminal.note(sentence)
