"""Smallest MQTT 3.1.1 client that can exchange large messages at quality of service 1, to measure what others cost."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

READ = 1024 * 1024
"""Bytes of the buffer in which packets arrive, more than any packet of :mod:`benchmarks.live`."""

CONNACK, PUBLISH, PUBACK, SUBACK = 2, 3, 4, 9


class MinimalClient(asyncio.BufferedProtocol):
    """Client that reads packets where they lie in one buffer, and writes payloads without a copy where it can.

    Parameters
    ----------
    arrived
        Called with the topic and the payload of each message; the payload is valid during the call.
    """

    def __init__(self, arrived: Callable[[str, memoryview], None]) -> None:
        self.arrived = arrived
        self.buffer = memoryview(bytearray(READ))
        self.end = 0
        self.numbers = 0
        self.answers: dict[tuple[int, int], asyncio.Future[None]] = {}

    @classmethod
    async def open(cls, host: str, port: int, name: str, arrived: Callable[[str, memoryview], None]) -> "MinimalClient":
        """Return a connected client."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: cls(arrived), host, port)
        answer = client.answers[CONNACK, 0] = loop.create_future()
        client.write(0x10, b"\0\4MQTT\4\2\0\0" + _string(name))
        await answer
        return client

    async def subscribe(self, pattern: str) -> None:
        """Subscribe at quality of service 1."""
        number, answer = self._ask(SUBACK)
        self.write(0x82, struct.pack("!H", number) + _string(pattern) + b"\1")
        await answer

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish, and wait for the acknowledgement."""
        number, answer = self._ask(PUBACK)
        self.write(0x32 | retain, _string(topic) + struct.pack("!H", number), payload)
        await answer

    def _ask(self, kind: int) -> tuple[int, "asyncio.Future[None]"]:
        self.numbers = self.numbers % 65535 + 1
        answer = self.answers[kind, self.numbers] = asyncio.get_running_loop().create_future()
        return self.numbers, answer

    def write(self, first: int, head: bytes, payload: bytes = b"") -> None:
        """Write a packet."""
        left, length = len(head) + len(payload), bytearray()
        while left >= 128:
            length.append(left % 128 | 128)
            left //= 128
        self.transport.write(bytes([first, *length, left]) + head)
        if payload:
            self.transport.write(payload)

    def connection_made(self, transport: Any) -> None:
        """Keep the transport."""
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read to."""
        del sizehint
        return self.buffer[self.end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the packets that are complete."""
        self.end += nbytes
        start = 0
        while (found := self._packet(start)) is not None:
            start = found
        if start:
            rest = bytes(self.buffer[start : self.end])
            self.buffer[: len(rest)] = rest
            self.end = len(rest)

    def _packet(self, start: int) -> int | None:
        """Handle the packet at a place; return where the next one starts, or nothing if it is not complete."""
        length = shift = 0
        place = start + 1
        while place < self.end:
            byte = self.buffer[place]
            length |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                break
        else:
            return None
        if place + length > self.end:
            return None
        kind, body = self.buffer[start] >> 4, self.buffer[place : place + length]
        if kind == PUBLISH:
            (size,) = struct.unpack("!H", body[:2])
            number, rest = bytes(body[2 + size : 4 + size]), body[4 + size :]
            self.arrived(str(body[2 : 2 + size], "utf-8"), rest)
            self.transport.write(b"\x40\2" + number)
        elif (answer := self.answers.pop((kind, 0 if kind == CONNACK else int.from_bytes(body[:2])), None)) is not None:
            answer.set_result(None)
        return place + length


def _string(text: str) -> bytes:
    return struct.pack("!H", len(text)) + text.encode()
