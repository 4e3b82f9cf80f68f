"""A row leaves under masks only if enough mask partners are present."""

import asyncio

import pytest

from p2pfl.core.errors import CoverError, ExperimentError
from p2pfl.experiment import plan, read
from p2pfl.network.peer.masking.mask_cover import MaskCover
from p2pfl.network.protocol.ledgers.mask_slots import MaskSlots, Slot
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import SeededSource
from p2pfl.privacy.masks import Masks, swarm_secrets
from p2pfl.results.notices.kinds import LearningStopped
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
    seen, take = [], MaskSlots.take

    def noted(ledger, slot, *, partners):
        if ledger.peer == "peer0":
            seen.append(frozenset(partners))
        return take(ledger, slot, partners=partners)

    monkeypatch.setattr(MaskSlots, "take", noted)
    return seen


@pytest.mark.slow
async def test_a_broker_and_one_neighbour_cannot_make_a_peer_mask_with_that_neighbour_alone(partners):
    said = []
    ended = await attacked(read(SMALL, changes=[*FOUR, *MASKED]), said=said)
    assert partners
    assert {*map(len, partners)} == {3}
    [stopped] = [each for each in said if each.peer == "peer0" and isinstance(each, LearningStopped)]
    assert stopped.reason == "undecided"
    assert len(ended["peer0"].records) < 4  # it keeps what it has learned
    assert set(ended) == {"peer0", "peer1", "peer2", "peer3"}


def test_peers_that_are_no_members_do_not_count_as_partners():
    graph = complete(4)
    secrets = {e: key for e, key in swarm_secrets(graph, source=SeededSource(1), run="x").items() if "peer0" in e}
    slots = MaskSlots("peer0", partners=graph.neighbours("peer0"))
    cover = MaskCover(Masks(secrets, deviation=1.0, topology=graph), slots, least=2)
    with pytest.raises(CoverError):
        cover.decide(0, members=frozenset({"peer0", "peer2"}))
    assert cover.decide(0, members=frozenset({"peer0", "peer2", "peer3"})) == {"peer2", "peer3"}
    assert cover.charged == {Slot(0, 0)}


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
