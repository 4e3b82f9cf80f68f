"""A running swarm that its operator changes: live peers in virtual time, whose broker or neighbour lies."""

import asyncio

import msgspec
import pytest
import torch

from p2pfl.experiment import plan, read
from p2pfl.experiment.changed_run import settings_of
from p2pfl.experiment.swarm_change import NEXT, ORDER, ChangeAnswer, RunOrder, SwarmChange, run_digest
from p2pfl.network.peer import Peer
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.wire.message_codec import answer_topic, change_topic
from p2pfl.network.transport import MemoryTransport
from p2pfl.privacy.keys import FIRST, Identity, Roster, SeededSource
from p2pfl.results import Run
from swarms import SMALL, timeless

NAMES = tuple(f"peer{number}" for number in range(4))
CHANGES = ["topology.kind=ring", "topology.peers=4", "rounds=8", "learning.batch=all", "transport.patience=5"]
OPERATOR = Identity(bytes(range(32)))
KEYS = {name: Identity(bytes([number] * 32)) for number, name in enumerate(NAMES, start=1)}
ROSTER = Roster({name: key.public for name, key in KEYS.items()}, operator=OPERATOR.public)


@pytest.fixture
def experiment():
    return read(SMALL, changes=CHANGES)


def peer_of(name, experiment, transport, folder, *, notices, roster=ROSTER):
    run = folder / name
    if not run.exists():
        Run(experiment, folder=run)
    store = CheckpointStore(run / "peers", name)
    return Peer(
        name,
        plan(experiment, only=[name]),
        transport=transport,
        source=SeededSource(7),
        identity=KEYS[name],
        trust=roster,
        incarnation=FIRST,
        notice=notices.append,
        store=store,
    )


def swarm(experiment, folder, *, publish=None, lose=None, roster=ROSTER):
    """Run the peers to their ends over a broker that retains what an operator has published."""
    notices, ended, answers = [], {}, {}

    async def one(name, transport):
        async with peer_of(name, experiment, transport, folder, notices=notices, roster=roster) as peer:
            ended[name] = (await peer.run()).rows, peer.done

    async def together():
        transport = MemoryTransport(lose=lose)
        run = run_digest(peer_of(NAMES[0], experiment, transport, folder, notices=[], roster=roster).me.facts)
        async with transport.join("operator") as channel:
            for topic, payload in (publish(run) if publish else {}).items():
                await channel.publish(topic, payload, retain=True)
        async with asyncio.TaskGroup() as tasks:
            for name in NAMES:
                tasks.create_task(one(name, transport))
        async with transport.join("reader") as channel:
            await channel.subscribe(answer_topic("test"))
            for _ in NAMES:
                try:
                    async with asyncio.timeout(1):
                        message = await anext(channel)
                except TimeoutError:
                    break
                name = message.topic.split("/")[4]
                answers[name] = ChangeAnswer.decode(
                    bytes(message.data), swarm="test", peer=name, public=KEYS[name].public
                )

    timeless(together())
    return ended, notices, answers


def change(run, /, experiment, *, number=1, last=3, operator=OPERATOR, **other):
    made = SwarmChange(
        swarm="test", number=number, run=run, settings=settings_of(experiment), roster=ROSTER.text, last=last
    )
    return msgspec.structs.replace(made, **other).signed(operator).encode()


def publishing(experiment, **other):
    """Return a function from a run to what the operator publishes for it."""
    return lambda run: {change_topic("test"): change(run, experiment, **other)}


def of_kind(notices, kind):
    return [notice for notice in notices if type(notice).__name__ == kind]


@pytest.mark.slow
def test_an_order_ends_the_run_at_all_peers_as_if_it_had_that_many_rounds(experiment, tmp_path):
    order = publishing(experiment)
    ended, notices, answers = swarm(experiment, tmp_path / "changed", publish=order)
    whole, _, _ = swarm(read(SMALL, changes=[*CHANGES, "rounds=3"]), tmp_path / "whole")
    assert {done for _, done in ended.values()} == {3}
    for name in NAMES:
        assert torch.equal(ended[name][0], whole[name][0])
    assert {notice.peer for notice in of_kind(notices, "ChangeTaken")} == {*NAMES}
    assert {name: (answer.last, answer.refused) for name, answer in answers.items()} == dict.fromkeys(NAMES, (3, ""))
    assert not of_kind(notices, "ChangeUnconfirmed")


@pytest.mark.slow
def test_a_broker_that_withholds_the_order_from_half_of_the_peers_splits_nobody(experiment, tmp_path):
    def lose(client, message):
        return message.topic == change_topic("test") and any(f"-{name}-" in client for name in NAMES[1:])

    order = publishing(experiment, last=5)
    ended, notices, answers = swarm(experiment, tmp_path, publish=order, lose=lose)
    assert {done for _, done in ended.values()} == {5}
    relayed = {notice.peer: notice.neighbour for notice in of_kind(notices, "ChangeTaken")}
    assert relayed[NAMES[0]] is None
    assert all(relayed[name] in NAMES for name in NAMES[1:])
    assert {answer.last for answer in answers.values()} == {5}


@pytest.mark.slow
def test_under_masks_and_with_a_common_model_the_run_ends_like_one_of_fewer_rounds(tmp_path):
    masked = [*CHANGES, "topology.kind=complete", "privacy.mode=pairwise", "learning.consensus=true"]
    experiment = read(SMALL, changes=masked)
    order = publishing(experiment)
    ended, _, _ = swarm(experiment, tmp_path / "changed", publish=order)
    whole, _, _ = swarm(read(SMALL, changes=[*masked, "rounds=3"]), tmp_path / "whole")
    for name in NAMES:
        assert ended[name][1] == 3
        assert torch.equal(ended[name][0], whole[name][0])


@pytest.mark.slow
def test_a_proposal_is_answered_and_ends_nothing(experiment, tmp_path):
    proposal = publishing(experiment, last=None)
    ended, notices, answers = swarm(experiment, tmp_path, publish=proposal)
    assert {done for _, done in ended.values()} == {8}
    assert {(answer.last, answer.refused) for answer in answers.values()} == {(None, "")}
    assert {notice.last for notice in of_kind(notices, "ChangeTaken")} == {None}


@pytest.mark.slow
def test_a_change_that_nobody_signed_or_for_another_run_ends_nothing_and_is_not_kept(experiment, tmp_path):
    forged = publishing(experiment, operator=KEYS["peer1"])
    other = publishing(experiment, run="0" * 64)
    for number, published in enumerate((forged, other)):
        ended, notices, answers = swarm(experiment, tmp_path / str(number), publish=published)
        assert {done for _, done in ended.values()} == {8}
        assert not notices or not of_kind(notices, "ChangeTaken")
        assert answers == {}
        assert not [*(tmp_path / str(number)).glob("*/peers/*.change")]


def test_a_run_that_an_order_began_is_left_by_a_later_order_alone_whatever_most_neighbours_show(tmp_path):
    folder = tmp_path / NEXT
    folder.mkdir()
    experiment = read(SMALL, changes=[*CHANGES, f"trust.roster='{folder}/roster.toml'"])
    begun = SwarmChange.decode(change("a" * 64, experiment, number=4))
    (folder / ORDER).write_bytes(RunOrder(change=begun, late=False).encode())
    held = peer_of(NAMES[0], experiment, MemoryTransport(), tmp_path, notices=[]).changes.held
    for number in (3, 4, 5):
        order = change("b" * 64, experiment, number=number)
        held.collect(order)
        left = held.moved(dict.fromkeys(NAMES[1:], SwarmChange.decode(order).start))
        assert (left is not None) == (number == 5)


@pytest.mark.slow
def test_a_change_that_an_owner_would_not_agree_to_is_answered_with_the_reason(experiment, tmp_path):
    settings = settings_of(experiment)
    settings["learning"] = {**settings["learning"], "loss": "evil.code:run"}
    order = publishing(experiment, settings=settings)
    ended, notices, answers = swarm(experiment, tmp_path, publish=order)
    assert {done for _, done in ended.values()} == {8}
    assert 'the operator cannot name the code "evil.code:run"' in answers["peer2"].refused
    assert all(notice.ordered for notice in of_kind(notices, "ChangeRefused"))
    assert not [*tmp_path.glob("*/peers/*.change")]


@pytest.mark.slow
def test_without_an_operator_in_the_roster_nothing_is_taken_or_answered(experiment, tmp_path):
    roster = Roster(ROSTER.peers)
    order = publishing(experiment)
    ended, _, answers = swarm(experiment, tmp_path, publish=order, roster=roster)
    assert {done for _, done in ended.values()} == {8}
    assert answers == {}
