"""A fleet that learns over mosquitto while its operator replaces the authority and the broker's certificate."""

import asyncio
import contextlib
import shutil
from pathlib import Path

import pytest

from certificates import reachable
from commands import DEADLINE
from fleets import bundles
from p2pfl.network.transport.broker import Program, mosquitto, run_program
from waiting import wait_until
from wine_files import wine_file

PEERS, AWAKE, ASLEEP = ("peer0", "peer1", "peer2", "peer3"), ("peer0", "peer1", "peer2"), "peer3"
PLANT = wine_file("plant", rounds=1_000_000, peers=4, more="[transport]\ngather = 240\ncheckpoint = 5\n")


class Fleet:
    """The operator's folder, the broker, and devices that have what was installed on them."""

    def __init__(self, p2pfl, fork):
        self.p2pfl, self.fork = p2pfl, fork
        self.port, self.peers, self.broker = 0, {}, contextlib.ExitStack()

    def deploy(self, *arguments):
        said = self.p2pfl("deploy", "plant.toml", "--out", "fleet", *arguments)
        assert said.status == 0, said.err
        return said

    def restart_broker(self):
        """Start mosquitto, or start it again, with the files as they are now."""
        program = mosquitto() or pytest.skip("mosquitto is not installed")
        self.broker.close()

        def configured(_host, port):
            if not self.port:
                bundles(Path.cwd(), port=port)
            self.port = port
            reachable(Path("fleet/broker").resolve())
            return "user root\n" + Path("fleet/broker/mosquitto.conf").read_text()

        running = Program(program.kind, program.command, configured)
        self.broker.enter_context(run_program(running, host="127.0.0.1", port=self.port))

    def request(self, name):
        shutil.copytree(Path("fleet") / name, name)
        assert self.p2pfl("identity", name, "--keys", f"{name}/keys", "--request", f"{name}/request.toml").status == 0
        return f"{name}/request.toml"

    def install(self, *names):
        """Do what install.sh does: replace each file at once, while the peer runs."""
        for name in names:
            for file in ("roster.toml", "certificate.pem", "broker.pem"):
                shutil.copy(Path("fleet") / name / file, f"{name}/part")
                Path(name, "part").replace(Path(name, file))

    def start(self, *names):
        for name in names:
            place = ("--name", name, "--runs", f"{name}/runs")
            self.peers[name] = self.fork("peer", f"{name}/plant.toml", *place, "--resume", "--json", "--no-baselines")

    def stop(self, *names):
        for name in names:
            self.peers[name].process.terminate()
            assert self.peers[name].status() in {143, -15}

    def rounds(self, name):
        """Return how many records of rounds a device has written."""
        return sum(len(path.read_bytes().splitlines()) for path in Path(name).glob("runs/*/metrics.jsonl"))

    def learn(self, *names):
        """Wait until each of these peers has played three rounds more."""
        before = {name: self.rounds(name) for name in names}

        def learned():
            for name in names:
                assert self.peers[name].process.is_running(), self.peers[name].end().err
            return all(self.rounds(name) >= before[name] + 3 for name in names)

        asyncio.run(wait_until(learned, f"{names} learn", within=DEADLINE, every=0.2))


@pytest.mark.nightly
@pytest.mark.usefixtures("place")
def test_peers_learn_while_the_authority_of_their_fleet_is_replaced_and_one_that_slept_comes_back(p2pfl, fork):
    Path("plant.toml").write_text(PLANT)
    Path("p2pfl_mqtt-0.3.0-py3-none-any.whl").write_bytes(b"a wheel")
    fleet = Fleet(p2pfl, fork)
    with fleet.broker:
        fleet.restart_broker()
        fleet.deploy("--yes", "--collect", *(fleet.request(name) for name in PEERS))
        fleet.install(*PEERS)
        fleet.start(*PEERS)
        fleet.learn(*PEERS)
        fleet.stop(ASLEEP)

        fleet.deploy("--renew", "authority")
        fleet.restart_broker()  # which shows a certificate of the other authority, to devices that trust the former
        fleet.learn(*AWAKE)
        fleet.start(ASLEEP)  # as it fell asleep
        fleet.learn(*PEERS)
        fleet.stop(ASLEEP)
        fleet.install(*AWAKE)
        fleet.restart_broker()
        fleet.learn(*AWAKE)

        fleet.deploy("--revoke", "authority", "--yes")
        fleet.restart_broker()  # which knows the former authority no longer
        fleet.learn(*AWAKE)
        fleet.install(*AWAKE)
        fleet.deploy("--renew", "broker")
        fleet.restart_broker()
        fleet.learn(*AWAKE)

        fleet.start(ASLEEP)
        refused = fleet.peers[ASLEEP].end()
        assert refused.status == 2
        assert "its certificate is not trusted" in refused.err
        fleet.install(ASLEEP)
        fleet.start(ASLEEP)
        fleet.learn(*PEERS)
        fleet.stop(*PEERS)
    for name in AWAKE:
        said = "".join(fleet.peers[name].lines)
        assert not [line for line in said.splitlines() if "gone" in line and ASLEEP not in line], said
