"""``p2pfl approve``: the consent of a site's officer to one experiment, signed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from p2pfl.cli import terminal
from p2pfl.cli.core_commands import ApproveOptions
from p2pfl.cli.experiments import experiment_of
from p2pfl.cli.tables import facts
from p2pfl.core.errors import InputError
from p2pfl.experiment import Experiment
from p2pfl.experiment.approval import approve, write_approval
from p2pfl.experiment.parts.peer_graph import peers_of
from p2pfl.experiment.site_policy import policy_paths, read_policy, refusals
from p2pfl.privacy.keys import Identity, fingerprint, parse_key


def run(options: ApproveOptions) -> int:
    """Run ``p2pfl approve``.

    Raises
    ------
    InputError
        The site has no policy, the policy does not allow the experiment, or the key is not that of its officer.
    """
    experiment = experiment_of(options)
    path = _policy_path(options, experiment)
    policy, today = read_policy(path), datetime.now(UTC).date()
    peers = peers_of(experiment) if options.name is None else (options.name,)
    reasons = [*refusals(policy, experiment, peers, today=today)]
    for reason in reasons[:-1]:
        terminal.note(f"p2pfl: {path} {reason}")
    if reasons:
        raise InputError(f"{path} {reasons[-1]}")
    officer = Identity.load(options.key)
    approval = approve(experiment, policy, officer, peers=peers, purpose=options.purpose, today=today)
    written = write_approval(approval, path)
    return terminal.answer(options, approval.results() | {"file": str(written)}, _show)


def _policy_path(options: ApproveOptions, experiment: Experiment) -> Path:
    if options.policy is not None:
        return Path(options.policy)
    if options.name is None:
        raise InputError("the peer whose data the policy protects is missing; name it with --name, or a --policy")
    path = policy_paths(experiment, [options.name]).get(options.name)
    if path is None:
        raise InputError(
            f'there is no policy.toml beside the data of "{options.name}"; write one, or name it with --policy'
        )
    return path


def _show(results: Mapping[str, Any]) -> None:
    facts(
        {
            "experiment": results["experiment"],
            "digest": results["digest"],
            **{name: f"SHA-256 {digest}" for name, digest in results["code"].items()},
            "purpose": results["purpose"],
            "legal basis": results["legal_basis"],
            "retention": results["retention"],
            "officer": fingerprint(parse_key(results["officer"])),
            "date": results["date"],
            "approval": results["file"],
        }
    )
