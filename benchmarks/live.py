"""What a round costs outside of training, against a bare aiomqtt client that moves the same bytes.

    python -m benchmarks.live [--sizes 10000 1000000 50000000] [--rounds 8] [--repeats 3] [--variants | --minimal]

Eight processes on a ring publish one row each and receive two, over one embedded broker. Ours are
real peers whose learner does nothing; bare ones publish and count 256 KiB messages and do no more:
no credit, no digest, no reassembly, no average. Both wait for their neighbours every round. Sealing ones
are bare ones that encrypt and decrypt each message, as ours do, with the same cipher. Processor time is that of a peer
in a round, and hardly depends on other work on the machine. ``--variants`` compares ours with ours at quality of
service 0, and with ours on the event loop of uvloop where that is installed; ``--masks`` with ours under masks;
``--minimal`` with bare clients that seal, of aiomqtt and of :mod:`benchmarks.minimal_mqtt`: their difference is what
another client could save.
"""

import argparse
import asyncio
import importlib.util
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiomqtt
import torch
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks.minimal_mqtt import MinimalClient
from p2pfl.algorithms import Averaging, FedAvg, Gossip
from p2pfl.core.process import one_heap
from p2pfl.core.rows import Layout
from p2pfl.experiment import plan, read
from p2pfl.learning import Fitted, Report
from p2pfl.network.peer import Peer
from p2pfl.network.transport.broker import embedded
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.topology import ring

PEERS = 8
CHUNK = 256 * 1024
NODELAY = [(6, 1, 1)]  # IPPROTO_TCP, TCP_NODELAY
TIMES = "seconds", "processor"

Body = Callable[[str, str, "Load", Connection], None]
"""Work of one process of a run: its name, the URL of the broker, its load, and where it reports its cost."""


@dataclass(frozen=True)
class Load:
    """How many peers on a ring exchange rows of how many numbers, and how often."""

    peers: int
    length: int
    rounds: int


class Idle:
    """A learner that learns nothing, at no cost."""

    dtype = torch.float32

    def __init__(self, length: int) -> None:
        self.layout = Layout(("row",), ((length,),))

    @property
    def bare(self):
        return self

    def drawing(self, source):
        return self

    def start(self, peers):
        return torch.zeros(len(peers), self.layout.size)

    def samples(self, peers):
        return torch.ones(len(peers), dtype=torch.int64)

    def fit(self, rows, *, peers, round, memory=None, active=None, correction=None):
        return Fitted(rows.clone(), {}, Report(torch.zeros(1), torch.ones(1, dtype=torch.int64)))  # as training would

    def evaluate(self, rows, *, peers, part="test"):
        return {"loss": torch.zeros(1)}

    def state_dict(self, row):
        return {"row": row}


@dataclass(frozen=True)
class Cost:
    """Cost of a round of one peer outside of training.

    Attributes
    ----------
    seconds, processor
        Wall time and processor time of the median round.
    memory
        Growth of the peak memory in bytes.
    """

    seconds: float
    processor: float
    memory: int


def ours(
    name: str, url: str, load: Load, pipe: Connection, *, qos: int = 1, loop: Any = None, masks: bool = False
) -> None:
    """Run one of our peers, with threads and memory as in the processes of ``p2pfl run``; report its cost."""
    torch.set_num_threads(1)
    one_heap()
    experiment = read(
        {
            "rounds": load.rounds,
            "topology": {"kind": "ring", "peers": load.peers},
            "data": {"name": "wine"},
            "transport": {"patience": 60.0},
            "privacy": {"mode": "pairwise", "mask": 1.0} if masks else {},
        }
    )
    resolved = plan(experiment, only=[name])
    gossip = FedAvg(Averaging(resolved.topology.peers, 0, Gossip(1), weighted=False))
    resolved = replace(resolved, learner=Idle(load.length), algorithm=gossip)
    ends = []
    before = reset_peak()

    async def body() -> None:
        transport = MqttTransport(url, qos=qos)
        async with Peer(name, resolved, transport=transport, observe=lambda *_: ends.append(instant())) as peer:
            await peer.run()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(body())
    pipe.send(cost(ends, peak() - before))


def masked(name: str, url: str, load: Load, pipe: Connection) -> None:
    """Run one of our peers under masks, whose rounds are settled."""
    ours(name, url, load, pipe, masks=True)


def without_acknowledgements(name: str, url: str, load: Load, pipe: Connection) -> None:
    """Run one of our peers at quality of service 0."""
    ours(name, url, load, pipe, qos=0)


def on_uvloop(name: str, url: str, load: Load, pipe: Connection) -> None:
    """Run one of our peers on the event loop of uvloop."""
    import uvloop  # noqa: PLC0415 (it is optional)

    ours(name, url, load, pipe, loop=uvloop.new_event_loop)


def sealing(name: str, url: str, load: Load, pipe: Connection) -> None:
    """A bare client that encrypts what it sends and decrypts what it gets."""
    cipher = AESGCM(bytes(32))  # one key and nonce over and over: it is the time that counts
    bare(
        name,
        url,
        load,
        pipe,
        seal=lambda data: cipher.encrypt(bytes(12), data, None),
        opened=lambda data: cipher.decrypt(bytes(12), data, None),
    )


def bare(
    name: str,
    url: str,
    load: Load,
    pipe: Connection,
    *,
    seal: Callable[[memoryview], bytes] = bytes,
    opened: Callable[[bytes], bytes] = bytes,
) -> None:
    """A bare aiomqtt client that publishes as many bytes and waits for as many from two neighbours."""
    neighbours = ring(load.peers).neighbours(name)
    total, ends = 4 * load.length, []
    host, port = url.removeprefix("mqtt://").split(":")

    async def body() -> None:
        options = {"max_inflight_messages": 16, "socket_options": NODELAY, "identifier": name}
        async with aiomqtt.Client(host, int(port), **options) as client:
            client.pending_calls_threshold = 10**6
            for neighbour in neighbours:
                await client.subscribe(f"bare/{neighbour}/#", qos=1)
            arrived = dict.fromkeys(neighbours, 0)
            ready: set[str] = set()
            changed = asyncio.Event()

            async def count() -> None:
                async for message in client.messages:
                    _, sender, kind = str(message.topic).split("/")
                    if kind == "ready":
                        ready.add(sender)
                    else:
                        arrived[sender] += len(opened(message.payload))
                    changed.set()

            async def until(condition) -> None:
                while not condition():
                    changed.clear()
                    await changed.wait()

            counting = asyncio.create_task(count())
            payload = memoryview(bytes(total))
            await client.publish(f"bare/{name}/ready", b"!", qos=1, retain=True)
            await until(lambda: len(ready) == len(neighbours))
            for round in range(1, load.rounds + 1):
                gate = asyncio.Semaphore(16)

                async def one(start: int) -> None:
                    async with gate:
                        await client.publish(f"bare/{name}/data", seal(payload[start : start + CHUNK]), qos=1)

                await asyncio.gather(*(one(start) for start in range(0, total, CHUNK)))
                await until(lambda: all(count >= round * total for count in arrived.values()))
                ends.append(instant())
            counting.cancel()
            await asyncio.sleep(1.0)

    before = reset_peak()
    asyncio.run(body())
    pipe.send(cost(ends, peak() - before))


def minimal(name: str, url: str, load: Load, pipe: Connection) -> None:
    """A bare client of :mod:`benchmarks.minimal_mqtt` that encrypts what it sends and decrypts what it gets."""
    neighbours = ring(load.peers).neighbours(name)
    total, ends = 4 * load.length, []
    host, port = url.removeprefix("mqtt://").split(":")
    cipher = AESGCM(bytes(32))

    async def body() -> None:
        arrived = dict.fromkeys(neighbours, 0)
        ready: set[str] = set()
        changed = asyncio.Event()

        def count(topic: str, data: memoryview) -> None:
            _, sender, kind = topic.split("/")
            if kind == "ready":
                ready.add(sender)
            else:
                arrived[sender] += len(cipher.decrypt(bytes(12), data, None))
            changed.set()

        async def until(condition) -> None:
            while not condition():
                changed.clear()
                await changed.wait()

        client = await MinimalClient.open(host, int(port), name, count)
        for neighbour in neighbours:
            await client.subscribe(f"bare/{neighbour}/#")
        payload = memoryview(bytes(total))
        await client.publish(f"bare/{name}/ready", b"!", retain=True)
        await until(lambda: len(ready) == len(neighbours))
        for round in range(1, load.rounds + 1):
            gate = asyncio.Semaphore(16)

            async def one(start: int) -> None:
                async with gate:
                    sealed = cipher.encrypt(bytes(12), payload[start : start + CHUNK], None)
                    await client.publish(f"bare/{name}/data", sealed)

            await asyncio.gather(*(one(start) for start in range(0, total, CHUNK)))
            await until(lambda: all(count >= round * total for count in arrived.values()))
            ends.append(instant())
        await asyncio.sleep(1.0)

    before = reset_peak()
    asyncio.run(body())
    pipe.send(cost(ends, peak() - before))


def reset_peak() -> int:
    """Bytes of memory in use now, from where the kernel counts the peak anew."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return peak()


def peak() -> int:
    """The most bytes of memory that this process has had in use since its peak was reset."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def instant() -> tuple[float, float]:
    """Return wall time and the processor time of this process."""
    return time.perf_counter(), time.process_time()


def cost(ends: list[tuple[float, float]], memory: int) -> Cost:
    """Return the median round; the first waits for peers that are still starting."""
    pairs = [*itertools.pairwise(ends[1:])]
    wall, processor = (statistics.median(after[at] - before[at] for before, after in pairs) for at in (0, 1))
    return Cost(wall, processor, memory)


def measure(body: Body, load: Load) -> Cost:
    """Return medians over all peers, and the largest growth of a process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["p2pfl.network.peer.launch.preload"])
    with embedded() as broker:
        pipes, processes = [], []
        for name in ring(load.peers).peers:
            parent, child = context.Pipe()
            process = context.Process(target=body, args=(name, broker.url, load, child))
            process.start()
            pipes.append(parent)
            processes.append(process)
        costs: list[Cost] = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
    return Cost(
        statistics.median(each.seconds for each in costs),
        statistics.median(each.processor for each in costs),
        max(each.memory for each in costs),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000, 50_000_000])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--variants", action="store_true")
    parser.add_argument("--masks", action="store_true", help="compare ours with ours under masks")
    parser.add_argument("--minimal", action="store_true", help="compare ours with the smallest client")
    options = parser.parse_args()
    others: dict[str, Body] = {"bare clients": bare, "bare clients that seal": sealing}
    if options.variants:
        others = {"ours at QoS 0": without_acknowledgements}
        others |= {"ours on uvloop": on_uvloop} if importlib.util.find_spec("uvloop") else {}
    if options.minimal:
        others = {"bare clients that seal": sealing, "minimal clients that seal": minimal}
    if options.masks:
        others = {"ours under masks": masked}
    print("| model, bytes | ours, ms | processor time, ms | ratio to | wall time | processor time | memory, models |")
    print("| ---: | ---: | ---: | --- | --- | --- | ---: |")
    for size in options.sizes:
        load = Load(PEERS, size // 4, options.rounds)
        runs = [[measure(body, load) for body in (ours, *others.values())] for _ in range(options.repeats)]
        wall, processor = (statistics.median(getattr(run[0], name) for run in runs) for name in TIMES)
        memory = max(run[0].memory for run in runs) / size
        for number, name in enumerate(others, start=1):
            ratios = " | ".join(spread([(run[0], run[number]) for run in runs], time) for time in TIMES)
            times = f"{wall * 1000:.1f} | {processor * 1000:.1f}"
            print(f"| {size:,} | {times} | {name} | {ratios} | {memory:.1f} |", flush=True)


def spread(runs: list[tuple[Cost, Cost]], name: str) -> str:
    """Return our time over another's: the median, the least and the most."""
    ratios = sorted(getattr(ours, name) / getattr(other, name) for ours, other in runs)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
