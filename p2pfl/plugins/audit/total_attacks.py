"""Attacks on totals: what they show of single samples, and of single peers.

Masks of a total are uniform in its ring, and no two totals share any: then they hide all but the total. The noise in a
total is that of all peers but the colluders, which is compared with the accountant by arithmetic. What a sample changes
is tried with samples that are there and with samples that a model gets most wrong.

The game is that of :mod:`p2pfl.plugins.audit.attacks.game`: each number of a total has a coin of its own, which decides
whether a peer adds what one sample can change at most. Observers know everything but the coins and the noise of honest
peers. They watch one total, the difference of two totals of one round, and that of totals of two rounds, which shows
noise that was drawn once for both.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np
import torch

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Ints
from p2pfl.core.errors import LearningError, ModelError
from p2pfl.core.neighbourhood import Contribution, Neighbourhood, TotalOptions, Wrapped, run_without_loop
from p2pfl.data import Federation
from p2pfl.experiment import Plan
from p2pfl.experiment.file.reading import check, plain
from p2pfl.experiment.parts.learner_parts import learner as trained
from p2pfl.learning import additive
from p2pfl.learning.additive import Additive, Step
from p2pfl.learning.exact_learner import alone
from p2pfl.learning.learner import Learner
from p2pfl.plugins.audit.claims import TOTALS, ExactClaim, claim, uniform
from p2pfl.plugins.audit.noise_claims import Noise
from p2pfl.plugins.audit.pipeline import FIRST_RUN, Fresh
from p2pfl.plugins.audit.statistical_tests import separation
from p2pfl.privacy.keys import Source
from p2pfl.privacy.masks import swarm_secrets
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK
from p2pfl.privacy.total_masks import WIDTHS, Ring, TotalMasks, TotalSlot, to_signed, to_unsigned, zeros
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import cut

MAX_CHANGE = 2.0**20
"""Largest change by one sample, in integers."""

TRIED_SAMPLES = 16
"""Samples of a peer that are left out, one at a time, and as many that are put in, of each kind."""

SAMPLE_COPIES = 200
"""Copies of each sample from which the model learns whose totals are tried: then it is sure of itself."""

LEARNED_ROUNDS = 40
"""Rounds of that model."""

FAR_FACTOR = 1e6
"""Factor by which features of samples that are put in exceed those of others."""

TOTAL_SIZE = 4096
"""Length of totals of zeros, which show masks and noise alone."""

LONG_SIZE = VALUES_PER_BLOCK + TOTAL_SIZE
"""Length of a total that is masked and noised block by block."""

SLOT_RANGE = 4
"""Number of rounds, attempts and totals of a round in each combination of which masks have keys of their own."""


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
    claims = _masks(plan, fresh=fresh, seed=seed) if plan.masked else []
    if plan.protection.claimed:
        claims += [_check_change(plan, seed=seed), *_check_accountant(plan), *_noises(plan, fresh=fresh)]
        claims += _games(plan, fresh=fresh, trials=trials, seed=seed)
    return claims


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

    async def total(self, contribution: Contribution, **options: Unpack[TotalOptions]) -> Ints:
        """Add up as the wrapped neighbourhood does."""
        self.added = {peer: contribution(peer) for peer in self.peers}
        return await super().total(lambda peer: self.added[peer], **options)


def _masks(plan: Plan, *, fresh: Fresh, seed: int) -> list[ExactClaim]:
    """Check that masks leave the exact total, are uniform, and are those of one total alone."""
    graph = plan.protection.graph
    one, other = (
        TotalMasks(swarm_secrets(graph, source=fresh(seed + run), run="audit"), graph=graph) for run in (0, 1)
    )
    alone, apart, within, off = list[Ring](), list[Ring](), list[Ring](), 0.0
    peer, everybody = graph.peers[0], graph.peers
    some = tuple(name for name in everybody if name in {peer, *graph.neighbours(peer)})[:-1]
    nothing = np.zeros(TOTAL_SIZE, np.int64)
    for place, bits in enumerate(WIDTHS):
        round = 2 * place + 1  # rounds of its own, as a slot has the same masks in either width
        first, apart_from = TotalSlot(round, 0, 0), [(round, 0, 1), (round, 1, 0), (round + 1, 0, 0)]
        off = max(off, _largest_rest(one, bits=bits, seed=seed))

        def hide(
            masks: TotalMasks,
            slot: TotalSlot = first,
            *,
            among: Sequence[str] = everybody,
            row: Ints = nothing,
            bits: int = bits,
        ) -> Ring:
            return masks.hide(row, peer=peer, slot=slot, participants=among, bits=bits)

        base = hide(one)
        others = [hide(one, TotalSlot(*slot)) for slot in apart_from]
        others += [hide(other), *([hide(one, among=some)] if len(some) > 1 and peer in some else [])]
        alone += [_widen(each) for each in (base, *others)]
        apart += [_widen(base - each) for each in others]
        within += self_differences(hide(one, row=np.zeros(LONG_SIZE, np.int64)))
    return [
        claim(TOTALS, "masks of totals cancel", off),
        uniform(TOTALS, "masks of totals are uniform", alone),
        uniform(TOTALS, "no two totals share masks", apart),
        uniform(TOTALS, "masks of a total never repeat", within),
        _check_keys(one, peer),
        *_check_recipient(one, seed=seed),
    ]


def _check_recipient(masks: TotalMasks, *, seed: int) -> list[ExactClaim]:
    """Check that what several senders send to one peer depends on nothing but their sum: every other sum is uniform.

    The recipient sees each masked contribution, as senders send to it alone. Where masks connect the senders of no
    peer, no such total is taken.
    """
    senders = _senders_of_one(masks)
    if not senders:
        return []
    parts, off = list[Ring](), 0
    for place, bits in enumerate(WIDTHS):
        slot = TotalSlot(place + 1, 0, 0)  # of its own, as a slot has the same masks in either width
        rng, most = draw(seed, "audit of one recipient", round=bits), 2 ** (bits - 1)
        own = {peer: rng.integers(-most, most, TOTAL_SIZE) for peer in senders}
        own |= {senders[0]: np.zeros(TOTAL_SIZE, np.int64)}
        sent = {
            peer: masks.hide(values, peer=peer, slot=slot, participants=senders, bits=bits)
            for peer, values in own.items()
        }
        total = sum((to_unsigned(values.copy(), bits) for values in own.values()), zeros(TOTAL_SIZE, bits))
        off += int(np.count_nonzero(sum(sent.values(), zeros(TOTAL_SIZE, bits)) != total))
        for count in range(len(senders) - 1):
            for others in itertools.combinations(senders[1:], count):
                some = (senders[0], *others)  # what the rest sends follows from it and the sum
                known = sum((to_unsigned(own[peer].copy(), bits) for peer in some), zeros(TOTAL_SIZE, bits))
                parts.append(_widen(sum((sent[peer] for peer in some), zeros(TOTAL_SIZE, bits)) - known))
    return [claim(TOTALS, "a total to one peer is exact", off), uniform(TOTALS, "one peer learns the sum alone", parts)]


def _senders_of_one(masks: TotalMasks) -> tuple[str, ...]:
    """Return some senders to the first peer whose neighbours the masks connect; nobody if there is no such peer."""
    for recipient in masks.graph.peers:
        senders = sorted(masks.graph.neighbours(recipient))[:SLOT_RANGE]
        if len(senders) > 1 and cut(masks.graph, among=senders, least=max(1, masks.colluders)) is None:
            return tuple(senders)
    return ()


def _largest_rest(masks: TotalMasks, *, bits: int, seed: int) -> float:
    """Return by how much the sum of what all peers add under masks differs from the exact total."""
    peers = masks.graph.peers
    rng = draw(seed, "audit contributions", round=bits)
    own = {peer: rng.integers(-(2 ** (bits // 2)), 2 ** (bits // 2), 64) for peer in peers}
    total = zeros(64, bits)
    for peer in peers:
        total += masks.hide(own[peer], peer=peer, slot=TotalSlot(1, 0, 0), participants=peers, bits=bits)
    return float(np.abs(to_signed(total) - np.sum([*own.values()], axis=0)).max())


def _check_keys(masks: TotalMasks, peer: str) -> ExactClaim:
    """Check that the key of each mask names its round, attempt, number and participants, and its partner."""
    everybody = masks.graph.peers
    groups = [everybody, *(tuple(name for name in everybody if name != gone) for gone in everybody if gone != peer)][
        :SLOT_RANGE
    ]
    keys = Counter(
        key
        for slot in itertools.product(range(SLOT_RANGE), repeat=3)
        for among in groups
        for key in masks.keys(peer, slot=TotalSlot(*slot), participants=among).values()
    )
    return claim(TOTALS, "keys of totals are of one use", sum(count - 1 for count in keys.values()))


def _check_accountant(plan: Plan) -> list[ExactClaim]:
    """Compare the accountant with the deviation of the total less the noise of the colluders, by arithmetic."""
    protection, claims = plan.protection, list[ExactClaim]()
    change = 2.0 if protection.wanted.adjacency == "replace" else 1.0
    for guarantee in protection.observers():
        honest = len(protection.graph.peers) - len(guarantee.colluders)
        left = protection.settings.noise / protection.settings.clip * math.sqrt(honest)
        allowed = guarantee.mu * (1 + 1e-9)
        claims.append(
            claim(TOTALS, "noise of a total, {observer}", change / left, allowed, observer=guarantee.observer)
        )
    return claims


def _record(
    plan: Plan, source: Source, *, round: int, charge: Callable[[], None] | None = None
) -> tuple[_Recorder, Neighbourhood]:
    """Return a neighbourhood that records, and private noise around it; masks would hide all but the total."""
    settings = replace(plan.protection.settings, mask=0.0, participation=1.0)
    union = plan.topology.union
    net = _Recorder(StackedNeighbourhood(plan.weights[:1], round=round, seed=0, graph=union, masks=None))
    wrap = plan.protection.mode.wrap
    return net, wrap(net, settings=settings, masks=None, source=source, round=round, charge=charge)


def _noises(plan: Plan, *, fresh: Fresh) -> list[ExactClaim]:
    """Check the noise of every peer in totals of zeros, two in each of two rounds."""
    protection = plan.protection
    source, points, charged = fresh(FIRST_RUN), list[Ints](), list[int]()
    for round in (0, 1):
        net, hidden = _record(plan, source, round=round, charge=lambda: charged.append(1))
        for _ in range(2):
            run_without_loop(hidden.total(lambda _: np.zeros(LONG_SIZE, np.int64), size=LONG_SIZE, change=MAX_CHANGE))
            points += [
                row[end]
                for row in net.added.values()
                for end in (slice(TOTAL_SIZE), slice(VALUES_PER_BLOCK, LONG_SIZE))
            ]
    expected = MAX_CHANGE * protection.settings.noise / protection.settings.clip
    return [
        *Noise("noise of a peer in a total", TOTALS, np.array(points), expected).claims(),
        claim(TOTALS, "every total is charged", 4 - len(charged)),
    ]


def _games(plan: Plan, *, fresh: Fresh, trials: int, seed: int) -> list[ExactClaim]:
    """Let observers guess the coins of all games, and compare their success with the accountant."""
    source, observers = fresh(seed), plan.protection.observers()
    coins = draw(seed, "audit coins").random(trials) < 0.5
    victim = observers[-1].peer
    seen: list[list[Ints]] = []
    for round, sign in ((0, 1), (0, -1), (1, -1)):  # the sign of what the victim adds
        if round or not seen:
            net, hidden = _record(plan, source, round=round)
        nothing, own = np.zeros(trials, np.int64), (coins * sign * MAX_CHANGE).astype(np.int64)

        def contribution(peer: str, own: Ints = own, nothing: Ints = nothing) -> Ints:
            return own if peer == victim else nothing

        total = run_without_loop(hidden.total(contribution, size=trials, change=MAX_CHANGE))
        seen.append([total - sum((net.added[name] for name in each.colluders), np.int64(0)) for each in observers])
    factors = {"one total": 1.0, "two totals of one round": math.sqrt(2), "totals of two rounds": math.sqrt(2)}
    claims, tests = list[ExactClaim](), len(factors) * len(observers)
    for index, observer in enumerate(observers):
        one, again, later = (each[index].astype(np.float64) for each in seen)
        for (name, factor), look in zip(factors.items(), (one, one - again, one - later), strict=True):
            mu, words = separation(look, coins).lower(tests=tests), {"totals": name, "observer": observer.observer}
            claims.append(claim(TOTALS, "{totals}, {observer}", mu, observer.mu * factor, **words))
    return claims


def _check_change(plan: Plan, *, seed: int) -> ExactClaim:
    """Check by how much a sample of a peer changes the questions of the first, the middle and the last round.

    Samples are left out, or put in: with another target, and with features far beyond those of others. The model that
    asks has learned for many rounds from many copies of the samples of the peer, so it is sure of itself and very wrong
    about some.
    """
    rounds = max(plan.experiment.horizon, LEARNED_ROUNDS)
    asked = trained(check(plain(plan.experiment) | {"rounds": rounds}), plan.federation)
    peer = max(plan.federation.peers, key=lambda name: len(plan.federation.train[name]))
    federation, added = _extend(plan.federation, peer, seed=seed)
    own = federation.train[peer]
    chosen = draw(seed, "audit samples").permutation(len(own))[:TRIED_SAMPLES]
    tried = [np.delete(own, number) for number in chosen] + [np.append(own, number) for number in added]
    others = [replace(federation, train={**federation.train, peer: positions}) for positions in tried]
    learner = asked.on(replace(federation, train={**federation.train, peer: np.repeat(own, SAMPLE_COPIES)}))
    row, moves = learner.start([peer])[0], list[float]()
    for round in range(LEARNED_ROUNDS):
        if round in {0, LEARNED_ROUNDS // 2, LEARNED_ROUNDS - 1}:
            moves += _moves([asked.on(each) for each in (federation, *others)], peer, row, round)
        step = _learn_alone(learner, peer, row, round)
        if step.over:
            break
        row = step.row
    return claim(TOTALS, "what a sample changes", max(moves, default=math.inf), 1 + 1e-9)


def _extend(federation: Federation, peer: str, *, seed: int) -> tuple[Federation, Ints]:
    """Return a federation whose data set has further samples, and their numbers: with wrong targets, and far away."""
    data, rng = federation.dataset, draw(seed, "audit additions")
    some = rng.permutation(federation.train[peer])[:TRIED_SAMPLES]
    features, targets = data.features[some], data.targets[some]
    if data.classes is not None:
        shift = torch.from_numpy(1 + np.arange(len(some)) % max(1, data.classes - 1))
        wrong = (targets + shift.view(-1, *[1] * (targets.dim() - 1))) % data.classes
    else:
        wrong = targets + FAR_FACTOR * torch.from_numpy(rng.choice([-1.0, 1.0], tuple(targets.shape))).to(targets)
    sets = [(features, wrong)]
    if features.is_floating_point():
        signs = torch.from_numpy(rng.choice([-1.0, 1.0], tuple(features.shape))).to(features)
        sets += [(FAR_FACTOR * signs, targets), (FAR_FACTOR * signs, wrong)]
    more = replace(
        data,
        features=torch.cat([data.features, *(each for each, _ in sets)]),
        targets=torch.cat([data.targets, *(each for _, each in sets)]),
        columns={},
    )
    return replace(federation, dataset=more), np.arange(len(data), len(more))


def _moves(learners: Sequence[Learner], peer: str, row: torch.Tensor, round: int) -> list[float]:
    """Return, by question, how much the answers of a peer with other samples differ at most, in declared changes.

    The first learner has its own samples. All are asked the same, as if the totals were its answers.
    """
    askings = [_additive(learner).asking(row, round=round) for learner in learners]
    moves, total = list[float](), None
    while True:
        try:
            questions = [next(asking) if total is None else asking.send(total) for asking in askings]
        except (StopIteration, LearningError):  # the answers of one peer may determine no model
            return moves
        answers = [question.answer(peer) for question in questions]
        total, change = answers[0], questions[0].change
        far = max(float(np.linalg.norm((answer - total).astype(np.float64))) for answer in answers[1:])
        moves.append(far / change if change else math.inf)


def _learn_alone(learner: Learner, peer: str, row: torch.Tensor, round: int) -> Step:
    """Return the result of a round of a peer that learns alone; it is over if its answers determine no model."""
    try:
        return alone(_additive(learner).asking(row, round=round), peer)
    except LearningError:
        return Step(row, over=True)


def _additive(learner: Learner) -> Additive:
    model = additive(learner)
    if model is None:
        raise ModelError("an audit of totals needs a model that follows from totals; choose one such as boosting")
    return model


def self_differences(row: Ring) -> list[Ring]:
    """Return the differences of a row of :data:`LONG_SIZE` numbers and itself, moved by powers of two, ``[512]``."""
    lags = [2**power for power in range(10, 17)]
    return [_widen(row[:1024] - row[lag : lag + 1024], size=512) for lag in lags]


def _widen(values: Ring, *, size: int = TOTAL_SIZE // 2) -> Ring:
    """Return as many numbers of 64 bits of either ring, ``[size]``: two of 32 bits become one."""
    return np.ascontiguousarray(values).view(np.uint64)[:size]
