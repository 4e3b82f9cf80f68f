"""A board takes part in a ring with Python peers, over a real broker."""

import asyncio
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from boards import build
from p2pfl.core.errors import RunError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.transport.broker import embedded, mosquitto
from p2pfl.privacy.keys import Identity, Roster, SeededSource
from p2pfl.simulation import simulate

pytestmark = pytest.mark.slow

BOARD = "bob"
PEERS = ["ada", "bob", "cleo", "dan"]
RING = {
    "name": "ring",
    "seed": 3,
    "rounds": 6,
    "topology": {"kind": "ring", "peers": PEERS},
    "data": {"name": "digits", "test": 0.8},
    "model": {"hidden": [32]},
    "learning": {"algorithm": "dpsgd", "batch": 16, "device": "cpu"},
    "transport": {"patience": 20.0, "gather": 30.0},
}
AVERAGING = ["learning.algorithm=fedavg", "learning.weighted=false", "gossip.steps=3", "learning.epochs=2", "rounds=3"]
TOLERANCE = 1e-6
"""Float32 has a unit of 6e-8 at 1; the sums of 10 to 20 steps differ in their order alone."""


@pytest.fixture(scope="module")
def broker():
    if mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with embedded(kind="mosquitto") as running:
        yield running.url


@pytest.fixture
def flashed(flash, tmp_path):
    """Return the program of a board for an experiment."""

    def make(experiment, *, identity=None, arguments=("SANITIZE=1", "CFLAGS=-O0")):
        header = tmp_path / "flash.h"
        header.write_text(flash.flashed(experiment, BOARD, identity))
        return build(tmp_path, "peer", f"FLASH={header}", *arguments)

    return make


async def start(command, url, file):
    """Start the board's program, whose sentences are its standard error."""
    place = urlsplit(url)
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, place.hostname, str(place.port), file, stderr=pipe)


async def play(experiment, url, command, file, *, names=None, board=None, **given):
    """Play a run with a board and Python peers; return the board's exit status and sentences, and their ends."""
    process = await start(command, url, file)
    ended = {}

    async def one(name):
        known = {key: value[name] if isinstance(value, dict) else value for key, value in given.items()}
        transport = connect(experiment, urls=[url], peer=name)
        async with Peer(name, plan(board or experiment, only=[name]), transport=transport, **known) as peer:
            ended[name] = await peer.run(), peer

    async with asyncio.timeout(120):
        try:
            async with asyncio.TaskGroup() as tasks:
                for name in names or [name for name in PEERS if name != BOARD]:
                    tasks.create_task(one(name))
        except* RunError as errors:
            ended["errors"] = [str(error) for error in errors.exceptions]
        _, said = await process.communicate()
    return process.returncode, said.decode(), ended


def simulated(experiment):
    models = simulate(experiment, baselines=False).models
    return {name: torch.cat([part.flatten() for part in model.values()]) for name, model in models.items()}


def kept(file):
    """Return the round and the model that a board has kept."""
    data = file.read_bytes()
    return int.from_bytes(data[:4], "little"), torch.from_numpy(np.frombuffer(data[4:], "<f4").copy())


def expect_agreement(experiment, file, ended):
    """Hold that all peers end where the simulation ends, with nothing missed, refused or unsettled."""
    wanted = simulated(experiment)
    assert float((wanted["ada"] - plan(experiment).learner.start(("ada",))[0]).abs().max()) > 0.01
    rounds, model = kept(file)
    assert rounds == experiment.rounds
    assert float((model - wanted[BOARD]).abs().max()) < TOLERANCE
    for name, (state, peer) in ended.items():
        assert float((state.rows[0] - wanted[name]).abs().max()) < TOLERANCE
        assert not peer.ended.unsettled
        refused = peer.session.shared.refused
        assert not [why for why in refused if why.startswith(BOARD) and "Key" not in why], refused


@pytest.mark.parametrize("changes", [[], AVERAGING], ids=["D-PSGD", "FedAvg, three gossip steps"])
async def test_ring_with_a_board_ends_where_the_simulation_ends(flashed, broker, tmp_path, changes):
    experiment = read(RING, changes=changes)
    status, said, ended = await play(experiment, broker, [flashed(experiment)], tmp_path / "model")
    assert (status, said) == (0, "")
    expect_agreement(experiment, tmp_path / "model", ended)


async def test_board_and_peers_of_a_roster_believe_its_keys_alone(flashed, broker, tmp_path):
    seeds = {name: SeededSource(number).bytes(32, purpose="identity", peer=name) for number, name in enumerate(PEERS)}
    identities = {name: Identity(seed) for name, seed in seeds.items()}
    roster = Roster({name: identity.public for name, identity in identities.items()})
    roster.write(tmp_path / "roster.toml")
    experiment = read(RING, changes=["name=listed", "rounds=2", f"trust.roster={tmp_path / 'roster.toml'}"])
    program = flashed(experiment, identity=seeds[BOARD])
    status, said, ended = await play(
        experiment, broker, [program], tmp_path / "model", identity=identities, trust=roster
    )
    assert (status, said) == (0, "")
    expect_agreement(experiment, tmp_path / "model", ended)


async def test_board_and_peers_of_different_experiments_end_with_a_sentence(flashed, broker, tmp_path):
    ours = read(RING, changes=["name=other"])
    theirs = read(RING, changes=["name=other", "learning.rate=0.3"])
    status, said, ended = await play(ours, broker, [flashed(ours)], tmp_path / "model", board=theirs)
    assert status == 1
    assert "runs another experiment; flash the board with the file of all peers" in said
    sentence = '"bob" runs another experiment (learning.rate = the default there and 0.3 here); use the same file'
    assert sentence in ended["errors"]


async def test_board_without_neighbours_ends_with_a_sentence(flashed, broker, tmp_path):
    experiment = read(RING, changes=["name=alone", "transport.gather=1"])
    process = await start([flashed(experiment)], broker, tmp_path / "model")
    _, said = await process.communicate()
    assert (process.returncode, said.decode()) == (1, "ada did not come in time; start it, or raise transport.gather\n")


async def test_board_ends_with_a_sentence_when_nobody_listens(flashed, tmp_path):
    program = flashed(read(RING))
    process = await start([program], "mqtt://127.0.0.1:1", tmp_path / "model")
    _, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode() == "127.0.0.1:1 cannot be reached; check the address of the broker\n"
