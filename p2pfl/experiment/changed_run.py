"""Run that follows a change of its swarm: its settings, how it begins, and the checks of a peer before it follows.

What the operator can change is short on purpose. Data, models, privacy, telemetry, brokers, keys, files and code stay
those that the owner of each device has agreed to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.core.errors import InputError
from p2pfl.experiment.accounts import uncounted_start
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.file.own_code import references
from p2pfl.experiment.file.reading import flat, plain, read
from p2pfl.experiment.parts.peer_graph import built, is_own, peers_of
from p2pfl.experiment.schema import Experiment
from p2pfl.experiment.settings_rules import check as check_rules
from p2pfl.experiment.site_policy import policy_paths, read_policy
from p2pfl.experiment.swarm_change import MAX_BYTES, SwarmChange

SECTIONS = ("learning", "topology")
"""Sections of the experiment file that a change replaces as a whole, besides ``rounds``."""

OF_OWNERS = ("learning.max_norm", "learning.example_noise", "learning.learner", "learning.device")
"""Keys of these sections that stay as they are: what they protect or run is the decision of a device's owner."""

ABOVE = re.compile(r"(?<![\w:/.])/(?:[^/\s\"'()]+/)+")
"""Folders of an absolute path in a sentence, which say more of a device than the operator needs."""


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return what a change takes from an experiment; a graph in a file is that of each device."""
    table = plain(experiment)
    sections = [section for section in SECTIONS if section != "topology" or not experiment.topology.files]
    return {"rounds": table["rounds"], **{section: table[section] for section in sections}}


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


def followers(experiment: Experiment) -> Sequence[str]:
    """Return the peers of an experiment; none of a graph by a function of the user's own, which nobody calls here."""
    own = not experiment.topology.files and is_own(str(experiment.topology.kind))
    return () if own else peers_of(experiment)


def needs_one_start(before: Experiment, after: Experiment) -> bool:
    """Return whether the run after a change must begin with one model that all its peers have.

    Otherwise each begins with its own, equal or not, and whoever has none takes those of its neighbours.
    """
    it = Composition.of(after, live=True)
    kept = before.model.norm == "local" or Composition.of(before).algorithm.keeps_local
    return it.claims or it.mode.sums or it.differences or it.algorithm.personal or kept


def begun_after(
    before: Experiment,
    after: Experiment,
    folder: Path,
    *,
    peer: str,
    roster: Path | None = None,
    has_model: bool = True,
) -> Experiment:
    """Return the experiment of a peer whose next run begins with the last models of the run in a directory.

    Parameters
    ----------
    before, after
        Settings of both runs.
    folder
        Directory of the run that ends.
    peer
        Name of the peer.
    roster
        File of its roster; ``None`` for the present one.
    has_model
        False if it has no model with which it could begin.
    """
    if roster is not None:
        after = msgspec.structs.replace(after, trust=msgspec.structs.replace(after.trust, roster=str(roster)))
    if not has_model:
        return after
    common = before.learning.consensus and needs_one_start(before, after)
    start = str(folder / "peers" / f"{peer if common else '{peer}'}.safetensors")
    return msgspec.structs.replace(after, model=msgspec.structs.replace(after.model, pretrained=start))


def refusal(
    change: SwarmChange, before: Experiment, *, peer: str, folder: Path | None, continues: bool = True
) -> str | None:
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
    continues
        False if the learner of the peer cannot begin with the model of a file.
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
        return _beginning(before, after, peer=peer, folder=folder, continues=continues) if peer in names else None
    except InputError as error:
        return ABOVE.sub("", str(error) if folder is None else str(error).replace(f"{folder}/", ""))


def _beginning(before: Experiment, after: Experiment, *, peer: str, folder: Path | None, continues: bool) -> str | None:
    """Return why a peer cannot begin the next run with its last model; data are not read for that."""
    from p2pfl.experiment.parts.gossip_parts import mixing_weights  # noqa: PLC0415 (these import torch)
    from p2pfl.experiment.parts.learner_parts import check_names  # noqa: PLC0415
    from p2pfl.experiment.resolving import GIVEN  # noqa: PLC0415
    from p2pfl.topology import check_connected  # noqa: PLC0415

    if folder is None:
        return "its run keeps no files, so no other can follow it"
    if not continues or Composition.of(before).algorithm.additive:
        return "nothing follows a run whose learner begins with a model of its own, or with a model from totals"
    after = begun_after(before, after, folder, peer=peer)
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
