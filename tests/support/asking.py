"""A server of a model in the loop of a test, and requests to it."""

import asyncio
import contextlib
import json
import urllib.parse

from p2pfl.plugins.serve.answers import Answers
from p2pfl.plugins.serve.http_server import HttpServer


@contextlib.asynccontextmanager
async def answering(newest, *, host="127.0.0.1", notes=None, **options):
    """Serve a model; the context is a function that asks, and returns the status and the content."""
    answers = Answers(newest, notify=(notes if notes is not None else []).append, **options)
    try:
        server = HttpServer(answers, host=host)
        async with server.listening(0) as url:
            port = urllib.parse.urlsplit(url).port

            async def ask(data):
                reader, writer = await asyncio.open_connection(urllib.parse.urlsplit(url).hostname, port)
                try:
                    writer.write(data)
                    if data.endswith(b"..."):  # the client leaves in the middle
                        writer.write_eof()
                    async with asyncio.timeout(60):
                        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
                    return int(head.split()[1]), json.loads(body)
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()

            ask.url, ask.port, ask.answers, ask.server = url, port, answers, server
            yield ask
    finally:
        answers.close()


def post(content, *, path="/predict", kind="application/json", host="localhost:1"):
    """Return the bytes of a request."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
