"""The server over a real socket: what it answers, and what it refuses."""

import asyncio
import socket
import threading

import pytest

from asking import answering, post
from p2pfl.core.errors import InputError
from p2pfl.plugins.serve import answers, http_server
from p2pfl.plugins.serve.answers import Answers
from p2pfl.plugins.serve.http_server import HttpServer
from waiting import wait_until

ROWS = [{"age": 63, "sex": "f", "weight": 70_000, "ward": "east"}]
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def newest(following, model_file):
    model = following(model_file)
    await model.look()
    return model


async def test_the_description_and_predictions_are_json(newest):
    async with answering(newest) as ask:
        assert await ask(GET) == (200, newest.take().describe())
        status, answer = await ask(post(ROWS))
        assert (status, answer) == (200, newest.take().answer(b'[{"age":63,"sex":"f","weight":7e4,"ward":"east"}]'))


@pytest.mark.parametrize(
    ("data", "status", "sentence"),
    [
        (post(b"{"), 400, "is not JSON"),
        (post(ROWS, kind="text/plain"), 415, "Content-Type: application/json"),
        (post(ROWS, path="/../etc/passwd"), 404, "there is nothing at this address"),
        (post(ROWS, path="/"), 405, "/ takes GET alone"),
        (b"GET /predict HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "/predict takes POST alone"),
        (post(ROWS, host="plant.example"), 400, "this host is not served here"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "this host is not served here"),
        (b"hello\r\n\r\n", 400, "no request of HTTP/1"),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400, "malformed or repeated"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "malformed or repeated"),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 411, "Content-Length"),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400, "is not a number"),
        (b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4194305\r\n\r\n", 413, "4,194,304 bytes"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431, "16,384 bytes"),
        (b"GET / HTT...", 400, "ended early"),
        (
            post(ROWS)[:-9] + b"...",
            400,
            "ended early",
        ),
    ],
)
async def test_a_bad_request_gets_one_sentence_and_the_next_an_answer(newest, data, status, sentence):
    async with answering(newest) as ask:
        code, answer = await ask(data)
        assert (code, [*answer]) == (status, ["error"])
        assert sentence in answer["error"]
        assert "\n" not in answer["error"]
        assert (await ask(GET))[0] == 200


async def test_a_request_that_never_ends_is_given_up(newest, monkeypatch):
    monkeypatch.setattr(http_server, "RECEIVE_SECONDS", 0.05)
    async with answering(newest) as ask:
        assert await ask(b"GET / HTTP/1.1\r\nX: ") == (
            408,
            {"error": "the request did not arrive within 0.05 s; send it at once"},
        )


async def test_connections_have_a_bound(newest, monkeypatch):
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 1)
    async with answering(newest) as ask:
        _, silent = await asyncio.open_connection("127.0.0.1", ask.port)
        silent.write(b"GET")
        await silent.drain()
        status, answer = await ask(GET)
        assert (status, answer["error"]) == (503, "1 connections are open already; ask again later")
        silent.close()
        await silent.wait_closed()


class Slow:
    """A model whose answers wait for a signal."""

    def __init__(self):
        self.go = threading.Event()

    def answer(self, body):
        assert self.go.wait(60)
        if body == b"bad":
            raise ZeroDivisionError("secret")
        return {"body": body.decode()}


async def test_a_slow_model_has_a_deadline_and_a_bounded_queue(newest, notes, monkeypatch):
    newest.current = slow = Slow()
    monkeypatch.setattr(answers, "MAX_WAITING", 2)
    async with answering(newest, notes=notes, seconds=0.05) as ask:
        assert (
            await asyncio.gather(ask(post(b"1")), ask(post(b"2")))
            == [(503, {"error": "the model did not answer within 0.05 s; send fewer rows"})] * 2
        )
        slow.go.set()
    slow.go.clear()
    async with answering(newest, notes=notes) as ask:
        waiting = [asyncio.create_task(ask(post(b"1"))) for _ in range(2)]
        await wait_until(lambda: ask.answers.waiting == 2, "two requests wait")
        status, answer = await ask(post(b"3"))
        assert status == 503
        assert answer == {"error": "2 requests wait already; ask again later"}
        slow.go.set()
        assert [status for status, _ in await asyncio.gather(*waiting)] == [200, 200]
        status, answer = await ask(post(b"bad"))
    assert (status, answer["error"]) == (500, "the model failed on these rows; see what p2pfl serve printed")
    assert notes == ["a request failed with ZeroDivisionError: secret; the next ones are answered"]


async def test_a_port_that_is_taken_is_named(newest):
    async with answering(newest) as ask:
        server = HttpServer(Answers(newest, notify=print), host="127.0.0.1")
        with pytest.raises(InputError, match=rf"127.0.0.1:{ask.port} cannot be used .*; choose others with --host"):
            async with server.listening(ask.port):
                pass


async def test_on_all_addresses_any_name_of_the_device_is_served(newest):
    async with answering(newest, host="0.0.0.0") as ask:  # noqa: S104 (the user may ask for it)
        assert (await ask(post(ROWS, host="plant.example")))[0] == 200


class Wordy:
    """A model whose answer is larger than what the machine keeps of a connection."""

    def answer(self, _):
        return {"answer": "x" * (32 << 20)}


async def test_a_client_that_does_not_read_is_dropped_with_its_answer(newest, monkeypatch):
    monkeypatch.setattr(http_server, "SEND_SECONDS", 0.2)
    newest.current = Wordy()
    loop = asyncio.get_running_loop()
    async with answering(newest) as ask:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", ask.port))
            await loop.sock_sendall(client, post(b"1"))
            await wait_until(lambda: ask.server.connections == 1, "the client is connected")
            await wait_until(lambda: ask.server.connections == 0, "the server has given the client up")
            taken = 0
            while data := await loop.sock_recv(client, 1 << 20):
                taken += len(data)
            assert taken < 32 << 20


async def test_a_client_that_reads_slowly_gets_its_whole_answer(newest):
    newest.current = Wordy()
    async with answering(newest) as ask:
        status, answer = await ask(post(b"1"))
        assert (status, len(answer["answer"])) == (200, 32 << 20)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_an_address_of_ipv6_is_served_and_printed_with_brackets(newest, host):
    async with answering(newest, host=host) as ask:
        assert ask.url == f"http://[::1]:{ask.port}/"
        assert (await ask(f"GET / HTTP/1.1\r\nHost: [::1]:{ask.port}\r\n\r\n".encode()))[0] == 200
        assert (await ask(post(ROWS, host="plant.example")))[0] == 400


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example"])
async def test_a_host_that_is_none_is_named(newest, host):
    with pytest.raises(InputError, match=r"cannot be used .*; choose others with --host"):
        async with HttpServer(Answers(newest, notify=print), host=host).listening(0):
            pass
