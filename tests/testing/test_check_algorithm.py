"""The contract of algorithms: shipped algorithms keep it, and each broken one is told which promise it breaks."""

from dataclasses import dataclass, field, replace
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
import torch

import p2pfl
from p2pfl import topology
from p2pfl.algorithms import Exact, State
from p2pfl.core.encodings import from_wide, wide
from p2pfl.core.neighbourhood import Public, Released, derived
from p2pfl.core.traits import Traits
from p2pfl.data import gather
from p2pfl.learning import ExactLearner
from p2pfl.testing import ContractError, check_algorithm

RANDOM = torch.Generator().manual_seed(3)
SAMPLES = {name: (torch.randn(20, 3, generator=RANDOM), torch.arange(20) % 2) for name in topology.ring(6).peers}
SHIPPED = {
    "FedAvg": (p2pfl.FedAvg(), {}),
    "FedAvg, half of the peers": (p2pfl.FedAvg(p2pfl.Averaging(weighted=False, fraction=0.5)), {}),
    "SCAFFOLD": (p2pfl.SCAFFOLD(), {}),
    "FedNova": (p2pfl.FedNova(), {}),
    "D-PSGD": (p2pfl.DPSGD(), {}),
    "DiLoCo": (p2pfl.DiLoCo(), {}),
    "DiLoCo, mixing from the start": (p2pfl.DiLoCo(overlap="start"), {}),
    "DiLoCo, late fragments": (p2pfl.DiLoCo(overlap="late", fragments=2), {}),
    "CHOCO-SGD": (p2pfl.Choco(), {"parts": {"codec": p2pfl.Quantise(8)}}),
    "gradient tracking": (p2pfl.GradientTracking(), {}),
    "FedPer": (p2pfl.FedPer(), {}),
    "fine-tuning": (p2pfl.FineTuning(), {}),
    "PowerGossip": (p2pfl.PowerGossip(), {}),
    "gradient push": (p2pfl.SGP(), {"topology": topology.exponential(6)}),
    "RelaySGD": (p2pfl.RelaySGD(), {"topology": topology.path(5)}),
    "gossip learning": (p2pfl.GossipLearning(), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "how"), SHIPPED.values(), ids=SHIPPED)
def test_shipped_algorithms_keep_the_contract(algorithm, how):
    check_algorithm(algorithm, **how)


@pytest.mark.slow
def test_models_from_totals_keep_the_contract():
    exact = pytest.importorskip("p2pfl.plugins.exact")
    check_algorithm(Exact(), learner=ExactLearner(exact.GLM(features=3, classes=2), gather(SAMPLES, seed=0)))


ONE = p2pfl.Gossip(1)


@dataclass(frozen=True)
class Plain:
    """A correct algorithm, of which the broken ones differ in one place."""

    traits: ClassVar[Traits] = Traits(linear=True, convex=True, full_participation=True)
    gossip: p2pfl.Gossip = ONE

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        mixed = (await self.gossip(net, released)).public
        return self.kept(state, fitted, mixed)

    def kept(self, state, fitted, mixed):
        del state
        return State(mixed.rows, mixed, report=fitted.report)


class Undeclared:
    round = Plain.round
    kept = Plain.kept
    gossip = ONE


class SendsWhatItDidNotRelease(Plain):
    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        await net.mix(Released(fitted.rows))
        return self.kept(state, fitted, (await net.mix(released)).public)


class WeighsByWhatItLearned(Plain):
    traits = Traits(convex=True)

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        masses = 1 + fitted.rows.norm(dim=-1, keepdim=True)  # [R, 1]
        released = await net.release(fitted.rows, since=state.public, masses=masses)
        mixed = (await self.gossip(net, released)).average(own=state.public)
        return State(mixed.rows, mixed, report=fitted.report)


class PublishesPrivateParameters(Plain):
    traits = Traits(linear=True, full_participation=True)

    def kept(self, state, fitted, mixed):
        del state
        return State(mixed.rows, Public((fitted.rows + mixed.rows) / 2), report=fitted.report)


@dataclass(frozen=True)
class KeepsItsStateOnTheInstance(Plain):
    before: list = field(default_factory=list)

    def kept(self, state, fitted, mixed):
        self.before.append(mixed.rows)
        return replace(super().kept(state, fitted, mixed), rows=2 * mixed.rows - self.before[0])


@dataclass(frozen=True)
class DrawsWithoutAKey(Plain):
    calls: count = field(default_factory=count)

    def __deepcopy__(self, memo):
        return self

    def kept(self, state, fitted, mixed):
        rows = mixed.rows + 1e-3 * next(self.calls)
        return replace(super().kept(state, fitted, mixed), rows=rows)


class LooksAtAllRows(Plain):
    def kept(self, state, fitted, mixed):
        rows = 0.9 * mixed.rows + 0.1 * mixed.rows.mean(0)
        return replace(super().kept(state, fitted, mixed), rows=rows)


class KeepsATensorWithoutRows(Plain):
    def kept(self, state, fitted, mixed):
        return replace(super().kept(state, fitted, mixed), extra={"rounds": torch.ones(1)})


class ChangesItsInput(Plain):
    def kept(self, state, fitted, mixed):
        state.rows.mul_(0.5)
        return super().kept(state, fitted, mixed)


class DriftsByItself(Plain):
    traits = Traits(linear=True, full_participation=True)

    def kept(self, state, fitted, mixed):
        return super().kept(state, fitted, derived(lambda rows: rows + 0.01, mixed))


class OvershootsAndSaysConvex(Plain):
    def kept(self, state, fitted, mixed):
        beyond = derived(lambda now, before: before + 3 * (now - before), mixed, state.public)
        return super().kept(state, fitted, beyond)


class ReleasesTwiceAndSaysLinear(Plain):
    async def round(self, state, learner, net, round):
        await net.release(state.rows, since=state.public)
        return await super().round(state, learner, net, round)


class MixesSquaresAndSaysLinear(Plain):
    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        await net.mix(Released(released.values.square()))
        return self.kept(state, fitted, (await net.mix(released)).public)


class HearsAndSaysLinear(Plain):
    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        await net.receive(released)
        return self.kept(state, fitted, (await net.mix(released)).public)


class MixesTwiceAndSaysSingleStep(Plain):
    traits = Traits(full_participation=True, single_step=True)

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        return self.kept(state, fitted, (await net.mix(await net.mix(released))).public)


class CorrectsGradients(Plain):
    async def round(self, state, learner, net, round):
        slope = await learner.gradient(state.rows, peers=net.peers, round=round)
        fitted = await learner.fit(state.rows - 0.01 * slope, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        mixed = (await self.gossip(net, released)).public
        return State(mixed.rows, mixed, report=fitted.report)


class IsSilentInTheSecondRound(Plain):
    async def round(self, state, learner, net, round):
        return state if round == 1 else await super().round(state, learner, net, round)


@dataclass(frozen=True)
class KeepsAVectorForEachEdge(Plain):
    topology: p2pfl.topology.Topology = p2pfl.topology.UNBOUND

    def kept(self, state, fitted, mixed):
        widest = max(len(self.topology.neighbours(peer)) for peer in self.topology.peers)
        kept = {"edges": torch.zeros(len(mixed.rows), widest)}
        return replace(super().kept(state, fitted, mixed), extra=kept)


class MixesAndSaysAsynchronous:
    traits = Traits(full_participation=True, asynchronous=True, nonlinear="merges models")
    kept = Plain.kept

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        return self.kept(state, fitted, (await net.mix(released)).public)


BROKEN = {
    Undeclared: "the class declares its traits; its attribute traits is None instead of p2pfl.Traits",
    KeepsATensorWithoutRows: r"extra.rounds has shape \(1,\) for 6 peers",
    ChangesItsInput: "a round does not change the state that it is given",
    DrawsWithoutAKey: "a run is reproducible; two runs with one seed differ, in rows",
    KeepsItsStateOnTheInstance: "a run continues from a checkpoint",
    DriftsByItself: "peers that do not train stay at the start; rows moved by 0.04",
    LooksAtAllRows: "live peers end where the simulation ends; peer0 ends elsewhere",
    SendsWhatItDidNotRelease: "what it passes to net.mix depends on training otherwise than by release",
    WeighsByWhatItLearned: "the weights of net.release depend on training",
    PublishesPrivateParameters: "public of the state depends on training otherwise than by release",
    CorrectsGradients: "it takes or corrects gradients; declare needs_gradients",
    MixesAndSaysAsynchronous: "it calls net.mix, which waits for neighbours; call net.receive",
    MixesTwiceAndSaysSingleStep: "round 0 makes 2 gossip steps; do not declare single_step",
    IsSilentInTheSecondRound: r"round \[1\] releases nothing; declare silent_rounds",
    ReleasesTwiceAndSaysLinear: "round 0 releases 2 times",
    HearsAndSaysLinear: "it calls net.receive with what it released",
    MixesSquaresAndSaysLinear: "what it mixes is not linear in what it released",
    OvershootsAndSaysConvex: "the public parameters of round 0 are no mean of what was released",
    KeepsAVectorForEachEdge: "the shape of extra.edges depends on the neighbours",
}


@pytest.mark.slow
@pytest.mark.sampled(fast=2, all=10)
@pytest.mark.parametrize(("broken", "message"), BROKEN.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_broken_algorithm_is_told_which_promise_it_breaks(broken, message):
    with pytest.raises(ContractError, match=f"broken promise: .*{message}"):
        check_algorithm(broken())


@pytest.mark.slow
def test_the_algorithm_from_which_the_broken_ones_differ_keeps_the_contract():
    check_algorithm(Plain())


@dataclass(frozen=True)
class Adds:
    """A correct algorithm that averages by totals: each peer adds its trained parameters, as integers."""

    traits: ClassVar[Traits] = Traits(full_participation=True)

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        own = dict(zip(net.peers, fitted.rows.numpy(), strict=True))
        size = fitted.rows.shape[-1]
        total = await net.total(lambda peer: self.added(own[peer]), size=2 * size + 1)
        mean = torch.from_numpy(from_wide(total[:-1]) / total[-1])  # [P]
        public = derived(lambda rows: mean.expand_as(rows).clone(), state.public)  # [R, P]
        return self.kept(public, fitted)

    def added(self, row):
        return np.append(wide(row), 1)

    def kept(self, public, fitted):
        return State(public.rows, public, report=fitted.report)


class AddsAndKeepsItsOwn(Adds):
    def kept(self, public, fitted):
        return State(public.rows, Public((public.rows + fitted.rows) / 2), report=fitted.report)


class AddsAsManyAsItLearned(Adds):
    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        size = 1 + int(1e6 * abs(float(fitted.rows[0, 0]))) % 7
        await net.total(lambda _: np.ones(size, np.int64), size=size)
        return await super().round(state, learner, net, round)


class AddsAndSaysLinear(Adds):
    traits: ClassVar[Traits] = Traits(linear=True, full_participation=True)


@pytest.mark.slow
def test_an_algorithm_that_takes_totals_keeps_the_contract():
    check_algorithm(Adds())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (AddsAndKeepsItsOwn, "public of the state depends on training otherwise than by release or total"),
        (AddsAsManyAsItLearned, "net.total depends on training|live peers"),
        (AddsAndSaysLinear, "it takes totals, which no mixing of releases shows; do not declare linear"),
    ],
)
def test_a_broken_algorithm_that_takes_totals_is_told_which_promise_it_breaks(broken, promise):
    with pytest.raises(ContractError, match=promise):
        check_algorithm(broken())
