"""The exchange after the last round, which pays masks that only one end applied: it shows nothing that is not public.

One peer overlooks a mask partner, so that a mask is owed when the rounds are over.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from p2pfl.algorithms import State
from p2pfl.core.errors import PrivacyError
from p2pfl.core.neighbourhood import Public, Released, derived
from p2pfl.core.neighbourhood import run_without_loop as run
from p2pfl.core.sparse_codecs import choose_positions
from p2pfl.experiment import read
from p2pfl.experiment.catalogue import ALGORITHMS, traits_of
from p2pfl.network.peer import end as end_of_peer
from p2pfl.network.peer.masking.debt_payment import Owed, Republished
from p2pfl.network.peer.masking.mask_cover import Cover
from p2pfl.network.peer.neighbourhoods.live import LiveNeighbourhood
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
from p2pfl.network.protocol.ledgers.payments import points
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from swarms import SMALL, live

GRID = 2.0**-20
MASKED = [
    "rounds=2",
    "topology.kind=complete",
    "topology.peers=4",
    "gossip.steps=1",
    "privacy.mode=pairwise",
    "privacy.partners=1",
]


@dataclass(frozen=True)
class Remembering:
    """A user's own algorithm: its state holds what it trained, and it releases that on top of what it trains next."""

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        rows = fitted.rows + state.extra.get("shift", torch.zeros_like(fitted.rows))
        mixed = (await net.mix(await net.release(rows, since=state.public))).public
        return State(mixed.rows, mixed, extra={"shift": mixed.rows - fitted.rows}, report=fitted.report)


@dataclass(frozen=True)
class Half:
    """A user's own algorithm that releases the first half of a row and does not declare it."""

    async def round(self, state, learner, net, round):
        half = state.rows.shape[-1] // 2
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        since = derived(lambda rows: rows[:, :half], state.public)
        mean = (await net.mix(await net.release(fitted.rows[:, :half], since=since))).public
        public = derived(lambda part, rows: torch.cat([part, rows[:, half:]], -1), mean, state.public)
        return State(torch.cat([mean.rows, fitted.rows[:, half:]], -1), public, report=fitted.report)


@dataclass(frozen=True)
class DeclaredHalf(Half):
    """The same algorithm, which declares what it releases."""

    def places(self, size, *, round):
        del round
        return torch.arange(size // 2)


CATALOGUE = sorted(
    name
    for name in ALGORITHMS
    if not (traits_of(name).no_privacy or traits_of(name).additive) and name not in {"gossip_learning", "choco"}
)
OWN = {"own": f"{__name__}:Remembering", "own half": f"{__name__}:DeclaredHalf"}
CASES = {name: [f"learning.algorithm={OWN.get(name, name)}"] for name in [*CATALOGUE, *OWN]}
CASES |= {
    "fedbn": ["learning.algorithm=fedbn", "model.name=norming:Normed"],
    "fedavg, half of the peers": ["learning.fraction=0.5"],
    "fedavg, sizes that nobody knows": ["data.name=synthetic"],
    "fedavg, all alike": ["learning.weighted=false"],
    "fedavg, secret participation": ["privacy.participation=0.5"],
    "pfedme, relaxed": ["learning.algorithm=pfedme", "learning.algorithm_options={relax=0.5}"],
    "fedavgm, slow": ["learning.algorithm=fedavgm", "learning.algorithm_options={global_rate=0.5}"],
    "diloco, without Nesterov": ["learning.algorithm=diloco", "learning.algorithm_options={nesterov=false}"],
    "diloco, mixing from the start": ["learning.algorithm=diloco", 'learning.algorithm_options={overlap="start"}'],
    "diloco, late": ["learning.algorithm=diloco", 'learning.algorithm_options={overlap="late"}'],
    "diloco, fragments": ["learning.algorithm=diloco", "learning.algorithm_options={fragments=3}"],
    "partial, half of the peers": ["learning.algorithm=partial", "learning.fraction=0.5"],
}


@dataclass
class Seen:
    """What one peer knew and sent when it settled."""

    public: torch.Tensor
    rows: torch.Tensor
    payments: list = field(default_factory=list)
    released: list = field(default_factory=list)


def last(experiment):
    """The last round in which an algorithm releases anything."""
    return experiment.rounds - 1 - (experiment.learning.algorithm == "fine_tuning")


def blind(monkeypatch, *, round):
    """Make peer0 overlook peer1 when it chooses the masks of a round, so that peer1 has to take its half back.

    The ledger follows the smaller name, so that this does not depend on who hears whom first.
    """
    partners = Cover.partners

    def overlook(cover, number, *, present, **given):
        overlooked = cover.ledger.peer == "peer0" and number == round
        return partners(cover, number, present=present - {"peer1"} if overlooked else present, **given)

    monkeypatch.setattr(Cover, "partners", overlook)


def watch(monkeypatch):
    """Note, for each peer, what is public when it settles, what it pays, and which rows it sends from then on."""
    seen = {}
    settle, pay, publish = end_of_peer._settle, MaskLedger.settle, LiveNeighbourhood._publish

    async def settling(rounds):
        seen[rounds.parts.name] = Seen(rounds.state.public.rows, rounds.state.rows)
        return await settle(rounds)

    def paying(ledger, **how):
        payment = pay(ledger, **how)
        seen[ledger.peer].payments.append(payment)
        return payment

    async def publishing(net, released, weights):
        if net.name in seen and released.grid is not None:
            seen[net.name].released.append(released)
        return await publish(net, released, weights)

    monkeypatch.setattr(end_of_peer, "_settle", settling)
    monkeypatch.setattr(MaskLedger, "settle", paying)
    monkeypatch.setattr(LiveNeighbourhood, "_publish", publishing)
    return seen


async def swarm(changes):
    """Run live peers in memory; return them and the experiment."""
    experiment = read(SMALL, changes=[*MASKED, *changes])
    return await live(experiment, MemoryTransport(), source=SeededSource(5)), experiment


def released_in(algorithm, *, size, round):
    """Return the places that a round releases, found without what the code under test declares."""
    if hasattr(algorithm, "share"):
        return torch.from_numpy(choose_positions(size, share=algorithm.share, seed=algorithm.seed, round=round))
    if hasattr(algorithm, "common"):
        return algorithm.common.nonzero().squeeze(-1)
    fragments = getattr(algorithm, "fragments", 1)
    if fragments > 1:
        part = round % fragments
        return torch.arange(part * size // fragments, (part + 1) * size // fragments)
    return torch.arange(size // 2 if isinstance(algorithm, Half) else size)


def owed(seen, peer, *, rounds):
    """Return the places that were released in any round, and the points of the masks that a peer pays there."""
    algorithm, size = peer.plan.algorithm, seen.public.shape[-1]
    whole = torch.zeros(size, dtype=torch.int64)
    (payment,) = seen.payments
    for mask, factor in payment.terms.items():
        there = released_in(algorithm, size=size, round=mask.slot.round)
        alone = type(payment)(payment.peer, None, (), {mask: factor})
        whole[there] += torch.from_numpy(points(alone, masks=peer.hiding.masks(), size=len(there)))
    places = torch.cat([released_in(algorithm, size=size, round=round) for round in range(rounds)]).unique()
    return places, whole[places]


ADAPTIVE = {"fedadam", "fedyogi", "fedadagrad"}
"""Their steps are not linear in the average, so that a mask that was in it cannot be taken back exactly."""


@pytest.mark.sampled(fast=0, all=4)
@pytest.mark.parametrize("case", CASES)
async def test_the_exchange_that_pays_masks_shows_only_what_is_public_and_takes_the_mask_out_of_the_mean(
    monkeypatch, case
):
    changes = [*CASES[case], "privacy.mask=30.0"]
    plain, experiment = await swarm(changes)
    blind(monkeypatch, round=last(experiment))
    seen = watch(monkeypatch)
    settled, _ = await swarm(changes)
    assert sum(len(each.payments[0].terms) for each in seen.values()) == 1
    for name, each in seen.items():
        places, masks = owed(each, settled[name].peer, rounds=experiment.rounds)
        (released,) = each.released
        mass = 1.0 if released.masses is None else released.masses
        public = each.public[:, places].double() * mass
        assert torch.equal(released.rows - masks, (public / GRID).round().to(torch.int64))
    if case not in ADAPTIVE:
        unpaid = torch.cat([seen[name].public for name in sorted(seen)])
        before, after = (
            torch.cat([ended[name].state.public.rows for name in sorted(ended)]) for ended in (plain, settled)
        )
        assert (before - unpaid).abs().max() > 1  # the mask that one end left out
        assert torch.allclose(before.mean(0), after.mean(0), rtol=0, atol=10 * GRID)
        assert all(not end.peer.session.ledgers.masks.list_uncancelled() for end in settled.values())


FROZEN = ["learning.rate=0", "privacy.mask=30.0", "learning.weighted=false"]


@pytest.mark.slow
async def test_partial_sharing_pays_a_mask_at_the_places_of_the_round_in_which_it_was_applied(monkeypatch):
    blind(monkeypatch, round=0)  # the places of the last round are others
    ended, _ = await swarm(["learning.algorithm=partial", *FROZEN])
    for end in ended.values():
        start = end.peer.plan.learner.start([end.peer.name])
        assert torch.allclose(end.state.rows, start, rtol=0, atol=10 * GRID)
        assert not end.peer.session.ledgers.masks.list_uncancelled()


@pytest.mark.sampled(fast=0, all=1)
@pytest.mark.parametrize("name", ["ditto", "pfedme"])
async def test_a_mask_that_is_paid_leaves_the_models_alone_that_were_not_made_of_it(monkeypatch, name):
    blind(monkeypatch, round=1)
    seen = watch(monkeypatch)
    ended, _ = await swarm([f"learning.algorithm={name}", "privacy.mask=30.0"])
    assert all(torch.equal(end.state.rows, seen[peer].rows) for peer, end in ended.items())


@pytest.mark.slow
async def test_an_algorithm_that_releases_a_part_of_a_row_under_masks_must_say_which():
    with pytest.raises(BaseExceptionGroup) as caught:
        await swarm([f"learning.algorithm={__name__}:Half"])
    reasons = {str(error) for error in caught.value.exceptions if isinstance(error, PrivacyError)}
    assert reasons
    assert all("places(size, *, round)" in reason for reason in reasons)


def test_a_release_that_holds_more_than_public_rows_is_not_sent():
    async def release(rows, *, since, masses=None):
        del since  # as if it released what it was given
        return Released((rows / GRID).round().to(torch.int64), masses, grid=20)

    net = SimpleNamespace(peers=("peer0",), release=release)
    settling = Republished(net, Owed(30.0, 20, None))
    public = torch.ones(1, 3)
    assert run(settling.release(public, since=Public(public))).rows.tolist() == [[2**20] * 3]
    with pytest.raises(PrivacyError, match="holds more than public parameters"):
        run(settling.release(public + 1, since=Public(public)))
