"""Check of the model from which a replay starts: that of an earlier run, which may have had the data that leave."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from p2pfl.core.errors import InputError
from p2pfl.data.tables.declaration import withdrawals
from p2pfl.experiment import Experiment
from p2pfl.experiment.accounts import data_folder
from p2pfl.experiment.former_settings import former_runs
from p2pfl.experiment.parts.peer_graph import is_own, peers_of
from p2pfl.learning.models import names_models
from p2pfl.plugins.evidence.certificate import file_digest


def check_start(experiment: Experiment, *, peers: Collection[str], people: Mapping[str, frozenset[str]]) -> str:
    """Refuse to replay a run from a model that has learned from the data that leave.

    A peer that joins a model begins a new run with ``model.pretrained``, the model of the run before. Then the replay
    starts from the last model that never had the peer, and plays the rounds since then alone.

    Parameters
    ----------
    experiment
        Experiment of the replay.
    peers
        Peers that leave.
    people
        Keys of people who leave, by peer that owns their rows.

    Returns
    -------
    str
        What nobody can tell about the model, for the certificate; empty if it never had these data.

    Raises
    ------
    InputError
        The model, or one before it, has learned from the data, or a run begins with its own models.
    """
    later = experiment
    for former in former_runs(experiment):
        file, earlier = later.model.pretrained, former.experiment
        if earlier is None:
            break
        if had := sorted(peer for peer in peers if _took_part(earlier, peer)):
            raise InputError(
                f"the run starts from {file}, which has learned from {had[0]}; forget {had[0]} in {former.folder} "
                "first, and name a model of that replay with --start"
            )
        for owner, keys in sorted(people.items()):
            if remaining := len(keys - _withdrawn(earlier, owner)) if _took_part(earlier, owner) else 0:
                raise InputError(
                    f"the run starts from {file}, which may have learned from {remaining} of the people who leave "
                    f"{owner}; forget them in {former.folder} first, and name a model of that replay with --start"
                )
        later = earlier
    if later.model.pretrained is None:
        return ""
    start = Path(later.model.pretrained).name
    return f"nobody has shown that {start}, from which both runs start, never had these data"


def lacks_start(experiment: Experiment) -> bool:
    """Return whether the model from which a run started was deleted, as forgetting in the run before does."""
    return experiment.model.pretrained is not None and not _starting_models(experiment)


def start_digest(experiment: Experiment) -> str:
    """Return the SHA-256 of the model from which a run starts, or of those at hand; empty if it starts from none."""
    digests = [file_digest(file) for file in _starting_models(experiment)]
    return "".join(digests) if len(digests) < 2 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _starting_models(experiment: Experiment) -> list[Path]:
    """Return the files from which a run starts that are here: one of all peers, or one of each peer."""
    named = experiment.model.pretrained
    if named is None:
        return []
    peers = peers_of(experiment) if names_models(named) else [""]
    files = [Path(named.replace("{peer}", peer)) for peer in sorted(peers) if peer not in experiment.learning.without]
    return [file for file in files if file.is_file()]


def _took_part(experiment: Experiment, peer: str) -> bool:
    """Return whether a run had a peer, which nobody can tell of a graph that code makes."""
    own = not experiment.topology.files and is_own(str(experiment.topology.kind))
    return peer not in experiment.learning.without and (own or peer in peers_of(experiment))


def _withdrawn(experiment: Experiment, owner: str) -> frozenset[str]:
    """Return the keys of people who had left an owner in a run."""
    path = experiment.data.options.get("without")
    return frozenset() if path is None else withdrawals(str(path), data_folder(), peer=owner)
