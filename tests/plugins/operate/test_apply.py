"""The operator changes a swarm of live peers in virtual time."""

import asyncio
from pathlib import Path

import pytest

from fleets import bundles
from p2pfl.core.errors import InputError, RunError
from p2pfl.experiment import plan, read
from p2pfl.experiment.swarm_change import ChangeAnswer
from p2pfl.network.peer import Peer
from p2pfl.network.peer.storage.checkpoint import CheckpointStore
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.transport import MemoryTransport
from p2pfl.plugins.operate.apply_command import Operation
from p2pfl.plugins.operate.bundles.fleet import Fleet
from p2pfl.plugins.operate.swarm_operator import MARGIN, SwarmView, check_after, without_models
from p2pfl.privacy.keys import FIRST, Identity, Roster, SeededSource
from p2pfl.results import Run
from swarms import SMALL, timeless
from wine_files import wine_file

NAMES = tuple(f"peer{number}" for number in range(4))
CHANGES = ["topology.kind=complete", "topology.peers=4", "rounds=6", "learning.batch=all", "transport.gather=900"]
OPERATOR = Identity(bytes(range(32)))
FAR = 2**31
KEYS = {name: Identity(bytes([number] * 32)) for number, name in enumerate(NAMES, start=1)}
ROSTER = Roster({name: key.public for name, key in KEYS.items()}, operator=OPERATOR.public)


class Plant:
    """Three peers that wait for the fourth, an operator, and what became of them."""

    def __init__(self, folder, *, roster=ROSTER, rounds=6, attacker=None):
        self.experiment, self.folder, self.roster = read(SMALL, changes=[*CHANGES, f"rounds={rounds}"]), folder, roster
        self.texts, self.done, self.attacker, self.target = [], {}, attacker, self.experiment

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
        if name == self.attacker:
            peer.changes._answer = boasting(peer.changes)
        async with peer:
            await peer.run()
        self.done[name] = peer.done

    def operation(self, after, edited=()):
        view = SwarmView("test", [self.roster])
        folder = self.folder / "changes"
        return Operation(
            after, ROSTER, view=view, operator=OPERATOR, folder=folder, say=self.texts.append, edited=edited
        )

    def change(self, *changes, after=4, dry_run=False, edited=()):
        """Change the swarm before its last peer has come; return the result."""

        async def together():
            transport = MemoryTransport()
            async with asyncio.TaskGroup() as tasks:
                for name in NAMES[:-1]:
                    tasks.create_task(self.play(name, transport))
                await asyncio.sleep(5)  # of virtual time, in which they announce themselves
                made = read(self.target, changes=list(changes))
                result = await self.operation(made, edited).run(transport, after=after, dry_run=dry_run)
                tasks.create_task(self.play(NAMES[-1], transport))
            return result

        return timeless(together())


def boasting(changes):
    """Return how a peer answers that states to be in a round of the far future."""
    honest = changes._answer

    async def answer(change, reason):
        was, changes.held.round = changes.held.round, FAR
        await honest(change, reason)
        changes.held.round = was

    return answer


REMAINING = 'topology.peers=["peer0", "peer1", "peer2"]'


def test_a_peer_that_states_a_round_of_the_far_future_is_named_before_anything_is_ordered(tmp_path):
    plant = Plant(tmp_path, rounds=40, attacker="peer1")
    with pytest.raises(BaseExceptionGroup) as raised:
        plant.change(REMAINING, "rounds=9", after=None)
    assert raised.group_contains(RunError, match=f"peer1 states round {FAR + 1}, and most peers are in round 1")
    assert not [*(tmp_path / "changes").glob("*-order.json")]


def test_a_run_without_an_end_ends_where_the_operator_says_whatever_a_peer_states(tmp_path):
    plant = Plant(tmp_path, rounds='"endless"', attacker="peer1")
    assert plant.change(REMAINING, "rounds=9", after=5)["after"] == 5
    assert "so this counts for nothing" in plant.texts[-2]
    assert plant.done == dict.fromkeys(NAMES, 5)


def test_a_change_whose_new_devices_are_too_far_from_every_model_is_refused_with_the_remedy(tmp_path):
    plant = Plant(tmp_path)
    names = 'topology.peers=["peer0", "peer4", "peer5", "peer6"]'
    with pytest.raises(BaseExceptionGroup) as raised:
        plant.change(names, "topology.kind=ring", "gossip.steps=1", dry_run=True)
    why = "no model reaches peer5 in the first round, because those around are new as well; add these devices in two"
    assert raised.group_contains(InputError, match=why)


@pytest.mark.parametrize(
    ("stay", "changes", "alone"),
    [
        ("01", ["gossip.steps=1"], ["peer5"]),
        ("0", ["gossip.steps=1"], ["peer4", "peer5"]),
        ("01", ["gossip.steps=2"], []),
        ("01", [], []),  # as many gossip steps as averaging needs
        ("01", ["gossip.steps=2", "learning.weighted=false"], ["peer5"]),
        ("4", ["gossip.steps=1", "topology.kind=complete"], []),
        ("0", ["gossip.steps=1", "topology.kind=one_peer_exponential"], ["peer4", "peer5", "peer6"]),
        ("0", ["gossip.steps=2", "topology.kind=one_peer_exponential"], ["peer6"]),
    ],
)
def test_a_new_device_needs_a_model_that_reaches_it_in_the_gossip_steps_of_the_first_round(stay, changes, alone):
    names = 'topology.peers=["peer0", "peer1", "peer4", "peer5", "peer6"]'
    after = read(SMALL, changes=["topology.kind=ring", names, *changes])
    assert without_models(after, [f"peer{number}" for number in stay]) == alone


def answers(**rounds):
    """Return what the operator sees of peers that state these rounds."""
    view = SwarmView("test", [ROSTER])
    content = "0" * 64
    view.answers = {
        name: ChangeAnswer(swarm="test", peer=name, content=content, last=None, round=round)
        for name, round in rounds.items()
    }
    return view


def test_no_single_peer_moves_the_round_from_which_the_operator_counts():
    honest = {"peer0": 7, "peer2": 9, "peer3": 8}
    assert (answers(peer1=10, **honest).rounds(NAMES), answers(peer1=10, **honest).ahead(NAMES)) == (10, {})
    for lie in (0, 33, 10**6, 2**32):
        view = answers(peer1=lie, **honest)
        assert 9 <= view.rounds(NAMES) <= 9 + len(NAMES) + MARGIN
        assert set(view.ahead(NAMES)) <= {"peer1"}
    assert answers(peer0=7, peer1=2**32).rounds(NAMES) == 7


def announced(view, name, **facts):
    me = Announcement(name, FIRST, "up", {"roster": ROSTER.digest, **facts})
    view.take_announcement(name, encode(me.sign(KEYS[name], swarm="test")))


def test_neither_a_peer_of_another_run_nor_one_that_leaves_keeps_the_others_from_a_change():
    view, after = SwarmView("test", [ROSTER]), read(SMALL, changes=[*CHANGES, REMAINING])
    for name in NAMES[:3]:
        announced(view, name, rounds="6")
    announced(view, "peer3", rounds="7")
    assert view.horizon == 6
    assert view.expected(after, ROSTER) == [*NAMES[:3]]
    assert view.taking_part == {*NAMES[:3]}
    announced(view, "peer2", rounds="8")
    with pytest.raises(InputError, match="peers of different runs are there"):
        _ = view.facts


def test_nothing_is_ordered_where_no_edited_key_is_part_of_a_change(tmp_path):
    plant = Plant(tmp_path)
    result = plant.change(edited=["transport.pace"])
    assert (result["number"], result["after"], result["kept"]) == (None, None, ["transport.pace"])
    line = "transport.pace stays as it is on each device, because its owner decides on it; change it by new bundles and"
    assert plant.texts == ["nothing changes", f"{line} a new run"]
    assert not (tmp_path / "changes").exists()
    assert plant.done == dict.fromkeys(NAMES, 6)


def test_a_roster_with_another_revoked_key_is_a_change_by_itself():
    view, after = SwarmView("test", [ROSTER]), read(SMALL, changes=CHANGES)
    for name in NAMES:
        announced(view, name, rounds="6")
    revoked = Roster(ROSTER.peers, revoked={Identity(bytes([9] * 32)).public: "stolen"}, operator=OPERATOR.public)
    assert "roster" in view.differences(after, revoked).keys
    assert "roster" not in view.differences(after, ROSTER).keys


def test_edited_keys_that_no_change_takes_are_those_in_which_the_bundles_differ(place):
    plant = wine_file("plant", rounds=3, more="[transport]\ngather = 120\n")
    Path("p2pfl_mqtt-0.3.0-py3-none-any.whl").write_bytes(b"a wheel")
    Path("plant.toml").write_text(plant)
    fleet = bundles(place)
    assert fleet.edited() == []
    edits = {"rounds = 3": "rounds = 9", "gather = 120": 'gather = 120\npace = { every = "10 min" }\ncheckpoint = 5'}
    for before, after in {**edits, 'name = "linear"': 'name = "mlp"', "peers = 3": "peers = 4"}.items():
        assert before in plant
        plant = plant.replace(before, after)
    Path("plant.toml").write_text(plant)
    again = Fleet.open("plant.toml", out=fleet.out)
    assert again.edited() == ["model.name", "transport.checkpoint", "transport.pace"]


@pytest.mark.slow
def test_all_agree_and_end_after_the_round_that_the_operator_names(tmp_path):
    plant = Plant(tmp_path)
    remaining = '["peer0", "peer1", "peer2"]'
    result = plant.change(f"topology.peers={remaining}", "learning.rate=0.01", "rounds=9")
    assert (result["number"], result["after"]) == (1, 4)
    assert (result["removed"], result["added"], result["replaced"]) == (["peer3"], [], [])
    assert result["keys"] == {"learning.rate": ("0.1", "0.01"), "rounds": ("6", "9")}
    assert plant.done == dict.fromkeys(NAMES, 4)
    assert {path.name for path in (tmp_path / "changes").iterdir()} == {"test-1-proposal.json", "test-1-order.json"}


@pytest.mark.slow
def test_a_dry_run_changes_nothing(tmp_path):
    plant = Plant(tmp_path)
    result = plant.change('topology.peers=["peer0", "peer1", "peer2"]', "learning.rate=0.01", dry_run=True)
    assert result["after"] is None
    assert "learning.rate: 0.1 -> 0.01" in plant.texts
    assert plant.done == dict.fromkeys(NAMES, 6)
    assert not (tmp_path / "changes").exists()


@pytest.mark.slow
def test_the_operator_hears_at_once_that_no_change_replaces_a_graph_in_a_file(tmp_path):
    (tmp_path / "ring.edges").write_text("peer0 peer1\npeer1 peer2\npeer2 peer0\n")
    plant = Plant(tmp_path)
    plant.target = read({key: value for key, value in SMALL.items() if key != "topology"}, changes=[*CHANGES[2:]])
    with pytest.raises(BaseExceptionGroup) as raised:
        plant.change(f"topology.kind='{tmp_path}/ring.edges'", dry_run=True)
    assert raised.group_contains(InputError, match=r"is a file on each device, which no change replaces; set topology")


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


@pytest.mark.slow
def test_the_last_round_is_no_later_than_that_of_the_run(tmp_path):
    plant = Plant(tmp_path)
    result = plant.change('topology.peers=["peer0", "peer1", "peer2"]', "rounds=9", after=None)
    assert result["after"] == 6
    assert plant.texts[-1] == "change 2: all peers end the run after round 6, and go on with the next one"
    assert plant.done == dict.fromkeys(NAMES, 6)


def test_peers_of_another_release_are_named_as_such():
    view = SwarmView("test", [ROSTER])
    view.take_announcement("peer1", b"\x02" + encode(Announcement("peer1", FIRST, "up", {}))[1:])
    with pytest.raises(
        InputError, match=r"no peer .* reads; of peer1, the message has version 2 of the wire format, and"
    ):
        _ = view.facts


def test_what_nobody_in_the_roster_has_signed_is_no_part_of_the_swarm():
    view = SwarmView("test", [ROSTER])
    view.take_announcement("peer0", b"garbage")
    view.take_answer("peer0", b"garbage")
    assert (view.present, view.answers) == ({}, {})
    with pytest.raises(InputError, match=r"no peer of this swarm is there"):
        _ = view.facts


def test_bundles_have_the_roster_of_an_order_to_which_a_peer_has_not_answered_yet(p2pfl, place, monkeypatch):
    plant = wine_file("plant", rounds=3, more='batch = "all"\n')
    Path("p2pfl_mqtt-0.3.0-py3-none-any.whl").write_bytes(b"a wheel")
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
