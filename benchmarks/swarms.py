"""Live peers that share processes, over a real broker: what starts, rounds, peers and the broker cost.

    python -m benchmarks.swarms [--peers 64 256 512 1000] [--workers 2] [--rounds 5] [--set KEY=VALUE ...] [--profile]
    python -m benchmarks.swarms --peers 64 --workers 3 --broker nats-cluster

Peers of degree 4 train a linear model of 650 parameters on digits, one gossip step a round, each with its own keys,
session and connection to mosquitto, and write checkpoints, as ``p2pfl run --workers`` runs them. Figures of rounds are
from where half of the peers have ended the first to where half have ended the last. Processor time hardly depends on
other work on the machine; a round takes at least that of peers, broker and launcher over the number of cores, which is
the last column but one. ``--broker`` takes a kind of :mod:`benchmarks.brokers`, whose messages are counted for one
mosquitto alone; the first process of peers begins with its first node, the second with its second. ``--profile`` lists
the functions in which the first process of peers spends its time.
"""

import argparse
import cProfile
import json
import pstats
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
from paho.mqtt.client import CallbackAPIVersion, Client

from benchmarks.brokers import KINDS, running
from p2pfl.core.process import processors
from p2pfl.experiment import read
from p2pfl.network.peer.launch import swarm, worker
from p2pfl.network.transport.broker import mosquitto, run_program
from p2pfl.results import Record

TABLE = {
    "name": "swarms",
    "seed": 7,
    "topology": {"kind": "circulant", "degree": 4},
    "data": {"name": "digits", "split": "iid"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu"},
    "gossip": {"steps": 1},
}
COUNTED = "$SYS/broker/publish/messages/received", "$SYS/broker/publish/messages/sent"
SHOWN = 30
"""Functions that a profile lists."""


class Traffic:
    """Messages that a broker has received and sent, as it states them every second."""

    def __init__(self, url: str) -> None:
        self.messages = dict.fromkeys(COUNTED, 0)
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.on_message = self._count
        self._client.connect("127.0.0.1", int(url.rsplit(":", 1)[1]))
        self._client.subscribe([(topic, 0) for topic in COUNTED])
        self._client.loop_start()

    def _count(self, _client: Client, _data: object, message: object) -> None:
        self.messages[message.topic] = int(message.payload)

    def close(self) -> None:
        """Leave the broker."""
        self._client.disconnect()
        self._client.loop_stop()


@dataclass(frozen=True)
class Load:
    """Seconds, bytes and messages that have been used until a moment."""

    time: float
    peers: float
    broker: float
    launcher: float
    memory: int
    messages: int


class Meter:
    """Reads the load of a run when half of the peers have ended its first and its last round."""

    def __init__(self, peers: int, rounds: int, *, brokers: list[int], traffic: Traffic | None) -> None:
        self.peers, self.rounds, self.traffic = peers, rounds, traffic
        self.brokers = [*map(psutil.Process, brokers)]
        self.ended = 0
        self.began = time.perf_counter()
        self.loads: list[Load] = []

    def observe(self, event: object) -> None:
        """Take what a peer reports; peers are in different rounds, so the middle of their reports counts."""
        half = self.peers // 2
        if isinstance(event, Record):
            self.ended += 1
            if self.ended in (half, self.rounds * self.peers - half):
                self.loads.append(self._load())

    def _load(self) -> Load:
        processes = psutil.Process().children(recursive=True)
        nodes = {each for node in self.brokers for each in (node, *node.parents(), *node.children(recursive=True))}
        own = [each for each in processes if each not in nodes]
        return Load(
            time.perf_counter() - self.began,
            sum(sum(each.cpu_times()[:2]) for each in own),
            sum(sum(each.cpu_times()[:2]) for each in self.brokers),
            sum(psutil.Process().cpu_times()[:2]),
            sum(each.memory_full_info().pss for each in own),
            0 if self.traffic is None else sum(self.traffic.messages.values()),
        )


def profiled(names, errand, pipe) -> None:
    """Run the peers of a process, the first under a profiler."""
    if names[0].strip("per0") != "":
        return worker.main(names, errand, pipe)
    profile = cProfile.Profile()
    try:
        return profile.runcall(worker.main, names, errand, pipe)
    finally:
        profile.dump_stats(errand.folder / "profile")


def divided(names, errand, pipe) -> None:
    """Run the peers of a process, which begin with a broker of their own among those of the run."""
    first = int(names[0].lstrip("per") or 0) % len(errand.urls)
    worker.main(names, replace(errand, urls=(*errand.urls[first:], *errand.urls[:first])), pipe)


@contextmanager
def nodes(kind: str) -> Iterator[tuple[list[str], list[int], list[str]]]:
    """Run a broker; yield the addresses and process numbers of its nodes, and the settings that it needs."""
    if kind == "mosquitto":
        if (program := mosquitto()) is None:
            raise SystemExit("this needs mosquitto; run `apt install mosquitto`")
        usual = program.configuration
        program = replace(program, configuration=lambda *at: usual(*at).replace("sys_interval 0", "sys_interval 1"))
        with run_program(program, host="127.0.0.1", port=0) as broker:
            yield [broker.url], [broker.pid], []
        return
    _, _, number, made, changes = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        processes = made(Path(folder), nodes=number)
        with running(processes):
            urls = [f"mqtt://127.0.0.1:{each.port}" for each in processes[-number:]]
            yield urls, [each.process.pid for each in processes if each.process], [*changes]


def run(peers: int, *, workers: int, rounds: int, changes: list[str], profile: bool, kind: str) -> str:
    """Return the line of one number of peers."""
    swarm.main = profiled if profile else divided
    with nodes(kind) as (urls, numbers, needed), tempfile.TemporaryDirectory() as folder:
        address = urls[0] if len(urls) == 1 else json.dumps(urls)
        wanted = [f"topology.peers={peers}", f"rounds={rounds}", f"transport.broker={address}", *needed, *changes]
        traffic = Traffic(urls[0]) if kind == "mosquitto" else None
        meter = Meter(peers, rounds, brokers=numbers, traffic=traffic)
        live = partial(swarm.run, read(TABLE, changes=wanted), baselines=False, workers=workers)
        result = live(folder=Path(folder) / "run", observe=meter.observe)
        if traffic is not None:
            traffic.close()
        if profile:
            pstats.Stats(str(Path(folder) / "run" / "profile")).sort_stats("tottime").print_stats(SHOWN)
    first, last = meter.loads
    each = 1000 / (peers * (rounds - 1))  # ms of a peer and round
    spent = {
        "peers": (last.peers - first.peers) * each,
        "broker": (last.broker - first.broker) * each,
        "launcher": (last.launcher - first.launcher) * each,
    }
    least = sum(spent.values()) * peers / 1000 / processors()
    cells = [
        f"{peers}",
        f"{result.summary['start_s']:.0f} s",
        f"{first.peers * 1000 / peers:.0f} ms",
        f"{(rounds - 1) / (last.time - first.time):.3g}",
        f"{last.memory / peers / 1e6:.1f} MB",
        f"{(last.messages - first.messages) / peers / (rounds - 1):.1f}" if kind == "mosquitto" else "-",
        *(f"{took:.1f} ms" for took in spent.values()),
        f"{least:.2f} s",
        f"{result.summary['missed']}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, nargs="+", default=[64, 256, 512, 1000])
    parser.add_argument("--workers", type=int, default=processors())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--broker", choices=KINDS, default="mosquitto")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    columns = ["peers", "start", "start of a peer, processor", "rounds per second", "memory of a peer"]
    columns += ["messages at the broker, of a peer and round", "peers", "broker", "launcher"]
    columns += ["least time of a round", "models missed"]
    print(f"| {' | '.join(columns)} |\n|{' ---: |' * len(columns)}", flush=True)
    for peers in options.peers:
        print(
            run(
                peers,
                workers=options.workers,
                rounds=options.rounds,
                changes=options.changes,
                profile=options.profile,
                kind=options.broker,
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
