"""Time of a message from one peer to another, beside a plain MQTT client that sends the same bytes.

    python -m benchmarks.messages [--megabytes 64] [--repeat 5]

Two peers, or two plain clients, run in one process each and exchange messages over mosquitto on this machine. The
message of peers is a total to one peer with a single sender: sealed, in pieces of 64 KiB, at most a window of them
under way, and confirmed by its recipient. The plain client publishes pieces of the same size at QoS 1, with as many
under way, and the recipient answers once all of them have arrived. Both are measured in turns.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from typing import ClassVar

import numpy as np
from paho.mqtt.client import CallbackAPIVersion, Client

from p2pfl.algorithms import State
from p2pfl.core.neighbourhood import Recipient, Released
from p2pfl.core.traits import Traits
from p2pfl.experiment import plan, read
from p2pfl.network.peer import Peer
from p2pfl.network.protocol.totals.convergecast import PIECE, WINDOW
from p2pfl.network.transport.broker import embedded
from p2pfl.network.transport.mqtt import MqttTransport

SMALL_MESSAGES = 200
TABLE = {
    "rounds": 1,
    "topology": {"kind": "complete", "peers": 2},
    "data": {"name": "wine"},
    "model": {"name": "linear"},
    "learning": {"device": "cpu"},
    "transport": {"gather": 60.0, "patience": 60.0},
}
SENDER, RECIPIENT = "peer0", "peer1"


@dataclass(frozen=True)
class Sending:
    """Algorithm in which one peer sends the other small messages and a large one, and times them."""

    traits: ClassVar[Traits] = Traits()
    size: int
    times: Queue

    async def round(self, state, learner, net, round):
        """Send, and put the seconds of a small message and of the large one into the queue."""
        del learner, round
        (me,) = net.peers
        values = np.arange(self.size)

        async def send(size: int) -> float:
            begun = time.perf_counter()
            to = Recipient(RECIPIENT, lambda _: None, among=(SENDER,))
            await net.total(lambda _: values[:size], size=size, to=to)
            return time.perf_counter() - begun

        small = [await send(1) for _ in range(SMALL_MESSAGES)]
        large = await send(self.size)
        if me == SENDER:
            self.times.put((statistics.median(small), large))
        return State(state.rows.clone(), Released(state.rows).public)


def play(name: str, url: str, size: int, times: Queue) -> None:
    """Run one of the two peers."""
    resolved = replace(plan(read(TABLE)), algorithm=Sending(size, times))

    async def one() -> None:
        async with Peer(name, resolved, transport=MqttTransport(url)) as peer:
            await peer.run()

    asyncio.run(one())


def client(url: str) -> Client:
    """Return a connected plain client."""
    made = Client(CallbackAPIVersion.VERSION2)
    made.max_inflight_messages_set(WINDOW)
    made.connect("127.0.0.1", int(url.rsplit(":", 1)[1]))
    return made


def publish(name: str, url: str, size: int, times: Queue) -> None:
    """Run one of two plain clients."""
    done, ready = threading.Event(), threading.Event()
    count, left = -(-8 * size // PIECE), [-(-8 * size // PIECE)]
    made, mine, theirs = client(url), f"to/{name}", f"to/{RECIPIENT if name == SENDER else SENDER}"

    def receive(_client, _data, message) -> None:
        if name == SENDER:
            (ready if message.payload == b"ready" else done).set()
            return
        left[0] -= 1
        if not left[0]:
            made.publish(theirs, b"done", qos=1)
            done.set()

    made.on_message = receive
    made.subscribe(mine, qos=1)
    made.loop_start()
    if name == SENDER:
        ready.wait()
        piece, begun = bytes(PIECE), time.perf_counter()
        for _ in range(count):
            made.publish(theirs, piece, qos=1)
        done.wait()
        times.put((0.0, time.perf_counter() - begun))
    else:
        while not done.wait(0.5):  # whoever sends may subscribe later
            made.publish(theirs, b"ready", qos=1)
        time.sleep(0.5)
    made.loop_stop()


def measure(work: Callable[[str, str, int, Queue], None], url: str, size: int) -> tuple[float, float]:
    """Return the seconds of a small message and of a large one between two processes."""
    context = multiprocessing.get_context("spawn")
    times: Queue = context.Queue()
    both = [context.Process(target=work, args=(name, url, size, times)) for name in (SENDER, RECIPIENT)]
    for each in both:
        each.start()
    small, large = times.get()
    for each in both:
        each.join()
    return small, large


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    size = given.megabytes * 10**6 // 8
    with embedded(kind="mosquitto") as broker:
        rows = [(*measure(play, broker.url, size), measure(publish, broker.url, size)[1]) for _ in range(given.repeat)]
    small, peers, plain = (statistics.median(column) for column in zip(*rows, strict=True))
    print("| one number, ms | peers, MB/s | plain client, MB/s | ratio |")
    print("| ---: | ---: | ---: | ---: |")
    speeds = f"{given.megabytes / peers:.0f} | {given.megabytes / plain:.0f}"
    print(f"| {1e3 * small:.1f} | {speeds} | {plain / peers:.2f} |")


if __name__ == "__main__":
    main()
