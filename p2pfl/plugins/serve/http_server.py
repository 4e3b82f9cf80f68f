"""A small HTTP server: two addresses, JSON alone, and a bound for everything that a client may send or wait for.

The standard library's servers have no deadline for a whole request, and a device installs no web framework.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.plugins.serve.answers import MAX_BODY_BYTES, Answers
from p2pfl.plugins.serve.served_model import RequestError

MAX_HEAD_BYTES = 16 << 10
"""Largest request line with its headers."""

MAX_CONNECTIONS = 32
"""Largest number of connections at once."""

RECEIVE_SECONDS = 10.0
"""Seconds in which a whole request must have arrived."""

SEND_SECONDS = 10.0
"""Seconds in which a client must have taken its answer."""

LINGER_SECONDS = 1.0
"""Seconds in which a client may still send what is not read."""

ONCE = ("host", "content-length", "content-type", "transfer-encoding", "expect")
"""Headers that a request may have once; what two of them mean differs between programs."""


@dataclass(frozen=True)
class Head:
    """Request line and headers.

    Attributes
    ----------
    method, path
        Of the request line, the path without its query.
    headers
        By their names in lower case.
    """

    method: str
    path: str
    headers: dict[str, str]


def parse_head(data: bytes) -> Head:
    r"""Return the request line and the headers of a request.

    Raises
    ------
    RequestError
        They are not those of HTTP/1.

    Examples
    --------
    >>> parse_head(b"GET /?a=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    Head(method='GET', path='/', headers={'host': 'localhost'})
    """
    line, *lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise RequestError("this is no request of HTTP/1; use a client for HTTP")
    headers = dict[str, str]()
    for each in lines:
        name, colon, value = each.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or (name in headers and name in ONCE):
            raise RequestError("a header of the request is malformed or repeated; use a client for HTTP")
        headers[name] = value.strip()
    return Head(parts[0], parts[1].partition("?")[0], headers)


def body_bytes(head: Head) -> int:
    """Return the bytes of the body that a request announces.

    Raises
    ------
    RequestError
        It announces none, too many, or a body of another kind.
    """
    if "transfer-encoding" in head.headers or "content-length" not in head.headers:
        raise RequestError("the request does not state the length of its body; send Content-Length", 411)
    length = head.headers["content-length"]
    if not (length.isascii() and length.isdecimal() and len(length) < 20):
        raise RequestError("Content-Length is not a number; correct it")
    if int(length) > MAX_BODY_BYTES:
        raise RequestError(f"the request has more than {MAX_BODY_BYTES:,} bytes; send several requests", 413)
    if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError("the request is not declared as JSON; send Content-Type: application/json", 415)
    return int(length)


def address(host: str, port: int) -> str:
    """Return the URL of a server, for clients.

    Examples
    --------
    >>> address("127.0.0.1", 8800), address("::1", 8800)
    ('http://127.0.0.1:8800/', 'http://[::1]:8800/')
    """
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def is_local(host: str) -> bool:
    """Return whether only programs of this machine reach an address.

    Examples
    --------
    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0"), is_local("192.168.1.5")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class HttpServer:
    """Server of one model.

    Parameters
    ----------
    answers
        What answers requests.
    host
        Address to listen on, one of IPv6 with or without brackets. If it is one of this machine alone, requests must
        name such an address too, so that no page of another site reaches the server through a browser.
    """

    def __init__(self, answers: Answers, *, host: str) -> None:
        self._answers, self._host, self._local = answers, host.removeprefix("[").removesuffix("]"), is_local(host)
        self._open = set[asyncio.Task[None]]()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[str]:
        """Listen on a port, or on any free one if it is 0; the context is the URL.

        Raises
        ------
        InputError
            The address or the port cannot be used.
        """
        if not self._host:
            raise InputError("the address to listen on is empty; give --host 127.0.0.1, or 0.0.0.0 for all addresses")
        try:
            server = await asyncio.start_server(self._converse, self._host, port, limit=MAX_HEAD_BYTES)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"{self._host}:{port} cannot be used ({reason}); choose others with --host and --port"
            ) from None
        try:
            yield address(self._host, server.sockets[0].getsockname()[1])
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the one request of a connection."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (the server runs this in a task)
        self._open.add(task)
        try:
            status, content = await self._reply(reader, writer)
            with contextlib.suppress(OSError, TimeoutError):  # the client has gone, or does not read
                writer.transport.set_write_buffer_limits(0)  # so that the deadline is that of the whole answer
                async with asyncio.timeout(SEND_SECONDS):
                    writer.write(_response(status, content))
                    await writer.drain()
                async with asyncio.timeout(LINGER_SECONDS):
                    writer.write_eof()
                    while await reader.read(MAX_HEAD_BYTES):
                        pass  # what is left unread would reset the connection, and the answer with it
        except asyncio.CancelledError:
            return  # the server ends
        finally:
            self._open.discard(task)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # closing would wait for a client that does not read
            else:
                writer.close()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, dict[str, Any]]:
        if len(self._open) > MAX_CONNECTIONS:
            return 503, {"error": f"{MAX_CONNECTIONS} connections are open already; ask again later"}
        try:
            async with asyncio.timeout(RECEIVE_SECONDS):
                body = await self._receive(reader, writer)
        except TimeoutError:
            return 408, {"error": f"the request did not arrive within {RECEIVE_SECONDS:g} s; send it at once"}
        except (asyncio.IncompleteReadError, OSError):
            return 400, {"error": "the request ended early; send all of it"}
        except RequestError as error:
            return error.code, {"error": str(error)}
        try:
            return 200, self._answers.describe() if body is None else await self._answers.predict(body)
        except RequestError as error:
            return error.code, {"error": str(error)}

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Return the body of a request; ``None`` if it asks for the description."""
        try:
            head = parse_head(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            raise RequestError(f"the headers have more than {MAX_HEAD_BYTES:,} bytes; send fewer", 431) from None
        self._admit(head)
        if head.path == "/":
            _expect_method(head, "GET")
            return None
        if head.path != "/predict":
            raise RequestError(
                "there is nothing at this address; GET / describes the model, POST /predict asks it", 404
            )
        _expect_method(head, "POST")
        length = body_bytes(head)
        if head.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await reader.readexactly(length)

    def _admit(self, head: Head) -> None:
        """Refuse a page of another site whose name leads here."""
        named = head.headers.get("host", "")
        name = named if named.endswith("]") else named.rpartition(":")[0] or named
        if self._local and not is_local(name):
            raise RequestError("this host is not served here; use the address that p2pfl printed")


def _expect_method(head: Head, method: str) -> None:
    if head.method != method:
        raise RequestError(f"{head.path} takes {method} alone; use it", 405)


def _response(status: int, content: dict[str, Any]) -> bytes:
    """Return the bytes of a response."""
    body = json.dumps(content, allow_nan=False).encode() + b"\n"
    head = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body
