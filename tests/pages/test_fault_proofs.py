"""The parts of ``python -m benchmarks.faults``: the page, the slope, slow lines, cables that are cut, processes."""

import argparse
import asyncio
import socket
import time

import pytest
import torch

from benchmarks.faults import masked, memory, worker
from benchmarks.faults.nursery import Nursery, apart
from benchmarks.faults.page import MARKS, Shown, written
from benchmarks.faults.relay import Relays
from benchmarks.faults.wires import Wires, possible
from p2pfl.experiment import plan, read
from p2pfl.network.transport.broker import embedded
from p2pfl.network.virtual.virtual_network import Conditions
from p2pfl.simulation import simulate
from waiting import DEADLINE

PAGE = f"before\n{MARKS[0]}\n{MARKS[1]}\nafter\n"


def test_a_line_takes_the_place_of_the_one_of_the_same_command_and_no_other():
    first, second = Shown("kills", "a", "b", "c"), Shown("broker", "d", "e", "f")
    page = written(written(PAGE, first), second)
    assert [line for line in page.splitlines() if line.startswith("| `")] == [str(first), str(second)]
    again = Shown("kills", "g", "h", "i")
    assert written(page, again) == page.replace(str(first), str(again))
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")


def test_a_slope_is_that_of_the_line_and_its_error_covers_noise():
    noise = torch.randn(400, generator=torch.Generator().manual_seed(1)).tolist()
    times = [number / 40 for number in range(400)]
    slope, error = memory.sloped(times, [5.0 + 3.0 * at + each for at, each in zip(times, noise, strict=True)])
    assert abs(slope - 3.0) < 4 * error < 0.2


def test_what_drifts_adds_the_same_wherever_it_is():
    changes = {"model": {"name": "linear"}, "data": {"name": "wine"}, "topology": {"kind": "ring", "peers": 3}}
    learning = {"loss": "benchmarks.faults.worker:drift", "batch": "all", "dtype": "float64", "device": "cpu"}
    resolved = plan(read({**changes, "learning": learning}))
    names, learner = resolved.topology.peers, resolved.learner
    start = learner.start(names)  # [N, P]
    once = learner.fit(start.clone(), peers=names, round=0).rows  # [N, P]
    twice = learner.fit(once.clone(), peers=names, round=1).rows  # [N, P]
    assert (once - start).abs().max() > 0.01
    assert torch.allclose(twice - once, once - start, rtol=0, atol=1e-12)


async def test_a_line_holds_bytes_back_for_latency_and_bandwidth_and_changes_none():
    sent = bytes(range(256)) * 400

    async with asyncio.timeout(DEADLINE):

        async def echo(reader, writer):
            writer.write(await reader.readexactly(len(sent)))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with Relays("127.0.0.1", port, {"ada": Conditions(latency=0.05, up=1e6)}) as relays:
            began = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", int(relays.urls["ada"].rpartition(":")[2]))
            writer.write(sent)
            found = await reader.readexactly(len(sent))
            took = time.perf_counter() - began
            writer.close()
        server.close()
    assert found == sent
    assert took >= 2 * 0.05 + len(sent) / 1e6  # as late as that, or later


@pytest.mark.skipif(not possible(), reason="namespaces take root and iproute2")
def test_what_is_on_the_other_side_of_a_cut_cable_is_not_reached():
    with Wires(near=["hub", "ada"], far=["bob"]) as wires:
        with worker.inside(wires.inside("hub")):
            server = socket.create_server((wires.address["hub"], 0))
        with server:
            address = server.getsockname()

            def reached(host, *, within=0.3):
                with worker.inside(wires.inside(host)), socket.socket() as probe:
                    probe.settimeout(within)
                    return probe.connect_ex(address) == 0

            assert reached("ada", within=10)
            assert reached("bob", within=10)
            wires.cut()
            assert reached("ada", within=10)
            assert not reached("bob")
            wires.heal()
            assert reached("bob", within=10)


@pytest.mark.slow
def test_peers_in_processes_of_their_own_end_as_the_simulation(tmp_path):
    changes = {"topology": {"kind": "ring", "peers": 3}, "data": {"name": "wine"}, "rounds": 3}
    experiment = read({**changes, "learning": {"dtype": "float64", "device": "cpu"}, "privacy": {"mode": "none"}})
    names = plan(experiment).topology.peers
    with embedded() as broker, Nursery(experiment, tmp_path / "run", urls=dict.fromkeys(names, broker.url)) as nursery:
        nursery.end(within=120)
    assert (nursery.missed, nursery.left_out) == (0, 0)
    assert apart(nursery.models(), simulate(experiment, baselines=False).models) < 1e-10


def test_no_more_peers_of_a_swarm_are_killed_than_leave_two():
    masked.check(argparse.Namespace(peers=8, deaths=6))
    with pytest.raises(SystemExit, match="from 1 to 6 with 8 peers, got 7"):
        masked.check(argparse.Namespace(peers=8, deaths=7))


@pytest.mark.slow
def test_two_peers_killed_one_after_the_other_leave_no_mask_in_the_models_of_the_survivors(tmp_path):
    changes = {"topology": {"kind": "complete", "peers": 6}, "data": {"name": "digits"}, "rounds": 30}
    privacy = {"mode": "pairwise", "mask": 10.0, "departures": "go_on", "partners": 1}
    experiment = read({**changes, "learning": {"device": "cpu", "rate": 0.2, "epochs": 5}, "privacy": privacy})
    names = plan(experiment).topology.peers
    with embedded() as broker, Nursery(experiment, tmp_path / "run", urls=dict.fromkeys(names, broker.url)) as nursery:
        deaths = list(masked.killed(nursery, 2, at=3, anytime=False))
    assert all(death.now > death.before - 0.1 for death in deaths)  # masks that stay leave guesses, 0.1
