"""Page that an officer signs before a run: purpose, columns, who learns what, digests, and what stands against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import p2pfl
from p2pfl.experiment import Experiment, Plan, plain
from p2pfl.experiment.approval import Approval, approval_of, experiment_digest
from p2pfl.experiment.file.own_code import code_digests
from p2pfl.experiment.partitionings import columns_of_owners
from p2pfl.experiment.site_policy import SitePolicy, policy_paths, read_policy, refusals
from p2pfl.privacy.keys import Roster, fingerprint, parse_key
from p2pfl.results.facts import Block, FactTable, Note, Section, pairs
from p2pfl.results.pages.rendering import page
from p2pfl.results.spending.ledger import find_objections
from p2pfl.results.spending.observers import learned
from p2pfl.results.spending.promises import promise

NO_POLICY = "there is no policy.toml beside the data, so nobody has stated a purpose, a legal basis or a retention"
NO_ROSTER = "there is no roster, so a broker that lies at the first meeting can pass for every other peer"
FOR_THE_RECORD = "not stated"


def sign_off_page(resolved: Plan, *, name: str | None) -> str:
    """Return the page of a plan, for the peer whose data are here.

    Parameters
    ----------
    resolved
        The experiment, resolved.
    name
        The one peer whose data are here; ``None`` if those of all are.
    """
    experiment = resolved.experiment
    peers = resolved.topology.peers if name is None else (name,)
    path = next(iter(policy_paths(experiment, peers).values()), None)
    policy = None if path is None else read_policy(path)
    approval = None if path is None else approval_of(experiment, path)
    against = [*find_objections(resolved, peers)]
    if experiment.trust.roster is None:
        against.append(NO_ROSTER)
    if policy is None:
        against.append(NO_POLICY)
    else:
        today = datetime.now(UTC).date()
        against += [f"the policy {each}" for each in refusals(policy, experiment, peers, today=today)]
        against += [] if approval is not None or policy.officer is None else ["the officer has not approved it yet"]
    objections = [f"{each[0].upper()}{each[1:]}." for each in against] or ["Nothing that p2pfl checks."]
    sections: list[Section] = [
        ("what", "What runs", [_experiment(resolved, name)]),
        ("why", "Purpose", [*_purposes(policy, approval)]),
        ("data", "Columns that are read", [*_columns(experiment, peers)]),
        ("who", "Who learns what", [*_observers(resolved)]),
        ("code", "Digests", [_digests(experiment)]),
        (
            "against",
            "What stands against it",
            objections,
        ),
        ("sign", "Signatures", [Note("", style="signature"), Note("", style="signature")]),
    ]
    who = "all peers" if name is None else name
    return page(f"Sign-off before the run: {experiment.name}, data of {who}", sections)


def _experiment(resolved: Plan, name: str | None) -> FactTable:
    experiment, federation = resolved.experiment, resolved.federation
    peers = resolved.topology.peers
    rows = {peer: len(federation.train[peer]) + len(federation.test[peer]) for peer in federation.peers}
    held = {peer: len(federation.test[peer]) for peer in federation.peers}
    counts = {f"rows of {peer}": f"{rows[peer]}, {held[peer]} of them held out to test" for peer in list(rows)[:12]}
    return pairs(
        "",
        {
            "experiment": experiment.name,
            "model": experiment.model.name,
            "options": ", ".join(f"{key} = {value}" for key, value in experiment.model.options.items()) or "none",
            "peers": f"{len(peers)}: {', '.join(peers[:20])}{', ...' if len(peers) > 20 else ''}",
            **(counts if name is not None or experiment.data.owned else {}),
            "rounds at most": "without an end" if experiment.endless else str(experiment.rounds),
            "protection": experiment.privacy.mode,
            "roster": _roster(experiment),
            "observers": "none" if experiment.telemetry.share == "none" else experiment.telemetry.share,
        },
    )


def _roster(experiment: Experiment) -> str:
    if experiment.trust.roster is None:
        return "none: a peer trusts the first key of a name"
    return f"digest {Roster.read(experiment.trust.roster).fingerprint}"


def _purposes(policy: SitePolicy | None, approval: Approval | None) -> Iterator[Block]:
    if policy is not None and policy.least > 1:
        yield f"The policy of this site asks for at least {policy.least} people in a cell of an exact total."
    if approval is not None:
        yield pairs(
            "",
            {
                "purpose": approval.purpose,
                "legal basis": approval.legal_basis,
                "retention": approval.retention,
                "approved": f"on {approval.date} with the key {fingerprint(parse_key(approval.officer))}",
            },
        )
        return
    purposes = {} if policy is None else policy.purposes
    if not purposes:
        yield pairs("", dict.fromkeys(("purpose", "legal basis", "retention"), FOR_THE_RECORD))
        return
    rows = [(name, each.legal_basis, each.retention) for name, each in purposes.items()]
    yield "The policy allows these purposes; the approval names one of them."
    yield FactTable("", ("purpose", "legal basis", "retention"), rows, text=3)


def _columns(experiment: Experiment, peers: Sequence[str]) -> Iterator[Block]:
    options = experiment.data.options
    if own := columns_of_owners(experiment, peers):
        rows = [(name, _kind(each), peer) for peer, columns in own.items() for name, each in sorted(columns.items())]
        yield FactTable("", ("column", "values", "declared by"), rows, text=3)
        return
    declared = options.get("columns")
    if not isinstance(declared, Mapping):
        yield f"The data set {experiment.data.name} declares no columns: all that it holds may be read."
        return
    roles = {options.get(role): role for role in ("event", "target")}
    rows = [(name, _kind(each), roles.get(name, "feature")) for name, each in sorted(declared.items())]
    if (key := options.get("key")) is not None:
        across = "; compared with the keys of other peers" if options.get("key_across") else ""
        rows.append((key, "text", f"names a person: counts rows that repeat one{across}"))
    yield FactTable("", ("column", "values", "role"), rows, text=3)


def _kind(declared: Any) -> str:
    if isinstance(declared, Mapping):
        return _kind(declared.get("levels", declared.get("type")))
    return declared if isinstance(declared, str) else ", ".join(map(str, declared))


def _observers(resolved: Plan) -> Iterator[Block]:
    if resolved.protection.totals:
        yield pairs("", learned(resolved.protection))
    statement = promise(resolved.experiment, resolved.protection, spent=None)["statement"]
    yield f"{statement[0].upper()}{statement[1:]}."


def _digests(experiment: Experiment) -> FactTable:
    code = {name: digest or "installed, not covered" for name, digest in code_digests(plain(experiment)).items()}
    return pairs("", {"experiment (SHA-256)": experiment_digest(experiment), **code, "p2pfl": p2pfl.__version__})
