"""Attacks on totals: what they show of single samples, and of single peers.

The game is that of :mod:`p2pfl.audit.attacks.game`: each number of a total has a coin of its own, which decides whether
a peer adds what one sample can change at most. Observers know everything but the coins and the noise of honest peers.
They watch one total, the difference of two totals of one round, and that of totals of two rounds, which shows noise
that was drawn once for both.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from p2pfl.audit.attacks.separation import separation
from p2pfl.audit.claims import ExactClaim
from p2pfl.audit.pipeline import Fresh
from p2pfl.data import Federation
from p2pfl.encodings import Ints
from p2pfl.errors import ModelError
from p2pfl.experiment import Plan
from p2pfl.learning import additive
from p2pfl.learning.additive import Question
from p2pfl.learning.learner import Learner
from p2pfl.neighbourhood import Contribution, Neighbourhood, Wrapped, settled
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.ring import signed, unsigned
from p2pfl.privacy.totals import TotalMasks, TotalSlot
from p2pfl.rows import draw
from p2pfl.simulation.stacked import StackedNeighbourhood

CHANGE = 2.0**20
"""Largest change by one sample, in integers."""

SAMPLES = 24
"""Samples of a peer that are left out, one at a time."""

PART = "the totals"
"""Heading of these claims."""


def totals(plan: Plan, *, fresh: Fresh, trials: int, seed: int = 0) -> list[ExactClaim]:
    """Check all claims on the totals of an experiment.

    Parameters
    ----------
    plan
        Resolved experiment, whose model follows from totals.
    fresh
        Function that makes the sources of new runs.
    trials
        Number of games.
    seed
        Seed of coins and contributions.
    """
    found = [_cancelled(plan, fresh=fresh, seed=seed)] if plan.masked else []
    if plan.protection.claimed:
        found += [_changed(plan, seed=seed), *_games(plan, fresh=fresh, trials=trials, seed=seed)]
    return found


class _Recorder(Wrapped):
    """A neighbourhood that records what each peer adds to the last total.

    Parameters
    ----------
    net
        Neighbourhood that adds up.
    """

    def __init__(self, net: Neighbourhood) -> None:
        super().__init__(net)
        self.added: dict[str, Ints] = {}

    async def total(
        self, contribution: Contribution, *, size: int, bits: int = 64, change: float | None = None
    ) -> Ints:
        """Add up as the wrapped neighbourhood does."""
        self.added = {peer: contribution(peer) for peer in self.peers}
        return await super().total(lambda peer: self.added[peer], size=size, bits=bits, change=change)


def _cancelled(plan: Plan, *, fresh: Fresh, seed: int) -> ExactClaim:
    """Check that the masks of all peers leave the exact total."""
    graph = plan.protection.graph
    masks = TotalMasks(swarm_secrets(graph, source=fresh(seed), run="audit"), graph=graph)
    rng = draw(seed, "audit contributions")
    own = {peer: rng.integers(-(2**40), 2**40, 64) for peer in graph.peers}
    slot, everybody = TotalSlot(1, 0, 0), graph.peers
    hidden = [masks.hide(own[peer], peer=peer, slot=slot, participants=everybody, bits=64) for peer in everybody]
    total = unsigned(np.zeros(64, np.int64), 64)
    for each in hidden:
        total += each
    off = np.abs(signed(total) - np.sum([*own.values()], axis=0)).max()
    return ExactClaim("masks of totals cancel", "The masks of a total leave the exact sum.", float(off), 0.0, PART)


def _games(plan: Plan, *, fresh: Fresh, trials: int, seed: int) -> list[ExactClaim]:
    """Let observers guess the coins of all games, and compare their success with the accountant."""
    protection = plan.protection
    settings = replace(protection.settings, mask=0.0, participation=1.0)  # masks hide all but the total, and cancel
    source = fresh(seed)
    coins = draw(seed, "audit coins").random(trials) < 0.5
    observers = protection.observers()
    victim = observers[-1].peer
    seen: list[list[Ints]] = []
    for round, sign in ((0, 1), (0, -1), (1, -1)):  # the sign of what the victim adds
        if round or not seen:
            stacked = StackedNeighbourhood(
                plan.weights[:1], round=round, seed=seed, graph=plan.topology.union, masks=None
            )
            net = _Recorder(stacked)
            hidden = protection.mode.wrap(net, settings=settings, masks=None, source=source, round=round)
        nothing, own = np.zeros(trials, np.int64), (coins * sign * CHANGE).astype(np.int64)

        def contribution(peer: str, own: Ints = own, nothing: Ints = nothing) -> Ints:
            return own if peer == victim else nothing

        total = settled(hidden.total(contribution, size=trials, change=CHANGE))
        seen.append([total - sum((net.added[name] for name in each.colluders), np.int64(0)) for each in observers])
    looks = {"one total": 1.0, "two totals of one round": math.sqrt(2), "totals of two rounds": math.sqrt(2)}
    found = list[ExactClaim]()
    for place, given in enumerate(observers):
        one, again, later = (each[place].astype(np.float64) for each in seen)
        for (name, factor), look in zip(looks.items(), (one, one - again, one - later), strict=True):
            mu = separation(look, coins).lower(tests=len(looks) * len(observers))
            sentence = f"{given.observer} cannot tell by {name} whether a sample is there, beyond the accountant's mu."
            found.append(ExactClaim(f"{name}, {given.observer}", sentence, mu, given.mu * factor, PART))
    return found


def _changed(plan: Plan, *, seed: int) -> ExactClaim:
    """Check by how much the questions of the first rounds change if a sample of a peer is left out."""
    federation, largest = plan.federation, 0.0
    peer = max(federation.peers, key=lambda name: len(federation.train[name]))
    positions = federation.train[peer]
    row = plan.learner.start([peer])[0]
    for round in range(min(3, plan.experiment.rounds)):
        question, whole = _answered(plan.learner, federation, peer, row, round=round)
        for number in draw(seed, "audit samples", round=round).permutation(len(positions))[:SAMPLES]:
            rest = replace(federation, train={**federation.train, peer: np.delete(positions, number)})
            _, without = _answered(plan.learner, rest, peer, row, round=round)
            norm = float(np.linalg.norm((whole - without).astype(np.float64)))
            largest = max(largest, norm / question.change if question.change else math.inf)
        row = plan.learner.fit(row.unsqueeze(0), peers=[peer], round=round).rows[0]
    sentence = "A sample changes a total by no more than the noise is made for."
    return ExactClaim("what a sample changes", sentence, largest, 1.0, PART)


def _answered(
    learner: Learner, federation: Federation, peer: str, row: torch.Tensor, *, round: int
) -> tuple[Question, Ints]:
    """Return the first question of a round and the answer of a peer."""
    trained = additive(learner.on(federation))
    if trained is None:
        raise ModelError("an audit of totals needs a model that follows from totals; choose one such as boosting")
    question = next(trained.asking(row, round=round))
    return question, question.answer(peer)
