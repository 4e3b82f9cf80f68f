"""The operator's side of a change of a running swarm: the peers it concerns, their answers, and the last round."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from p2pfl.core.errors import DecodeError, InputError, PeerError
from p2pfl.experiment import Experiment
from p2pfl.experiment.changed_run import OF_OWNERS, followers
from p2pfl.experiment.composition import Composition
from p2pfl.experiment.file.reading import flat
from p2pfl.experiment.parts.gossip_parts import mixing_weights, steps_of_round
from p2pfl.experiment.parts.peer_graph import built
from p2pfl.experiment.resolved import digest_edges
from p2pfl.experiment.swarm_change import ChangeAnswer, SwarmChange, run_digest, stated_rounds
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import decode
from p2pfl.privacy.keys import Roster

MARGIN = 20
"""Rounds at least between those that the peers have begun and the last one."""

LEAD = 30.0
"""Seconds at least from an order to the last round, at the pace of the swarm."""


@dataclass(frozen=True)
class Differences:
    """Differences between a running swarm and its next run.

    Attributes
    ----------
    added, removed, replaced
        Peers that come, that leave, and that have another key.
    keys
        Keys that differ, each with its text before and after; also ``topology`` and ``roster`` as a whole.
    kept
        Keys that differ in the file and that no change changes.
    """

    added: Sequence[str]
    removed: Sequence[str]
    replaced: Sequence[str]
    keys: Mapping[str, tuple[str, str]]
    kept: Sequence[str]

    def lines(self) -> list[str]:
        """Return the differences as lines for people."""
        named = (("added", self.added), ("removed", self.removed), ("another key", self.replaced))
        people = [f"{what}: {', '.join(names)}" for what, names in named if names]
        changes = [*people, *(f"{key}: {was} -> {now}" for key, (was, now) in self.keys.items())] or ["nothing changes"]
        why = "because its owner decides on it; change it by new bundles and a new run"
        return [*changes, *(f"{key} stays as it is on each device, {why}" for key in self.kept)]


@dataclass
class SwarmView:
    """State of a running swarm, from the announcements and answers that its peers have signed.

    Parameters
    ----------
    swarm
        Name of the experiment.
    rosters
        Rosters that the peers may have.

    Attributes
    ----------
    present
        Announcements of the peers that are there.
    answers
        Answers to the change, by peer.
    unread
        Why the announcement of a peer cannot be read, by peer.
    """

    swarm: str
    rosters: Sequence[Roster]
    present: dict[str, Announcement] = field(default_factory=dict)
    answers: dict[str, ChangeAnswer] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    def take_announcement(self, peer: str, data: bytes | memoryview) -> None:
        """Take what a peer announces; what nobody in a roster has signed is ignored."""
        if not data:
            self.present.pop(peer, None)
            return
        try:
            announcement = decode(data, plain=True)
        except DecodeError as error:
            self.unread[peer] = str(error)
            return
        if not isinstance(announcement, Announcement) or announcement.peer != peer:
            return
        if not announcement.authentic(swarm=self.swarm):
            return
        if announcement.status != "up":
            self.present.pop(peer, None)
        elif self._roster_of(announcement) is not None:
            self.present[peer] = announcement

    def _roster_of(self, announcement: Announcement) -> Roster | None:
        """Return the roster that a peer has, if it is in it with its key."""
        for roster in self.rosters:
            if roster.digest == announcement.facts.get("roster"):
                try:
                    roster.check(announcement.peer, announcement.identity)
                except PeerError:
                    return None
                return roster
        return None

    @property
    def roster(self) -> Roster:
        """Roster of the running swarm.

        Raises
        ------
        InputError
            No peer is there, or no run has more than half of those that are.
        """
        return self._run()[1]

    @property
    def facts(self) -> Mapping[str, str]:
        """Facts that most peers announce alike; raises as :attr:`roster`."""
        return self._run()[0]

    @property
    def horizon(self) -> int:
        """Number of rounds of the running swarm; raises as :attr:`roster`."""
        return stated_rounds(self.facts)

    @property
    def taking_part(self) -> frozenset[str]:
        """Peers in the run of most that are there; raises as :attr:`roster`."""
        run = run_digest(self.facts)
        return frozenset(name for name, each in self.present.items() if run_digest(each.facts) == run)

    def _run(self) -> tuple[Mapping[str, str], Roster]:
        runs = Counter(run_digest(each.facts) for each in self.present.values())
        [(run, count)] = runs.most_common(1) or [("", 0)]
        if 2 * count <= len(self.present):
            some = sorted(self.present)
            if not runs and self.unread:
                peer, why = min(self.unread.items())
                raise InputError(f"no peer of this swarm is there that this release reads; of {peer}, {why}")
            raise InputError(
                f"peers of different runs are there ({', '.join(some)}); wait until most are in the same one"
                if runs
                else "no peer of this swarm is there, so there is nothing to change; start the peers"
            )
        facts = next(each.facts for each in self.present.values() if run_digest(each.facts) == run)
        roster = next(each for each in self.rosters if each.digest == facts.get("roster"))
        if not roster.operator:
            raise InputError(
                "the roster of the running peers names no operator, so nobody may change their run; stop them, give "
                "them the present roster, and begin with p2pfl next"
            )
        return facts, roster

    def expected(self, after: Experiment, roster: Roster) -> list[str]:
        """Return the peers that must agree to a change: those that stay with their key; no other can prevent it."""
        now = self.roster
        return sorted(name for name in followers(after) if now.peers.get(name) == roster.peers.get(name) is not None)

    def differences(self, after: Experiment, roster: Roster, *, edited: Sequence[str] = ()) -> Differences:
        """Return the differences that a change would make.

        Parameters
        ----------
        after, roster
            Experiment and roster of the next run.
        edited
            Keys that differ from those of the devices, and that no change takes.
        """
        now, names = self.roster, {*followers(after)}
        valid = {name for name, key in now.peers.items() if key not in now.revoked}
        usual, wanted = flat(Experiment()), flat(after)
        others = ("transport.", "trust.", "telemetry.", "simulation.", "topology.", "attack.", "evaluation.", "model.")
        keys, kept = dict[str, tuple[str, str]](), list[str]()
        for key in sorted({*wanted, *(each for each in self.facts if each.startswith("learning."))}):
            before, value = self.facts.get(key, str(usual.get(key))), str(wanted.get(key))
            if key.startswith((*others, "data.options", "gossip.weights", "privacy.")) or before == value:
                continue
            if (key == "rounds" or key.startswith("learning.")) and key not in OF_OWNERS:
                keys[key] = before, value
            elif key != "learning.device":
                kept.append(key)
        if names == valid and not after.learning.without and self.facts.get("topology") != _graph_digest(after):
            keys["topology"] = "the present graph", f"{after.topology.kind} with other edges"
        if now.revoked != roster.revoked:
            keys["roster"] = f"{len(now.revoked)} revoked keys", f"{len(roster.revoked)} revoked keys"
        return Differences(
            added=sorted(names - valid),
            removed=sorted(valid - names),
            replaced=sorted(name for name in names & valid if now.peers[name] != roster.peers[name]),
            keys=keys,
            kept=sorted({*kept, *edited}),
        )

    def take_answer(self, peer: str, data: bytes | memoryview) -> None:
        """Take the answer of a peer that is there; any other is ignored."""
        announcement = self.present.get(peer)
        if announcement is None or not data:
            return
        try:
            self.answers[peer] = ChangeAnswer.decode(
                bytes(data), swarm=self.swarm, peer=peer, public=announcement.identity
            )
        except DecodeError:
            return

    def lacking(self, change: SwarmChange, names: Sequence[str]) -> list[str]:
        """Return the peers that have not agreed to a change, and neither refused it."""
        return [name for name in names if not self._answered(change, name)]

    def refused(self, change: SwarmChange, names: Sequence[str]) -> dict[str, str]:
        """Return why peers refuse a change, by name."""
        return {name: self.answers[name].refused for name in names if self._said(change, name, refused=True)}

    def rounds(self, names: Sequence[str]) -> int:
        """Return the largest number of rounds that a peer has begun; one that is far :meth:`ahead` does not count."""
        ahead = self.ahead(names)
        return max((round for name, round in self._claims(names).items() if name not in ahead), default=0)

    def ahead(self, names: Sequence[str]) -> dict[str, int]:
        """Return the rounds of peers that state to be further than neighbours who wait for each other can be.

        A peer is at most as many rounds ahead of another one as there are edges between them. Whatever a single peer
        states, the median of all is no larger than a round of another one, so none sets the last round of the others.
        """
        claims = self._claims(names)
        most = sorted(claims.values())[(len(claims) - 1) // 2] + len(claims) + MARGIN if claims else 0
        return {name: round for name, round in claims.items() if round > most}

    def _claims(self, names: Sequence[str]) -> dict[str, int]:
        return {name: self.answers[name].round for name in names if name in self.answers}

    def _answered(self, change: SwarmChange, name: str) -> bool:
        agreed = self._said(change, name, refused=False) and self.answers[name].last == change.last
        return agreed or self._said(change, name, refused=True)

    def _said(self, change: SwarmChange, name: str, *, refused: bool) -> bool:
        answer = self.answers.get(name)
        return answer is not None and answer.content == change.content and bool(answer.refused) == refused


def _graph_digest(experiment: Experiment) -> str:
    """Return the digest of the edges of a graph, as peers announce it."""
    graph = built(experiment)
    return digest_edges([graph.at(phase).edges for phase in range(graph.period)])


def without_models(after: Experiment, stay: Collection[str]) -> list[str]:
    """Return the new peers to which no model of another one comes in the first round, so that they go on from none.

    Models of new peers have the weight 0 in that round, and others pass through them to their neighbours.

    Parameters
    ----------
    after
        Experiment of the next run.
    stay
        Peers that have a model, because they stay with their key.
    """
    graph, reached = built(after), {*stay}
    steps = steps_of_round(Composition.of(after, live=True), graph, mixing_weights(after, graph))[0]
    for step in range(steps if after.learning.weighted else 1):
        reached |= {peer for peer in graph.peers if not reached.isdisjoint(graph.at(step).senders(peer))}
        if reached >= {*graph.peers}:
            break
    return sorted({*graph.peers} - reached)


def last_round(before: int, now: int, *, seconds: float) -> int:
    """Return after which round a run may end, so that every peer has the order long before.

    Parameters
    ----------
    before, now
        Rounds that the furthest peer had begun at two times.
    seconds
        Seconds between them.

    Examples
    --------
    >>> last_round(100, 100, seconds=5.0), last_round(100, 150, seconds=5.0)
    (120, 470)
    """
    pace = (now - before) / seconds if seconds > 0 else 0.0
    return now + MARGIN + math.ceil(pace * LEAD)


def check_after(after: int, now: int, *, rounds: int) -> None:
    """Refuse a last round that peers may have played before the order reaches them.

    Parameters
    ----------
    after
        Number of rounds after which the run is to end.
    now
        Rounds that the furthest peer has begun.
    rounds
        Rounds of the run.

    Raises
    ------
    InputError
        It is too near.
    """
    if after < now + 2 and after == rounds:
        raise InputError(
            f"the peers are in round {now} of {rounds}, too near to the end for a change; begin the next run with "
            "p2pfl next once this one has ended"
        )
    if after < now + 2:
        raise InputError(f"the peers are in round {now}, so --after {after} is too near; name a later one")
