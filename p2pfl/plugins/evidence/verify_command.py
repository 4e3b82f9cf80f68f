"""``p2pfl verify``: check a run by the evidence of its peers, without the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from p2pfl.cli import terminal
from p2pfl.core.errors import P2PFLError
from p2pfl.experiment import Experiment, read
from p2pfl.experiment.approval import experiment_digest
from p2pfl.experiment.file.reading import draft
from p2pfl.experiment.partitionings import partitioning
from p2pfl.plugins.evidence.crate import write_crate
from p2pfl.plugins.evidence.evidence_commands import VerifyOptions
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.plugins.evidence.verification import Difference, Recompute, Verification, find_chains, verify
from p2pfl.privacy.keys import Roster
from p2pfl.results.evidence import former_chain, last_digest
from p2pfl.results.formats import count_of
from p2pfl.results.sent_rows import FOLDER

if TYPE_CHECKING:  # it imports torch
    from p2pfl.experiment import Plan


def run(options: VerifyOptions) -> int:
    """Print what was checked and what differs; return 1 if anything does.

    Raises
    ------
    InputError
        There is no evidence, or a file cannot be read.
    """
    bundles = [Path(each) for each in options.bundles]
    chains = find_chains(bundles)
    roster = None if options.roster is None else Roster.read(options.roster)
    experiment = _experiment(chains, trust=options.trust_code)
    recompute, reason = _recomputing(experiment)
    result = verify(chains, roster=roster, recompute=recompute)
    more, checked = _settings(chains, trust=options.trust_code), list[str]()
    others, unfollowed = _former_runs(chains)
    more += others
    unchecked = [*filter(None, [reason]), *unfollowed]
    if options.simulation is not None:
        from p2pfl.plugins.evidence.simulated_run import compare_simulation  # noqa: PLC0415 (it imports torch)

        others, checked, uncompared = compare_simulation(Path(options.simulation), chains, trust=options.trust_code)
        more, unchecked = [*more, *others], [*unchecked, *uncompared]
    result = Verification(
        result.peers,
        result.rounds,
        tuple(sorted({*result.findings, *more})),
        (*result.checked, *checked),
        (*result.open, *unchecked),
    )
    if options.crate is not None:
        write_crate(Path(options.crate), chains, result)
    terminal.answer(options, msgspec.to_builtins(result), lambda _: _show(result))
    return 1 if result.findings else 0


def _experiment(chains: list[PeerEvidence], *, trust: bool) -> Experiment | None:
    """Return the experiment beside the evidence; ``None`` if no bundle has it."""
    for own in chains:
        path = own.folder / "experiment.toml"
        if path.is_file():
            return read(path, trust_code=trust)
    return None


def _settings(chains: list[PeerEvidence], *, trust: bool) -> list[Difference]:
    """Return the peers that began with another experiment than the one beside their evidence."""
    files = {own.folder: own.folder / "experiment.toml" for own in chains}
    digests = {
        folder: experiment_digest(read(path, trust_code=trust)) for folder, path in files.items() if path.is_file()
    }
    return [
        Difference(own.peer, -1, "it began with another experiment than the experiment.toml beside it")
        for own in chains
        if any(began.experiment != digests.get(own.folder, began.experiment) for began in own.beginnings)
    ]


def _former_runs(chains: list[PeerEvidence]) -> tuple[list[Difference], list[str]]:
    """Return the peers that went on from another run than their settings name, and what evidence leaves open."""
    differences, unknown = list[Difference](), list[str]()
    for own in chains:
        stated = {began.follows for began in own.beginnings}
        path = own.folder / "experiment.toml"
        pretrained = draft(path).model.pretrained if path.is_file() else None
        former = last_digest(former_chain(pretrained, own.peer))
        if stated - {former, ""} and not former:
            unknown.append(f"from which run {own.peer} went on, because its evidence of that run is not here")
        elif stated - {former}:
            sentence = "it went on from another run, or from other evidence, than the one that its settings name"
            differences.append(Difference(own.peer, -1, sentence))
    return differences, unknown


def _recomputing(experiment: Experiment | None) -> tuple[Recompute | None, str]:
    """Return the function that computes again what follows from the settings, or why there is none."""
    if experiment is None:
        return None, "no bundle has the experiment.toml, so that nothing was computed again from the settings"
    if partitioning(experiment.data) is not None:
        return None, "peers with different columns have models of their own, which are not computed again"
    from p2pfl.plugins.evidence.recomputation import plan_without_data  # noqa: PLC0415 (it imports torch)

    try:
        resolved = plan_without_data(experiment)
    except P2PFLError as error:
        return None, f"nothing was computed again from the settings, because the experiment needs its data: {error}"
    return partial(_recomputed, resolved), ""


def _recomputed(resolved: Plan, chains: Sequence[PeerEvidence]) -> tuple[list[Difference], list[str], list[str]]:
    """Return what does not follow from the settings and from public numbers, what was computed, and what was not."""
    from p2pfl.plugins.evidence.gossip_recomputation import recompute_gossip  # noqa: PLC0415 (it imports torch)
    from p2pfl.plugins.evidence.promise_check import compare_promises  # noqa: PLC0415
    from p2pfl.plugins.evidence.recomputation import recompute  # noqa: PLC0415

    promises = [*compare_promises(resolved, chains)]
    computed = ["the privacy statement", *(["charges, computed again"] if resolved.claims else [])]
    exact = resolved.experiment.learning.algorithm == "exact"
    if not exact and not any((own.folder / FOLDER).is_dir() for own in chains):
        return promises, computed, ["models of gossip, because the peers ran without --keep-rows"]
    differences, models, uncomputed = (recompute if exact else recompute_gossip)(resolved, chains)
    return promises + differences, computed + models, uncomputed


def _show(result: Verification) -> None:
    peers = count_of(len(result.peers), "peer")
    terminal.note(f"evidence of {peers} over {count_of(result.rounds, 'round')}: {', '.join(result.checked)}")
    for each in result.open:
        terminal.note(f"not checked: {each}")
    for finding in result.findings:
        terminal.note(f"DIFFERS  {finding}")
    terminal.note("THE EVIDENCE DIFFERS" if result.findings else "the evidence agrees")
