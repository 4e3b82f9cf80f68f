"""The operator changes a swarm of live peers in virtual time."""

import asyncio
from pathlib import Path

import pytest

from fleets import bundles
from p2pfl.core.errors import InputError, RunError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.operate.apply_command import Operation
from p2pfl.plugins.operate.swarm_operator import SwarmView, check_after
from p2pfl.privacy.keys import FIRST, Identity, Roster, SeededSource
from p2pfl.results import Run
from swarms import SMALL, timeless
from wine_files import wine_file

NAMES = tuple(f"peer{number}" for number in range(4))
CHANGES = ["topology.kind=complete", "topology.peers=4", "rounds=6", "learning.batch=all", "transport.gather=900"]
OPERATOR = Identity(bytes(range(32)))
KEYS = {name: Identity(bytes([number] * 32)) for number, name in enumerate(NAMES, start=1)}
ROSTER = Roster({name: key.public for name, key in KEYS.items()}, operator=OPERATOR.public)


class Plant:
    """Three peers that wait for the fourth, an operator, and what became of them."""

    def __init__(self, folder, *, roster=ROSTER):
        self.experiment, self.folder, self.roster = read(SMALL, changes=CHANGES), folder, roster
        self.said, self.done = [], {}

    async def play(self, name, transport):
        Run(self.experiment, folder=self.folder / name)
        peer = Peer(
            name,
            plan(self.experiment, only=[name]),
            transport=transport,
            source=SeededSource(7),
            identity=KEYS[name],
            trust=self.roster,
            incarnation=FIRST,
            store=CheckpointStore(self.folder / name / "peers", name),
        )
        async with peer:
            await peer.run()
        self.done[name] = peer.done

    def operation(self, after):
        view = SwarmView("test", [self.roster])
        folder = self.folder / "changes"
        return Operation(after, ROSTER, view=view, operator=OPERATOR, folder=folder, say=self.said.append)

    def change(self, *changes, after=4, dry_run=False):
        """Change the swarm before its last peer has come; return the result."""

        async def together():
            transport = MemoryTransport()
            async with asyncio.TaskGroup() as tasks:
                for name in NAMES[:-1]:
                    tasks.create_task(self.play(name, transport))
                await asyncio.sleep(5)  # of virtual time, in which they announce themselves
                made = read(self.experiment, changes=list(changes))
                result = await self.operation(made).run(transport, after=after, dry_run=dry_run)
                tasks.create_task(self.play(NAMES[-1], transport))
            return result

        return timeless(together())


def test_all_agree_and_end_after_the_round_that_the_operator_names(tmp_path):
    plant = Plant(tmp_path)
    remaining = '["peer0", "peer1", "peer2"]'
    result = plant.change(f"topology.peers={remaining}", "learning.rate=0.01", "rounds=9")
    assert (result["number"], result["after"]) == (1, 4)
    assert (result["removed"], result["added"], result["replaced"]) == (["peer3"], [], [])
    assert result["keys"] == {"learning.rate": ("0.1", "0.01"), "rounds": ("6", "9")}
    assert plant.done == dict.fromkeys(NAMES, 4)
    assert {path.name for path in (tmp_path / "changes").iterdir()} == {"test-1-proposal.json", "test-1-order.json"}


def test_a_dry_run_changes_nothing(tmp_path):
    plant = Plant(tmp_path)
    result = plant.change('topology.peers=["peer0", "peer1", "peer2"]', "learning.rate=0.01", dry_run=True)
    assert result["after"] is None
    assert "learning.rate: 0.1 -> 0.01" in plant.said
    assert plant.done == dict.fromkeys(NAMES, 6)
    assert not (tmp_path / "changes").exists()


def test_a_peer_that_is_not_there_keeps_the_operator_from_changing_anything(tmp_path):
    plant = Plant(tmp_path)
    with pytest.raises(BaseExceptionGroup) as raised:
        plant.change("learning.rate=0.01")
    assert raised.group_contains(RunError, match="peer3 is not there to agree")


def test_a_roster_without_an_operator_cannot_be_changed(tmp_path):
    plant = Plant(tmp_path, roster=Roster(ROSTER.peers))
    with pytest.raises(BaseExceptionGroup) as raised:
        plant.change("learning.rate=0.01")
    assert raised.group_contains(InputError, match="names no operator")


def test_a_last_round_that_peers_may_have_played_is_refused():
    check_after(12, 10, rounds=30)
    with pytest.raises(InputError, match="too near"):
        check_after(11, 10, rounds=30)


def test_a_run_that_ends_before_all_have_the_order_is_refused():
    check_after(12, 10, rounds=12)
    with pytest.raises(InputError, match="in round 11 of 12, too near to the end for a change"):
        check_after(12, 11, rounds=12)


def test_the_last_round_is_no_later_than_that_of_the_run(tmp_path):
    plant = Plant(tmp_path)
    result = plant.change('topology.peers=["peer0", "peer1", "peer2"]', "rounds=9", after=None)
    assert result["after"] == 6
    assert plant.said[-1] == "change 2: all peers end the run after round 6, and go on with the next one"
    assert plant.done == dict.fromkeys(NAMES, 6)


def test_what_nobody_in_the_roster_has_signed_is_no_part_of_the_swarm():
    view = SwarmView("test", [ROSTER])
    view.take_announcement("peer0", b"garbage")
    view.take_answer("peer0", b"garbage")
    assert (view.present, view.answers) == ({}, {})
    with pytest.raises(InputError, match="no peer of this swarm is there"):
        _ = view.facts


def test_bundles_have_the_roster_of_an_order_to_which_a_peer_has_not_answered_yet(p2pfl, place, monkeypatch):
    plant = wine_file("plant", rounds=3, more='batch = "all"\n')
    Path("p2pfl_mqtt-0.2.0-py3-none-any.whl").write_bytes(b"a wheel")
    Path("plant.toml").write_text(plant)
    bundles(place, port=8883)
    for name in NAMES[:3]:
        made = p2pfl("identity", name, "--keys", f"{name}/keys", "--request", f"{name}/request.toml")
        assert made.status == 0, made.err
    requests = [f"{name}/request.toml" for name in NAMES[:3]]
    assert p2pfl("deploy", "plant.toml", "--out", "fleet", "--yes", "--collect", *requests).status == 0

    async def unanswered(operation, transport, *, after, dry_run):
        del transport, after
        operation.ordered = not dry_run
        raise RunError("peer1 has not answered to the order 1")

    monkeypatch.setattr(Operation, "run", unanswered)
    Path("plant.toml").write_text(plant.replace("peers = 3", "peers = 2"))
    words = ["deploy", "plant.toml", "--out", "fleet", "--broker", "mqtts://127.0.0.1:8883", "--apply"]
    for more, peers in ((["--dry-run"], NAMES[:3]), ([], NAMES[:2])):
        said = p2pfl(*words, *more)
        assert "has not answered" in said.err
        assert (*Roster.read("fleet/roster.toml").peers,) == peers
