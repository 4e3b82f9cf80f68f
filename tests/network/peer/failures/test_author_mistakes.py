"""Mistakes of an algorithm's author end live peers with a sentence, or cost a model; nobody waits for ever."""

import asyncio
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

import p2pfl
from p2pfl import topology
from p2pfl.core.errors import ExperimentError, P2PFLError, RunError
from p2pfl.core.neighbourhood import PublicContribution, Released
from p2pfl.core.traits import Traits
from p2pfl.network.virtual.clock import VirtualLoop
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.notices.kinds import ModelsRefused
from p2pfl.testing import ContractError, check_algorithm
from p2pfl.testing.instrumented_run import SEED, classifier

PATIENCE = 5.0
ROUNDS = 2
GRAPH = topology.ring(4)
ALONE = "peer1"


class Mistaken:
    """A correct algorithm, of which the mistaken ones differ in one place."""

    traits: ClassVar[Traits] = Traits(full_participation=True, single_step=True, linear=True)

    async def round(self, state, learner, net, round):
        fitted = await learner.fit(state.rows, peers=net.peers, round=round)
        released = await net.release(fitted.rows, since=state.public)
        mixed = await self.mixed(net, released)
        return p2pfl.State(mixed.values, mixed.public, report=fitted.report)

    async def mixed(self, net, released):
        return await net.mix(released)


@dataclass(frozen=True)
class Wide(Mistaken):
    """Sends two models in one message."""

    async def mixed(self, net, released):
        both = Released(torch.cat([released.values] * 2, dim=-1))
        mean = await net.mix(both)
        return Released(mean.values[:, : released.rows.shape[-1]])


@dataclass(frozen=True)
class WideReceived(Mistaken):
    """Receives two models in one message."""

    async def mixed(self, net, released):
        await net.receive(Released(torch.cat([released.values] * 2, dim=-1)))
        return released


@dataclass(frozen=True)
class WideReleased(Mistaken):
    """Releases two models at once."""

    async def mixed(self, net, released):
        rows = torch.cat([released.values] * 2, dim=-1)
        both = await net.mix(await net.release(rows, since=released.public))
        return Released(both.values[:, : released.rows.shape[-1]])


@dataclass(frozen=True)
class Doubled(Mistaken):
    """Sends numbers of twice the bytes."""

    async def mixed(self, net, released):
        return Released((await net.mix(Released(released.values.to(torch.complex128)))).values.real)


@dataclass(frozen=True)
class NotFinite(Mistaken):
    """Divides by zero."""

    async def mixed(self, net, released):
        return await net.mix(Released(released.values / 0.0))


@dataclass(frozen=True)
class OneRow(Mistaken):
    """Reduces the first axis."""

    async def mixed(self, net, released):
        return await net.mix(Released(released.values[0]))


@dataclass(frozen=True)
class Plain(Mistaken):
    """Has a round that is no coroutine."""

    def round(self, state, *_):
        return state


@dataclass(frozen=True)
class Bare(Mistaken):
    """Passes rows that were not released."""

    async def mixed(self, net, released):
        return Released(await net.mix(released.values))


@dataclass(frozen=True)
class Asleep(Mistaken):
    """Waits for something of its own."""

    async def mixed(self, net, released):
        await asyncio.sleep(0)
        return await net.mix(released)


@dataclass(frozen=True)
class Blocked(Mistaken):
    """Waits for something of its own, which never comes and needs an event loop."""

    async def mixed(self, net, released):
        await asyncio.Event().wait()
        return await net.mix(released)


@dataclass(frozen=True)
class AsleepLonger(Mistaken):
    """Waits for a timer of its own."""

    async def mixed(self, net, released):
        await asyncio.sleep(0.01)
        return await net.mix(released)


@dataclass(frozen=True)
class Gathering(Mistaken):
    """Waits for two things at once."""

    async def mixed(self, net, released):
        return (await asyncio.gather(net.mix(released), asyncio.sleep(0.01)))[0]


@dataclass(frozen=True)
class Threaded(Mistaken):
    """Waits for a thread of its own."""

    async def mixed(self, net, released):
        await asyncio.to_thread(int)
        return await net.mix(released)


@dataclass(frozen=True)
class Looping(Mistaken):
    """Waits for a future of its own."""

    async def mixed(self, net, released):
        await asyncio.get_running_loop().create_future()
        return await net.mix(released)


@dataclass(frozen=True)
class Broken(Mistaken):
    """Has a mistake of which Python says the same kind of error."""

    async def mixed(self, net, released):
        del net
        return released.mean_of_all


@dataclass(frozen=True)
class Forgetful(Mistaken):
    """Returns no state."""

    async def round(self, state, learner, net, round):
        await super().round(state, learner, net, round)


REFUSED = {
    Plain(): ("round is a plain function",),
    Wide(): ("net.mix", "`beside`"),
    WideReceived(): ("net.receive", "`beside`"),
    WideReleased(): ("net.release", "`beside`"),
    Doubled(): ("net.mix", "complex128"),
    NotFinite(): ("net.mix", "NaN or infinity"),
    OneRow(): ("net.mix", "a row for each of"),
    Bare(): ("net.mix", "Released"),
    **dict.fromkeys((Asleep(), AsleepLonger(), Blocked(), Threaded(), Looping()), ("waits", "net and learner")),
    Forgetful(): ("returned NoneType", "State"),
}


def composed(algorithm, **how):
    return p2pfl.compose(
        algorithm,
        classifier(GRAPH.peers),
        GRAPH,
        rounds=ROUNDS,
        seed=SEED,
        settings={"transport": {"patience": PATIENCE}},
        **how,
    )


def lived(algorithm, odd=None):
    """Run live peers in virtual time, one of them with another algorithm than it says.

    Return what became of each, the seconds that the run took, and the notices of refused models.
    """
    transport, ends, notices = p2pfl.MemoryTransport(), {}, []

    def notice(each):
        if isinstance(each, ModelsRefused):
            notices.append(each)

    async def one(name):
        plan = composed(algorithm, live=True)
        plan = plan if odd is None or name != ALONE else replace(plan, algorithm=odd)
        try:
            how = {"source": SeededSource(SEED), "incarnation": 1, "notice": notice}
            async with p2pfl.Peer(name, plan, transport=transport, **how) as peer:
                ends[name] = await peer.run()
        except (P2PFLError, ZeroDivisionError) as error:
            ends[name] = error

    async def swarm():
        async with asyncio.timeout(10_000):
            await asyncio.gather(*map(one, GRAPH.peers))
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return ends, runner.run(swarm()), notices


@pytest.mark.parametrize("algorithm", REFUSED, ids=lambda each: type(each).__name__)
def test_a_simulation_refuses_the_mistake(algorithm):
    with pytest.raises(RunError) as caught:
        p2pfl.simulate(composed(algorithm), baselines=False)
    assert all(part in str(caught.value) for part in (type(algorithm).__name__, *REFUSED[algorithm]))


@pytest.mark.filterwarnings("ignore")  # of the coroutines that nobody awaits, which are the author's
def test_a_simulation_refuses_to_wait_for_two_things_at_once():
    asyncio.set_event_loop(None)  # gather makes no loop in a thread whose loop has been set
    with pytest.raises(RunError, match="Gathering: round waits for something of its own"):
        p2pfl.simulate(composed(Gathering()), baselines=False)


def test_a_simulation_passes_other_errors_of_the_author_on():
    with pytest.raises(AttributeError, match="mean_of_all"):
        p2pfl.simulate(composed(Broken()), baselines=False)


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("algorithm", REFUSED, ids=lambda each: type(each).__name__)
def test_live_peers_refuse_the_mistake_at_once(algorithm):
    ends, seconds, _ = lived(algorithm)
    assert {*ends} == {*GRAPH.peers}
    assert all(isinstance(end, RunError) for end in ends.values())
    assert any(all(part in str(end) for part in REFUSED[algorithm]) for end in ends.values())
    assert seconds < PATIENCE


@pytest.mark.parametrize("algorithm", [Wide(), NotFinite()], ids=lambda each: type(each).__name__)
def test_the_contract_of_algorithms_names_the_mistake(algorithm):
    with pytest.raises(ContractError, match=REFUSED[algorithm][1]):
        check_algorithm(algorithm, rounds=2)


@dataclass(frozen=True)
class OneStepLess(Mistaken):
    """Takes no gossip step."""

    async def mixed(self, net, released):
        del net
        return released


@dataclass(frozen=True)
class OneStepMore(Mistaken):
    """Takes two gossip steps."""

    async def mixed(self, net, released):
        return await net.mix(await net.mix(released))


@dataclass(frozen=True)
class Raising(Mistaken):
    """Fails in its second round."""

    async def round(self, state, learner, net, round):
        if round:
            raise ZeroDivisionError
        return await super().round(state, learner, net, round)


@dataclass(frozen=True)
class RoundTotals(Mistaken):
    """Takes a total in place of a gossip step."""

    async def mixed(self, net, released):
        await net.total(PublicContribution(released.public, net.peers, lambda row: row[:1].long().numpy()), size=1)
        return released


@dataclass(frozen=True)
class Longer(Mistaken):
    """Sends two models in one message, which it alone has room for."""

    beside: int = 100

    async def mixed(self, net, released):
        both = Released(torch.cat([released.values] * 2, dim=-1))
        return Released((await net.mix(both)).values[:, : released.rows.shape[-1]])


ODD = {
    OneStepLess(): p2pfl.State,
    OneStepMore(): p2pfl.State,
    Raising(): ZeroDivisionError,
    RoundTotals(): P2PFLError,
    Longer(): p2pfl.State,
}
"""Another algorithm, and what becomes of the peer that runs it."""

LONGEST = (ROUNDS * (len(GRAPH.peers) + 1) + 2) * PATIENCE
"""Seconds that peers wait in a run, if each waits in each round until those for which it waits must have given up, and
one waits for a total until its neighbours do and a timeout longer."""


@pytest.mark.sampled(fast=2)
@pytest.mark.parametrize("odd", ODD, ids=lambda each: type(each).__name__)
def test_one_peer_of_another_algorithm_keeps_no_others_for_ever(odd):
    ends, seconds, refused = lived(Mistaken(), odd)
    assert isinstance(ends.pop(ALONE), ODD[odd])
    assert all(isinstance(end, p2pfl.State) for end in ends.values())
    assert len(ends) == len(GRAPH.peers) - 1
    assert seconds <= LONGEST
    assert bool(refused) == isinstance(odd, Longer)


def test_a_receiver_says_whose_models_are_too_long_and_waits_for_none_of_them():
    _, seconds, refused = lived(Mistaken(), Longer())
    assert {(each.peer, each.neighbour, each.round) for each in refused if each.peer != ALONE} == {
        (peer, ALONE, 0) for peer in GRAPH.neighbours(ALONE)
    }
    assert all("`beside`" in str(each) for each in refused)
    assert seconds < PATIENCE


@dataclass(frozen=True)
class Method(Mistaken):
    """Declares what it sends beside a model by a method in place of a property."""

    def beside(self):
        return 1


def test_what_is_sent_beside_a_model_is_declared_by_a_number():
    with pytest.raises(ExperimentError, match=r"Method: beside is .*; declare a property that returns a whole number"):
        p2pfl.simulate(composed(Method()), baselines=False)


@pytest.mark.slow
def test_a_declared_longer_message_runs_simulated_and_live():
    size = classifier(GRAPH.peers).layout.size
    ends, _, refused = lived(Longer(beside=size))
    simulated = p2pfl.simulate(composed(Longer(beside=size)), baselines=False)
    for name, model in simulated.models.items():
        flat = torch.cat([value.flatten() for value in model.values()])
        torch.testing.assert_close(ends[name].rows[0], flat)
    assert not refused
