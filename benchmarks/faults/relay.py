"""Lines to a broker that take their time: a TCP relay for each peer, on loopback."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

import numpy as np

from p2pfl.core.draws import draw
from p2pfl.network.virtual.virtual_network import Conditions

CHUNK = 16 * 1024
"""Bytes that are held back together."""


class Relays:
    """One port for each peer, from which bytes reach the broker late, and no more than so many a second.

    Each direction is a line of its own, as in ``p2pfl.network.virtual.virtual_network``: bytes take their number
    over the bandwidth, one after the other, and then latency and an exponential jitter; none overtakes another.

    Parameters
    ----------
    host, port
        Of the broker.
    conditions
        By peer.
    """

    def __init__(self, host: str, port: int, conditions: Mapping[str, Conditions]) -> None:
        self.host = host
        self.port = port
        self.conditions = conditions
        self.urls: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._lines: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        """Let nothing pass any more."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        for name, conditions in self.conditions.items():

            async def connected(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                name: str = name,
                conditions: Conditions = conditions,
            ) -> None:
                await self._joined(reader, writer, name, conditions)

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            self._servers.append(server)
            self.urls[name] = f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)
        await asyncio.sleep(0)  # transports are closed in the next turn

    async def _joined(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str, conditions: Conditions
    ) -> None:
        there, back = await asyncio.open_connection(self.host, self.port)
        for source, sink, bandwidth, way in (
            (reader, back, conditions.up, "up"),
            (there, writer, conditions.down, "down"),
        ):
            line = _carry(source, sink, conditions, bandwidth, draw(0, "relay", name, way))
            task = asyncio.create_task(line)
            self._lines.add(task)
            task.add_done_callback(self._lines.discard)


async def _carry(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    conditions: Conditions,
    bandwidth: float,
    dice: np.random.Generator,
) -> None:
    """Carry bytes from a source to a sink until it ends."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read() -> None:
        free = last = 0.0
        with suppress(ConnectionError):
            while data := await source.read(CHUNK):
                free = max(loop.time(), free) + len(data) / bandwidth
                late = conditions.jitter * dice.exponential()
                last = max(last, free + conditions.latency + late)
                queue.put_nowait((last, data))
        queue.put_nowait((last, b""))  # the end takes the same way

    reading = asyncio.create_task(read())
    try:
        with suppress(ConnectionError):
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    break
                sink.write(data)
                await sink.drain()
    finally:
        reading.cancel()
        sink.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await reading
