"""Approval of an experiment by the officer of a site: a signature that its operator cannot make.

The officer signs the digest of the resolved experiment, of the files that it names and of the code that it runs,
together with a purpose of the policy. The approval lies in ``approvals`` beside the policy, under its digest; deleting
it withdraws it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment.file.key_places import put_back
from p2pfl.experiment.file.own_code import code_digests
from p2pfl.experiment.file.reading import convert_section, flat, load_table, plain
from p2pfl.experiment.former_settings import check_former_runs, former_runs
from p2pfl.experiment.partitionings import columns_of_owners
from p2pfl.experiment.schema import Experiment, Section
from p2pfl.experiment.site_policy import SitePolicy, policy_paths, read_policy, refusals
from p2pfl.experiment.swarm_change import order_of
from p2pfl.privacy.keys import Identity, canonical, key_text, sign_text, signed_fields, verify_text

FOLDER = "approvals"
"""Folder of approvals beside the policy."""

DOMAIN = "approval"

CONTENTS = (
    "topology.kind",
    "gossip.weights",
    "model.pretrained",
    "trust.roster",
    "transport.ca",
    "telemetry.observers",
)
"""Keys whose files count by their contents, wherever they are."""

OF_THE_SITE = (
    "transport.broker",
    "transport.prefix",
    "transport.certificate",
    "transport.key",
    "transport.credentials",
    "trust.keys",
    "privacy.budget",
)
"""Keys that each site sets for itself; none of them changes what others learn."""


class Approval(Section, frozen=True, kw_only=True):
    """Consent of an officer to one experiment.

    Attributes
    ----------
    experiment
        Name of the experiment.
    digest
        Its digest, as :func:`experiment_digest` returns it.
    code
        SHA-256 of the code of each ``package.module:name`` that it runs.
    columns
        SHA-256 of the columns that a peer declares itself, by peer, as :func:`column_digests` returns it.
    purpose, legal_basis, retention
        Purpose, and what the policy said of it at that time.
    date
        Day of the approval.
    officer
        Public key of the officer.
    signature
        Their signature of all other fields, in base64.
    """

    experiment: str
    digest: str
    code: dict[str, str] = msgspec.field(default_factory=dict)
    columns: dict[str, str] = msgspec.field(default_factory=dict)
    purpose: str
    legal_basis: str
    retention: str
    date: dt.date
    officer: str
    signature: str = ""

    def results(self) -> dict[str, Any]:
        """Return the fields as values for JSON."""
        table: dict[str, Any] = msgspec.to_builtins(self)
        return table


def experiment_digest(experiment: Experiment) -> str:
    """Return the SHA-256 of a resolved experiment, the same wherever its files lie on a machine.

    Files that the experiment names count by their contents, the table by its name alone, code by its SHA-256; what each
    site sets for itself, such as its key and its broker, does not count. Keys that have moved count where they were, so
    that digests of earlier runs hold.

    Raises
    ------
    InputError
        A file cannot be read, or a run from which the experiment goes on is not here, or begins with its own models.

    Examples
    --------
    >>> digest = experiment_digest(Experiment(name="ward"))
    >>> len(digest), digest == experiment_digest(Experiment(name="ward", seed=1))
    (64, False)
    """
    check_former_runs(experiment, live=True)
    apart = [former.experiment for former in former_runs(experiment) if former.apart and former.experiment is not None]
    digest, later = "", list[Experiment]()
    for settings in [experiment, *apart]:
        later.append(settings)
        if (order := order_of(settings)) is not None:  # it stands for all runs before, which a new peer does not have
            digest = order.change.start
            break
    for settings in reversed(later):
        digest = _digest(settings, former=digest)
    return digest


def _digest(experiment: Experiment, *, former: str) -> str:
    """Return the SHA-256 of an experiment, with that of the run from whose models each peer goes on with its own."""
    values = {key: value for key, value in put_back(flat(experiment)).items() if key not in OF_THE_SITE}
    if former:  # no site has the models of all peers
        values |= {"model.pretrained": None, "former": former}
    for key in CONTENTS:
        value = values.get(key)
        values[key] = (
            [_content(each, key=key) for each in value] if isinstance(value, list) else _content(value, key=key)
        )
    options = dict(values.get("data.options", {}))
    if isinstance(path := options.get("path"), str):
        values["data.options"] = options | {"path": Path(path).name}
    return hashlib.sha256(canonical([values, code_digests(plain(experiment))])).hexdigest()


def column_digests(experiment: Experiment, peers: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the columns that peers declare themselves, beside their tables, by peer.

    The digest of the experiment lacks them, because no other peer reads them.

    Raises
    ------
    InputError
        A declaration is wrong.
    """
    own = columns_of_owners(experiment, peers)
    return {peer: hashlib.sha256(canonical(columns)).hexdigest() for peer, columns in own.items()}


def approve(
    experiment: Experiment,
    policy: SitePolicy,
    officer: Identity,
    *,
    peers: Iterable[str],
    purpose: str,
    today: dt.date,
) -> Approval:
    """Return the signed approval of an experiment on the data of some peers, for one purpose of their policy.

    Raises
    ------
    InputError
        The policy names another officer or does not list the purpose, or a file of the experiment is missing.
    """
    if policy.officer != key_text(officer.public):
        named = "no officer" if policy.officer is None else "another officer"
        raise InputError(
            f'the policy names {named}; set officer = "{key_text(officer.public)}" in it, or approve with the key of '
            "that officer"
        )
    if purpose not in policy.purposes:
        listed = ", ".join(policy.purposes) or "none"
        raise InputError(f'the policy does not list the purpose "{purpose}" but {listed}; choose one, or add it')
    for key, path in (("trust.roster", experiment.trust.roster), ("transport.ca", experiment.transport.ca)):
        if path is not None and not Path(path).is_file():
            raise InputError(
                f"{key}: there is no file {path} yet, and an approval covers its contents; put it there first"
            )
    stated = policy.purposes[purpose]
    approval = Approval(
        experiment=experiment.name,
        digest=experiment_digest(experiment),
        code={name: digest or "" for name, digest in code_digests(plain(experiment)).items()},
        columns=column_digests(experiment, peers),
        purpose=purpose,
        legal_basis=stated.legal_basis,
        retention=stated.retention,
        date=today,
        officer=policy.officer,
    )
    return msgspec.structs.replace(
        approval, signature=sign_text(officer, signed_fields(approval.results()), domain=DOMAIN)
    )


def write_approval(approval: Approval, policy: Path) -> Path:
    """Write an approval beside the policy that it rests on, and return its path.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    path = _approval_path(policy, approval.digest)
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path.parent} cannot be made ({error.strerror}); check its permissions") from None
    replace_file(path, tomli_w.dumps(msgspec.to_builtins(approval, builtin_types=(dt.date,))).encode(), mode=0o644)
    return path


def approval_of(experiment: Experiment, policy: Path) -> Approval | None:
    """Return the approval of an experiment beside a policy; ``None`` if there is none.

    Raises
    ------
    InputError
        It is there and cannot be read, or the officer of the policy has not signed it.
    """
    path = _approval_path(policy, experiment_digest(experiment))
    if not path.is_file():
        return None
    table, known = load_table(path), Approval.__struct_fields__
    approval = convert_section({key: table[key] for key in known if key in table}, Approval, origin=str(path))
    signed = verify_text(approval.officer, signed_fields(msgspec.to_builtins(table)), approval.signature, domain=DOMAIN)
    stated = read_policy(policy)
    if approval.officer != stated.officer or not signed or approval.digest != experiment_digest(experiment):
        raise InputError(f"{path} is not signed by the officer that {policy} names; approve the experiment again")
    return approval


def consent_problems(experiment: Experiment, peers: Iterable[str], *, today: dt.date) -> list[str]:
    """Return why a run may not begin on the data of some peers: what their policies refuse, and approvals that lack.

    Parameters
    ----------
    experiment
        Resolved experiment.
    peers
        Names of the local peers.
    today
        Date of the run.

    Returns
    -------
    list
        Sentences without a full stop; none if the run may begin.

    Raises
    ------
    InputError
        A policy or an approval cannot be read.
    """
    sentences = []
    paths = policy_paths(experiment, peers)
    for path in dict.fromkeys(paths.values()):
        policy, owners = read_policy(path), [peer for peer, each in paths.items() if each == path]
        sentences += [f"{path} {refusal}" for refusal in refusals(policy, experiment, owners, today=today)]
        if policy.officer is None or _stays_here(experiment):
            continue
        approval = approval_of(experiment, path)
        if approval is None:
            sentences.append(
                f"{path} asks for an approval of this experiment as it is, and there is none for "
                f"{experiment_digest(experiment)[:16]}; the officer gives it with p2pfl approve"
            )
        elif approval.purpose not in policy.purposes:
            sentences.append(f'{path} lists the purpose "{approval.purpose}" of the approval no more; approve again')
        else:
            sentences += [
                f"{path} asks for an approval of the columns that {peer} declares, and those of the approval are "
                "others; the officer gives it with p2pfl approve"
                for peer, digest in column_digests(experiment, owners).items()
                if approval.columns.get(peer) != digest
            ]
    return sentences


def _stays_here(experiment: Experiment) -> bool:
    """Return whether an experiment has one peer, so that nothing leaves its machine; a file or code may have more."""
    alone = experiment.topology.count == 1 and experiment.topology.kind == "ring"
    return alone and experiment.telemetry.share == "none" and experiment.telemetry.observers is None


def check_consent(experiment: Experiment, peers: Iterable[str], *, today: dt.date) -> None:
    """Refuse a use of the data of some peers that their policies do not allow, or that no officer has approved.

    Every run and every statistic passes here, live, simulated or from Python.

    Raises
    ------
    InputError
        The first reason; notes of the error have the others.
    """
    problems = consent_problems(experiment, peers, today=today)
    if problems:
        error = InputError(problems[0])
        for problem in problems[1:]:
            error.add_note(problem)
        raise error


def approver(experiment: Experiment, peer: str) -> str | None:
    """Return the public key of the officer who approved an experiment for the data of a peer; ``None`` without one."""
    path = policy_paths(experiment, [peer]).get(peer)
    approval = None if path is None else approval_of(experiment, path)
    return None if approval is None else approval.officer


def _approval_path(policy: Path, digest: str) -> Path:
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise InputError(f"{digest!a:.80} is no SHA-256; approve the experiment again")
    return policy.parent / FOLDER / f"{digest[:32]}.toml"


def _content(path: str | None, *, key: str) -> str | None:
    """Return the SHA-256 of a file; what is no file as it is."""
    if path is None or not Path(path).is_file():
        return path
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{key}: {path} cannot be read ({error.strerror}); check the path") from None
