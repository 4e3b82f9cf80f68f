"""Check of certificates of forgetting by somebody who has them, alone or together, and the files that are here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file

from p2pfl.core.errors import InputError
from p2pfl.plugins.evidence.certificate import Certificate, file_digest, read_deletion
from p2pfl.plugins.evidence.withdrawal_request import SignedRequest, certified_faults, unknown_run
from p2pfl.privacy.keys import Roster, fingerprint, key_text, parse_key
from p2pfl.results.evidence import tensors_digest
from p2pfl.results.formats import count_of
from p2pfl.results.run_files import table_of

SHARED = ("peers", "absent", "experiment_before", "experiment_after", "rounds", "start")
"""Fields that the certificates of all peers of one withdrawal have in common."""


class CertificateCheck(msgspec.Struct, frozen=True):
    """Result of a check.

    Attributes
    ----------
    faults
        Statements of the certificate that are false.
    checked, unchecked
        What was checked, and what could not be.
    models
        Files whose tensors are those that the certificate says all peers hold.
    """

    faults: list[str] = []
    checked: list[str] = []
    unchecked: list[str] = []
    models: list[str] = []


def check_certificate(
    certificate: Certificate, message: bytes, *, replay: Path, old: Path, roster: Roster | None
) -> CertificateCheck:
    """Check a certificate with the files that are here.

    Parameters
    ----------
    certificate, message
        Result of :func:`read_certificate`.
    replay, old
        Directories of the replay and of the old run, which may be absent.
    roster
        Public keys of all peers; without it a signature by any key passes.
    """
    result = CertificateCheck()
    _check_requests(certificate, roster, result)
    if not certificate.signer:
        result.faults.append("nobody has signed it")
    elif not certificate.signed_in(message):
        result.faults.append("it was changed after it was signed")
    elif roster is not None:
        trusted = {peer: key for peer, key in roster.peers.items() if key not in roster.revoked}
        signers = {peer for peer, key in trusted.items() if key_text(key) == certificate.signer}
        if missing := sorted({*certificate.holders} - signers):
            result.faults.append(f"no key of {', '.join(missing)} in the roster has signed it")
        elif not certificate.holders:
            result.faults.append("it names nobody whose copies of the old model it is about")
    if not result.faults and certificate.signer:
        holders = ", ".join(certificate.holders)
        result.checked.append("the signature" if roster is None else f"the signature of {holders}")
    _check_models(certificate, replay, result)
    _check_deletion(certificate, old, result)
    return result


def _check_requests(certificate: Certificate, roster: Roster | None, result: CertificateCheck) -> None:
    """Check the requests that a certificate has, and name those who leave and have signed none."""
    for table in certificate.requests:
        try:
            signed = SignedRequest.of(table, origin="a request in it")
        except InputError as error:
            result.faults.append(str(error))
            continue
        request = signed.request
        faults = certified_faults(signed, certificate, roster)
        result.faults.extend(faults)
        if not faults:
            key = f"the key {fingerprint(parse_key(request.signer))}" if roster is None else "its key in the roster"
            result.checked.append(f"that {request.peer} has signed the request with {key}")
        if request.incarnations and (unknown := unknown_run(request, certificate.run, certificate.starts)):
            result.unchecked.append(unknown)
        if roster is not None and request.roster != roster.digest:
            result.unchecked.append(
                f"the roster with which {request.peer} asked, which is not the one given, {roster.fingerprint}"
            )
    asked = {str(table.get("peer")) for table in certificate.requests}
    left = {*certificate.peers, *(each.peer for each in certificate.withdrawals)}
    if silent := sorted(left - asked):
        result.unchecked.append(f"whether {', '.join(silent)} asked for this: no request is signed by the peer")


def _check_models(certificate: Certificate, replay: Path, result: CertificateCheck) -> None:
    """Compare the models of the replay with those of the certificate."""
    if not (replay / "experiment.toml").is_file():
        result.unchecked.append("the new models, which are not here")
        return
    later = {each.path: each.sha256 for each in read_deletion(replay).deleted}
    gone, same = list[str](), 0
    for name, digest in certificate.models_after.items():
        path = replay / "peers" / name
        if path.is_file() and file_digest(path) != digest:
            result.faults.append(f"the model {name} of the replay is another one")
        elif path.is_file() and certificate.parameters and _tensors_of(path) != certificate.parameters:
            result.faults.append(f"the model {name} of the replay is not the one that it says all peers hold")
        elif path.is_file() and later.get(f"peers/{name}") == digest:
            result.faults.append(f"the model {name} of the replay is here, which a later withdrawal has deleted")
        elif path.is_file():
            same += 1
            result.models.extend([name] if certificate.parameters else [])
        elif later.get(f"peers/{name}") == digest:
            gone.append(name)
        else:
            result.faults.append(f"the model {name} of the replay is gone")
    result.checked.extend([f"{count_of(same, 'model')} of the replay"] if same else [])
    result.unchecked.extend([f"{', '.join(gone)}, which a later withdrawal has deleted"] if gone else [])


def _tensors_of(path: Path) -> str:
    """Return the digest of the tensors of a model file; empty if it is damaged."""
    try:
        return tensors_digest(load_file(path))
    except SafetensorError:
        return ""


def _check_deletion(certificate: Certificate, old: Path, result: CertificateCheck) -> None:
    """Look for files of the old run that the certificate calls deleted."""
    files = len(certificate.deleted) + len(certificate.emptied)
    if files and not old.is_dir():
        result.unchecked.append(
            f"whether the files of {certificate.run} are gone, which is not here; name its parent by --runs"
        )
        return
    faults = [
        f"{each.path} of the old run is still there" for each in certificate.deleted if (old / each.path).exists()
    ]
    for emptied in certificate.emptied:
        table = table_of(old / emptied.path, what="a table")
        faults += [f"{emptied.path} of the old run still has {key}" for key in emptied.keys if table.get(key)]
    result.faults.extend(faults)
    stated = {(each.path, each.sha256) for each in certificate.deleted}
    if later := {(each.path, each.sha256) for each in read_deletion(old).deleted} - stated:
        result.unchecked.append(
            f"whether this is the latest certificate: {count_of(len(later), 'file')} of {certificate.run} were deleted "
            "that it does not list"
        )
    if files and not faults:
        result.checked.append(f"that {count_of(files, 'file')} of {certificate.run} have nothing of a model")


def check_together(certificates: Sequence[Certificate], *, roster: Roster | None, held: bool) -> CertificateCheck:
    """Compare the certificates of several peers, and name those that are missing.

    Parameters
    ----------
    certificates
        One or more.
    roster
        Public keys of all peers, by which the holders that each certificate names have signed it. All in it remain but
        those who left now or before; without it, all whom the certificates name.
    held
        True if a model file of each certificate has the tensors that it states.
    """
    result, first = CertificateCheck(), certificates[0]
    for each in certificates[1:]:
        if different := [name for name in SHARED if getattr(each, name) != getattr(first, name)]:
            result.faults.append(
                f"{each.replay} is about another replay than {first.replay}: they differ in {different[0]}"
            )
        elif each.parameters != first.parameters:
            result.faults.append(f"{each.replay} has another new model than {first.replay}")
    holders = {peer for each in certificates for peer in each.holders}
    remaining = holders | {peer for each in certificates for peer in each.others}
    if roster is not None:
        remaining |= {*roster.peers} - {*first.peers, *first.absent}
    keyless = {peer for peer in remaining - holders if roster is not None and roster.peers.get(peer) in roster.revoked}
    if keyless:
        names = ", ".join(sorted(keyless))
        result.unchecked.append(f"the copies of {names}, whose keys in the roster are revoked and certify nothing")
    if first.absent:
        result.unchecked.append(f"the copies of {', '.join(first.absent)}, which {first.run} already lacked")
    if missing := sorted(remaining - holders - keyless):
        result.unchecked.append(f"the copies of {', '.join(missing)}, who remain and whose certificates are missing")
    elif not result.faults:
        verb, names = "hold" if held else "certify", ", ".join(sorted(holders))
        models = f", and that all {verb} the same new model" if first.parameters and len(remaining) > 1 else ""
        who = (
            f"that all who remain{' and whose keys are valid' if keyless else ''} have certified"
            if roster is not None
            else "that all certificates together name all who remain"
        )
        result.checked.append(f"{who}: {names}{models}")
    return result
