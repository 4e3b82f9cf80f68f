"""A board takes part in a ring with Python peers, over a real broker."""

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from boards import build, section_sizes
from p2pfl.core.errors import RunError
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.peer.launch.brokers import connect
from p2pfl.network.protocol.wire.messages import Announcement
from p2pfl.network.protocol.wire.wire_codec import encode
from p2pfl.network.transport import opened
from p2pfl.network.transport.broker import Program, embedded, mosquitto, run_program
from p2pfl.privacy.keys import ExchangeKey, Identity, Roster, SeededSource
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


async def play(experiment, url, command, file, *, names=None, board=None, through=None, **given):
    """Play a run with a board and Python peers; return the board's exit status and sentences, and their ends."""
    process = await start(command, through or url, file)
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


INTRODUCTION = {"before its key", "unexpected Key"}
"""Why peers refuse messages of a board while they introduce each other."""


def expect_agreement(experiment, file, ended, *, tolerated=INTRODUCTION):
    """Hold that all peers end where the simulation ends, with nothing unsettled, or refused but as tolerated."""
    wanted = simulated(experiment)
    assert float((wanted["ada"] - plan(experiment).learner.start(("ada",))[0]).abs().max()) > 0.01
    rounds, model = kept(file)
    assert rounds == experiment.rounds
    assert float((model - wanted[BOARD]).abs().max()) < TOLERANCE
    for name, (state, peer) in ended.items():
        assert float((state.rows[0] - wanted[name]).abs().max()) < TOLERANCE
        assert not peer.ended.unsettled
        refused = {why.partition(": ")[2] for why in peer.session.shared.refused if why.startswith(BOARD)}
        assert refused <= tolerated


@pytest.mark.parametrize("changes", [[], AVERAGING], ids=["D-PSGD", "FedAvg, three gossip steps"])
async def test_ring_with_a_board_ends_where_the_simulation_ends(flashed, broker, tmp_path, changes):
    experiment = read(RING, changes=changes)
    status, said, ended = await play(experiment, broker, [flashed(experiment)], tmp_path / "model")
    assert (status, said) == (0, "")
    expect_agreement(experiment, tmp_path / "model", ended)


async def test_a_board_takes_part_below_the_one_prefix_that_the_broker_permits(flashed, tmp_path):
    if (found := mosquitto()) is None:
        pytest.skip("mosquitto is not installed")
    prefix = f"{'plant-7.' * 7}hall:2/"  # close to the longest one
    (tmp_path / "acl").write_text(f"topic readwrite {prefix}#\n")

    def configuration(host, port):
        return f"{found.configuration(host, port)}acl_file {tmp_path / 'acl'}\n"

    experiment = read(RING, changes=["name=below", "rounds=2", f"transport.prefix={prefix}"])
    program = flashed(experiment)
    with run_program(Program(found.kind, found.command, configuration), host="127.0.0.1", port=0) as broker:
        status, said, ended = await play(experiment, broker.url, [program], tmp_path / "model")
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


async def test_board_that_starts_again_ends_with_a_sentence_and_the_others_go_on(flashed, broker, tmp_path):
    experiment = read(RING, changes=["name=again", "rounds=12", "transport.patience=3"])
    program = flashed(experiment)
    first = await start([program], broker, tmp_path / "model")
    stopped = asyncio.Event()

    def observe(record, _):
        if record.round == 3 and not stopped.is_set():
            first.kill()
            stopped.set()

    async def again():
        await stopped.wait()
        await first.communicate()
        second = await start([program], broker, tmp_path / "second")
        return (await second.communicate())[1].decode(), second.returncode

    async def one(name):
        transport = connect(experiment, urls=[broker], peer=name)
        async with Peer(name, plan(experiment, only=[name]), transport=transport, observe=observe) as peer:
            await peer.run()
            return peer.done

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        others = [tasks.create_task(one(name)) for name in PEERS if name != BOARD]
        late = tasks.create_task(again())
    said, status = late.result()
    assert status == 1
    assert said.endswith(" has begun without this board, which cannot come late; begin a new run\n")
    assert [each.result() for each in others] == [12, 12, 12]
    assert kept(tmp_path / "model")[0] >= 2  # of which the others need its model to end the round in which it died
    assert not (tmp_path / "second").exists()


async def test_board_goes_on_without_a_neighbour_that_dies(flashed, broker, tmp_path):
    experiment = read(RING, changes=["name=dies", "rounds=12", "transport.patience=3"])
    process = await start([flashed(experiment)], broker, tmp_path / "model")

    async def one(name):
        transport = connect(experiment, urls=[broker], peer=name)
        dies = asyncio.Event()

        def observe(record, _):
            if name == "ada" and record.round == 3:
                dies.set()

        async with Peer(name, plan(experiment, only=[name]), transport=transport, observe=observe) as peer:
            learning = asyncio.create_task(peer.run())
            await asyncio.wait([learning, asyncio.create_task(dies.wait())], return_when=asyncio.FIRST_COMPLETED)
            if not dies.is_set():
                return (await learning, peer.done)[1]
            learning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await learning
            raise RunError("dies")

    async with asyncio.timeout(120):
        died, *others = await asyncio.gather(*(one(name) for name in ("ada", "cleo", "dan")), return_exceptions=True)
        _, said = await process.communicate()
    assert isinstance(died, RunError)
    assert others == [12, 12]
    assert process.returncode == 0
    assert {*said.decode().splitlines()} == {"the model of a neighbour is missing in a gossip step"}
    assert kept(tmp_path / "model")[0] == 12


async def test_board_writes_its_model_once_a_round(flashed, broker, tmp_path):
    """A pipe in place of the file receives one block of all bytes for each round, and nothing else."""
    experiment = read(RING, changes=["name=written"])
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    status, said, ended = await play(experiment, broker, [flashed(experiment)], tmp_path / "pipe")
    assert (status, said) == (0, "")
    blocks, size = os.read(pipe, 2**20), 4 + 4 * 2410
    os.close(pipe)
    assert [int.from_bytes(blocks[at : at + 4], "little") for at in range(0, len(blocks), size)] == [1, 2, 3, 4, 5, 6]
    (tmp_path / "model").write_bytes(blocks[-size:])
    expect_agreement(experiment, tmp_path / "model", ended)


@pytest.mark.nightly
async def test_board_comes_back_after_its_connection_was_cut(flashed, broker, tmp_path):
    """It may lack models that were sent meanwhile, as the others may; all play all rounds."""
    experiment = read(RING, changes=["name=cut", "transport.patience=3"])
    place, cuts = urlsplit(broker), iter((40_000, 60_000))  # bytes to the board after which its connection is cut

    async def pass_on(reader, writer, left=None):
        with contextlib.suppress(ConnectionError):
            while (left is None or left > 0) and (data := await reader.read(2048)):
                left = None if left is None else left - len(data)
                writer.write(data)
        writer.close()

    async def relay(reader, writer):
        back, forth = await asyncio.open_connection(place.hostname, place.port)
        await asyncio.gather(pass_on(reader, forth), pass_on(back, writer, next(cuts, None)))

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        program = flashed(experiment)
        playing = play(experiment, broker, [program], tmp_path / "model", through=f"mqtt://127.0.0.1:{port}")
        status, said, ended = await playing
    assert status == 0
    assert {*said.splitlines()} <= {"the model of a neighbour is missing in a gossip step"}
    assert [peer.done for _, peer in ended.values()] == [6, 6, 6]
    assert next(cuts, None) is None  # both have happened
    assert kept(tmp_path / "model")[0] == 6


async def test_strangers_announcements_do_not_stop_a_board(flashed, broker, tmp_path):
    """Without a roster: one under the board's name, one of a neighbour with a larger number, and one of no message."""
    experiment = read(RING, changes=["name=strangers", "rounds=2"])
    program = flashed(experiment)
    mallory, key = Identity.generate(SeededSource(9), peer="mallory"), ExchangeKey(bytes(32)).public
    ada = Announcement("ada", 2**62, "up", plan(experiment).facts, key, nonce=bytes(16))
    forged = {
        BOARD: encode(Announcement(BOARD, 2**62, "up", {}, bytes(32), bytes(32), bytes(64), nonce=bytes(16))),
        "ada": encode(ada.sign(mallory, swarm="strangers")),
        "cleo": b"\x63 of another version",
    }
    async with opened(broker).join("mallory") as channel:
        for name, payload in forged.items():
            await channel.publish(f"p2pfl/v1/strangers/peer/{name}/state", payload, retain=True)
    status, said, ended = await play(experiment, broker, [program], tmp_path / "model")
    assert (status, said) == (0, "")
    expect_agreement(experiment, tmp_path / "model", ended, tolerated={*INTRODUCTION, "not a message", "not trusted"})


async def test_board_names_a_neighbour_of_another_version(flashed, broker, tmp_path):
    experiment = read(RING, changes=["name=versions", "transport.gather=2"])
    program = flashed(experiment)
    async with opened(broker).join("ada") as channel:
        await channel.publish("p2pfl/v1/versions/peer/ada/state", b"\x63 of another version", retain=True)
    process = await start([program], broker, tmp_path / "model")
    _, said = await process.communicate()
    sentence = "ada has another version of the wire format; install one version\n"
    assert (process.returncode, said.decode()) == (1, sentence)


@pytest.mark.nightly
async def test_board_on_arm_fits_and_ends_where_the_simulation_ends(flash, broker, tmp_path):
    """Under emulation, with libraries for ARM in the folder that MICRO_ARM_ROOT names."""
    root = os.environ.get("MICRO_ARM_ROOT")
    if root is None:
        pytest.skip("MICRO_ARM_ROOT names no folder with libsodium-dev and libbearssl-dev for armhf (dpkg -x)")
    for tool in ("arm-linux-gnueabihf-gcc", "qemu-arm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (gcc-arm-linux-gnueabihf, qemu-user)")
    experiment = read(RING, changes=["name=arm"])
    header = tmp_path / "flash.h"
    header.write_text(flash.flashed(experiment, BOARD))
    libraries = Path(root) / "usr/lib/arm-linux-gnueabihf"
    program = build(
        tmp_path,
        "peer",
        "CC=arm-linux-gnueabihf-gcc",
        "CRYPTO=board",
        f"CFLAGS=-Os -mthumb -I{root}/usr/include",
        f"LDFLAGS=-L{libraries}",
        f"FLASH={header}",
    )
    text, data, zeroed = section_sizes(program, tool="arm-linux-gnueabihf-size")
    flashed = 4 * (2410 + 90 * 64) + 2 * 90  # the first model and the samples
    assert text - flashed < 135_000  # of which 60 kB are of libsodium as Debian builds it, which is not for size
    assert data + zeroed < 56_000
    emulated = ["qemu-arm", "-L", "/usr/arm-linux-gnueabihf", program]
    status, said, ended = await play(experiment, broker, emulated, tmp_path / "model")
    assert (status, said) == (0, "")
    expect_agreement(experiment, tmp_path / "model", ended)
