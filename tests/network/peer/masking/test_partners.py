"""A row leaves under masks only if enough mask partners are present."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from p2pfl.core.errors import CoverError, ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.network.peer.masking import mask_cover
from p2pfl.network.peer.masking.mask_cover import Cover
from p2pfl.network.peer.masking.model_protection import await_partners
from p2pfl.network.protocol.ledgers.mask_ledger import MaskLedger
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.results.notices.kinds import LearningStopped, PartnersAwaited
from p2pfl.results.spending.promises import promise
from p2pfl.topology import complete, ring
from swarms import SMALL, live

MASKED = ["privacy.mode=pairwise", "privacy.mask=30.0", "transport.patience=0.5", "rounds=4", "gossip.steps=1"]
FOUR = ["topology.kind=complete", "topology.peers=4"]


class Hostile(MemoryTransport):
    """A broker that hands the wills of honest peers to one victim and keeps their messages from it."""

    def __init__(self, alive, *, victim, honest):
        super().__init__(lose=self.withholds)
        self.alive, self.victim, self.honest = alive, victim, honest
        self.wills, self.attacking, self.begin = {}, False, asyncio.Event()

    def join(self, client, *, will=None, **how):
        if will is not None:
            self.wills[client.split("-")[1]] = will
        return super().join(client, will=will, **how)

    def withholds(self, client, message):
        listener = client.split("-")[1] if "-" in client else client
        sender = message.topic.split("/")[4] if message.topic.count("/") > 3 else ""
        own = self.alive.get(self.victim)
        if own is not None and own.rounds is not None and own.rounds.done >= 1:
            self.begin.set()
        if not self.attacking or sender not in self.honest:
            return False
        will = message.data == self.wills[sender].data
        return not will if listener == self.victim else will


async def attacked(experiment, *, said):
    alive = {}
    transport = Hostile(alive, victim="peer0", honest={"peer1", "peer2"})

    async def attack():
        await transport.begin.wait()
        transport.attacking = True
        async with transport.join("eve") as eve:
            for peer in sorted(transport.honest):
                await eve.publish(transport.wills[peer].topic, transport.wills[peer].data)

    attacker = asyncio.ensure_future(attack())
    try:
        return await live(
            experiment,
            transport,
            source=SeededSource(5),
            alive=alive,
            notice=said.append,
        )
    finally:
        attacker.cancel()


@pytest.fixture
def partners(monkeypatch):
    """With whom peer0 masks each of its releases."""
    seen, release = [], MaskLedger.release

    def noted(ledger, round, *, partners, **how):
        if ledger.peer == "peer0":
            seen.append(frozenset(partners))
        return release(ledger, round, partners=partners, **how)

    monkeypatch.setattr(MaskLedger, "release", noted)
    return seen


@pytest.mark.slow
async def test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone(partners):
    said = []
    ended = await attacked(read(SMALL, changes=[*FOUR, *MASKED]), said=said)
    assert partners
    assert min(map(len, partners)) >= 2
    assert PartnersAwaited(peer="peer0", partners=("peer1", "peer2"), seconds=0.5) in said
    [stopped] = [each for each in said if each.peer == "peer0" and isinstance(each, LearningStopped)]
    assert stopped.reason == "partners"
    assert len(ended["peer0"].records) < 4  # it keeps what it has learned
    assert set(ended) == {"peer0", "peer1", "peer2", "peer3"}


@pytest.mark.slow
async def test_one_partner_is_enough_where_the_experiment_says_so(partners):
    await attacked(read(SMALL, changes=[*FOUR, *MASKED, "privacy.partners=1"]), said=[])
    assert frozenset({"peer3"}) in partners


def cover(present, *, least):
    graph = complete(4)
    secrets = {
        edge: key for edge, key in swarm_secrets(graph, source=SeededSource(1), run="x").items() if "peer0" in edge
    }
    masks = Masks(secrets, deviation=1.0, topology=graph)
    ledger = SimpleNamespace(peer="peer0")
    found = Cover(masks, ledger, positions=lambda _: None, least=least)
    return found.missing_partners(0, present=frozenset(present))


def test_a_release_waits_for_all_missing_partners_until_enough_are_present():
    assert cover({"peer1"}, least=2) == {"peer2", "peer3"}
    assert cover({"peer1", "peer3"}, least=2) == frozenset()
    assert cover(set(), least=1) == {"peer1", "peer2", "peer3"}
    assert cover({"peer1", "peer2", "peer3"}, least=9) == frozenset()  # nobody else is there to wait for


def ledgers():
    """Return the covers of peer0 and peer1 among four, with a mask of two grid points."""
    graph = complete(4)
    secrets = swarm_secrets(graph, source=SeededSource(1), run="x")
    names = graph.peers
    return [
        Cover(
            Masks({edge: key for edge, key in secrets.items() if name in edge}, deviation=1.0, topology=graph),
            MaskLedger(name, partners=[each for each in names if each != name]),
            positions=lambda _: np.arange(2),
            least=2,
        )
        for name in names[:2]
    ]


def test_partners_that_are_gone_do_not_count_as_present():
    here, _ = ledgers()
    with pytest.raises(CoverError):
        here.decide(0, present=frozenset({"peer2"}))


async def test_the_wait_for_partners_ends_when_one_comes_or_the_timeout_passes():
    class Connection:
        """A connection on which a partner comes at some time."""

        def __init__(self, comes):
            self.now, self.comes = 0.0, comes
            self.session = SimpleNamespace(shared=SimpleNamespace(patience=10.0, me=SimpleNamespace(peer="ada")))

        def clock(self):
            return self.now

        async def until(self, condition, *, by):
            while not condition() and self.now < by:
                self.now = min(by, self.now + 3.0)

        def lacking(self):
            return frozenset() if self.now >= self.comes else frozenset({"bob"})

    for comes, until in ((0.0, 0.0), (5.0, 6.0), (99.0, 10.0)):
        connection, said = Connection(comes), []
        await await_partners(connection, connection.lacking, notify=said.append)
        assert connection.now == until
        assert said == ([] if comes == 0 else [PartnersAwaited(peer="ada", partners=("bob",), seconds=10.0)])


def test_masks_of_sums_have_the_same_floor():
    graph = complete(4)
    masks = Masks(swarm_secrets(graph, source=SeededSource(1), run="x"), deviation=1.0, topology=graph)
    assert masks.among({"peer0", "peer1", "peer2"}, least=2).topology.neighbours("peer0")
    with pytest.raises(CoverError, match="peer0 needs 2 mask partners to release its model and has 1 of"):
        masks.among(["peer0", "peer1"], least=2)


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ([], 2),
        (["privacy.colluders=2"], 3),
        (["privacy.partners=1"], 1),
        (["privacy.noise=1.0", "privacy.clip=1.0"], 1),
    ],
)
def test_a_release_needs_one_partner_more_than_may_collude_unless_a_guarantee_counts_them(changes, least):
    made = plan(read(SMALL, changes=[*FOUR, *MASKED, *changes]))
    assert made.protection.partners == least
    assert ("one mask partner" in promise(made.experiment, made.protection, spent=None)["statement"]) == (
        "privacy.partners=1" in changes
    )


def test_a_mask_graph_with_too_few_partners_is_refused():
    star = ["topology.kind=star", "topology.peers=4", *MASKED]
    with pytest.raises(ExperimentError, match=r"needs 2 mask partners .* only 1; .* set privacy\.partners = 1"):
        plan(read(SMALL, changes=star))
    plan(read(SMALL, changes=[*star, "privacy.partners=1"]))
    plan(read(SMALL, changes=["topology.kind=ring", "topology.peers=3", *MASKED]))
    assert ring(3).neighbours("peer0") == ("peer1", "peer2")


def test_a_release_draws_few_late_masks_of_a_partner_that_owes_many(monkeypatch):
    monkeypatch.setattr(mask_cover, "RELEASED_NUMBERS", 4 * 10 * 3)  # three masks of each of four partners
    graph, size = complete(5), 10
    masks = Masks(swarm_secrets(graph, source=SeededSource(1), run="x"), deviation=1.0, topology=graph)
    ledgers = {peer: MaskLedger(peer, partners=graph.neighbours(peer)) for peer in graph.peers}
    bob, ada = graph.peers[1], graph.peers[0]
    for round in range(20):
        ledgers[ada].release(round)
    ledgers[bob].receive(ada, ledgers[ada].statement(bob))
    cover = Cover(masks, ledgers[bob], positions=lambda _: np.arange(size))
    everybody = frozenset(graph.peers) - {bob}
    for round in (20, 21):
        cover.decide(round, present=everybody)
        carried = [slot.round for slot, _ in ledgers[bob].applied_masks()[ada]]
        assert [each for each in carried if each < 20] == [*range(3 * (round - 19))]
        assert round in carried
        assert cover.sums([bob], round=round, size=size).shape == (1, size)
    ledgers[bob].finish()
    assert cover.settle(np.arange(size)) is not None
    left = {mask.slot.round for mask in ledgers[bob].list_uncancelled()}
    assert left == {20, 21}  # ada has not said whether she released there
