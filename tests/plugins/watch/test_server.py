"""The server answers those who know the token, on this machine, and nobody else."""

import asyncio
import contextlib
import json
import re
import socket
import ssl

import httpx
import pytest

from growing import PEERS, at, began, ended, waits
from p2pfl.core.errors import InputError
from p2pfl.plugins.watch.access import HEADERS, POLICY
from p2pfl.plugins.watch.app import Server
from p2pfl.plugins.watch.feed import Feed
from p2pfl.plugins.watch.live_swarm import LiveFeed
from p2pfl.plugins.watch.web_server import serve, token_of
from p2pfl.results.notices.kinds import WaitEnded
from p2pfl.results.swarm.state import Setting

DEADLINE = 300.0
TOKEN = "0123456789abcdef"  # noqa: S105 (it protects nothing)
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # else each client reads the certificates of all authorities
PATHS = ["/", "/api/about", "/api/frame", "/api/curves", "/api/stream", "/metrics", "/static/main.js", "/nowhere"]


@contextlib.asynccontextmanager
async def served(growing, *, token=TOKEN, replay=None):
    """The address of a server, which ends with the context."""
    address = asyncio.get_running_loop().create_future()
    with Feed(growing.folder, now=growing.now) as feed:
        task = asyncio.create_task(serve(feed, port=0, token=token, replay=replay, ready=address.set_result))
        try:
            yield await asyncio.wait_for(address, DEADLINE)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.asynccontextmanager
async def asking(growing, **given):
    """A client that knows the token."""
    async with served(growing, **given) as address:
        base = address.partition("/?")[0]
        async with httpx.AsyncClient(
            base_url=base,
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=DEADLINE,
            trust_env=False,
            verify=NO_TLS,
        ) as client:
            yield client


@pytest.fixture
def scene(growing):
    """A run in which peer2 has blocked peer1 for a while."""
    growing.log(*(began(peer) for peer in PEERS))
    growing.learn(4)
    growing.log(waits("peer1", "peer2", seconds=9.0, round=4))
    growing.seconds = 30.0
    return growing


@pytest.mark.slow
async def test_without_the_token_there_is_nothing(scene):
    async with asking(scene) as client:
        client.headers.pop("authorization")
        for path in PATHS:
            for given in ({}, {"authorization": "Bearer wrong"}, {"cookie": "p2pfl_watch=wrong"}):
                answer = await client.get(path, headers=given)
                assert answer.status_code == 403, path
                assert "plant" not in answer.text
        assert (await client.get("/?token=wrong")).status_code == 403
        assert (await client.get(f"/api/frame?token={TOKEN}")).status_code == 403


@pytest.mark.slow
async def test_the_token_of_the_address_becomes_a_cookie(scene):
    async with (
        served(scene, token=None) as address,
        httpx.AsyncClient(timeout=DEADLINE, trust_env=False, verify=NO_TLS) as client,
    ):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{22}", address)
        first = await client.get(address)
        assert (first.status_code, first.headers["location"]) == (303, "/")
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert address.partition("=")[2] not in cookie
        assert "<title>p2pfl watch</title>" in (await client.get(address.partition("/?")[0] + "/")).text


@pytest.mark.sampled(fast=1)
@pytest.mark.parametrize("host", ["attacker.example", "127.0.0.1", "127.0.0.1:1", "localhost.attacker.example", ""])
async def test_a_page_of_another_host_is_refused_even_with_the_token(scene, host):
    async with asking(scene) as client:
        answer = await client.get("/api/frame", headers={"host": host})
        assert answer.status_code == 400
        assert (await client.get(f"/?token={TOKEN}", headers={"host": host})).status_code == 400


async def test_names_of_this_machine_are_served(scene):
    async with asking(scene) as client:
        for name in ("127.0.0.1", "localhost", "[::1]", "LOCALHOST"):
            answer = await client.get("/api/frame", headers={"host": f"{name}:{client.base_url.port}"})
            assert answer.status_code == 200


@pytest.mark.slow
async def test_the_page_can_only_be_read(scene):
    async with asking(scene) as client:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await client.request(method, "/api/frame")).status_code == 405
        assert (await client.head("/")).status_code == 200


@pytest.mark.slow
async def test_every_answer_has_the_policy(scene):
    async with asking(scene) as client:
        answers = [await client.get(path) for path in PATHS if path != "/api/stream"]
        answers += [await client.post("/"), await client.get("/", headers={"host": "x"})]
        for answer in answers:
            assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
            assert "server" not in answer.headers
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")


async def test_files_outside_of_the_page_are_not_served(scene):
    async with asking(scene) as client:
        for path in (
            "/static/../app.py",
            "/static/%2e%2e/app.py",
            "/static/..%2fapp.py",
            "/static//etc/passwd",
            "/static/",
        ):
            assert (await client.get(path)).status_code in {400, 404, 405}


async def test_it_listens_on_this_machine_alone(scene):
    async with served(scene) as address:
        port = int(re.search(r":(\d+)/", address)[1])
        others = {found[4][0] for found in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)}
        for host in others - {"127.0.0.1"}:
            with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
                socket.create_connection((host, port), timeout=5.0)


async def test_the_state_now_and_at_a_time(scene):
    async with asking(scene, replay=1.0) as client:
        now = (await client.get("/api/frame")).json()
        assert now["headline"]["peers"] == ["peer2"]
        assert now["at"] == 30.0
        before = (await client.get("/api/frame?at=4.5")).json()
        assert before["rounds"] == [2, 2, 2]
        assert before["headline"]["tone"] == "good"
        assert (await client.get("/api/frame?at=nonsense")).json()["at"] == 30.0
        about = (await client.get("/api/about")).json()
        assert about["peers"] == list(PEERS)
        assert (about["span"], about["speed"], about["timed"], about["observed"]) == (9.0, 1.0, True, False)
        assert len(about["edges"]) == len(about["places"]) == 4


async def test_curves_of_a_score_until_a_time(scene):
    async with asking(scene) as client:
        found = (await client.get("/api/curves?score=accuracy")).json()
        assert found["rounds"] == [1, 2, 3, 4]
        assert found["median"] == pytest.approx([0.53, 0.57, 0.61, 0.65])
        assert [*found["peers"]] == list(PEERS)
        part = (await client.get("/api/curves?at=4.5&peer=peer1")).json()
        assert part["rounds"] == [1, 2]
        assert [*part["peers"]] == ["peer1"]
        assert (await client.get("/api/curves?score=unknown")).json()["rounds"] == []


async def events(response):
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


@pytest.mark.slow
async def test_a_stream_begins_with_the_whole_state_and_goes_on_with_changes(scene):
    async with asyncio.timeout(DEADLINE), asking(scene) as client, client.stream("GET", "/api/stream") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        found = events(response)
        first = await anext(found)
        assert first["whole"]
        assert first["peers"].keys() == {*PEERS}
        scene.log(WaitEnded(peer="peer1", time=at(29.0)))
        scene.record(ended("peer1", 4, seconds=29.0))
        scene.seconds = 31.0
        second = await anext(found)
        assert not second["whole"]
        assert second["peers"].keys() == {"peer1"}
        assert second["headline"]["tone"] == "good"
        scene.record(ended("peer0", 4, seconds=30.5))
        scene.seconds = 32.0
        assert (await anext(found))["peers"].keys() == {"peer0"}


@pytest.mark.slow
def test_a_moment_that_a_page_has_seen_is_not_made_again(growing):
    growing.log(began("peer0"))
    with Feed(growing.folder, now=growing.now) as feed:
        server = Server(feed)
        growing.seconds = 1.5
        moment, first = server._work(lambda: server._newer(None))
        assert first["peers"]["peer0"]["activity"] == "learning"
        assert server._newer(moment) == (moment, None)
        growing.seconds = 2.0
        _, later = server._newer(moment)
        assert later["at"] == 2.0


async def test_a_stream_that_comes_back_loses_and_repeats_nothing(scene):
    async with asyncio.timeout(DEADLINE), asking(scene) as client:
        for round in (4, 5, 6):
            scene.record(ended("peer0", round, seconds=29.0))
            async with client.stream("GET", "/api/stream") as response:
                async for state in events(response):
                    assert state.get("count", 0) <= 18 + round
                    if state.get("count") == 18 + round:
                        assert state["rounds"] == [4, 4, round + 1]
                        break


async def test_there_is_a_largest_number_of_open_pages(scene, monkeypatch):
    monkeypatch.setattr("p2pfl.plugins.watch.web_server.MAX_CONNECTIONS", 8)
    async with asyncio.timeout(DEADLINE), asking(scene) as client, contextlib.AsyncExitStack() as stack:
        answers = [await stack.enter_async_context(client.stream("GET", "/api/stream")) for _ in range(9)]
        assert {answer.status_code for answer in answers[:7]} == {200}
        assert answers[-1].status_code == 503


async def test_a_port_in_use_is_an_error(growing):
    with socket.socket() as taken, Feed(growing.folder) as feed:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match=r"port \d+ cannot be used \(Address already in use\); choose another"):
            await serve(feed, port=taken.getsockname()[1], token=TOKEN, replay=None, ready=print)


def test_a_token_of_ones_own(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert token_of(path) == TOKEN
    for text in ("short", "has a space in the middle of it", ""):
        path.write_text(text)
        with pytest.raises(InputError, match="holds no token of at least 16 letters"):
            token_of(path)
    with pytest.raises(InputError, match="cannot be read"):
        token_of(tmp_path / "none")


@pytest.mark.slow
async def test_a_sink_takes_events_although_nobody_looks(scene):
    seen = asyncio.Queue()
    loop = asyncio.get_running_loop()
    with Feed(
        scene.folder, now=scene.now, sink=lambda entry: loop.call_soon_threadsafe(seen.put_nowait, entry)
    ) as feed:
        task = asyncio.create_task(serve(feed, port=0, token=TOKEN, replay=None, ready=lambda address: None))  # noqa: ARG005
        async with asyncio.timeout(DEADLINE):
            for _ in range(21):
                await seen.get()
            scene.record(ended("peer0", 4, seconds=29.0))
            assert await seen.get() == ended("peer0", 4, seconds=29.0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_what_a_live_swarm_sends_is_taken_although_nobody_looks(monkeypatch):
    monkeypatch.setattr("p2pfl.plugins.watch.app.REST_SECONDS", 0.001)
    taken, loop = asyncio.Event(), asyncio.get_running_loop()
    feed = LiveFeed(Setting(peers=PEERS), {})
    apply = feed.swarm.apply
    feed.swarm.apply = lambda at, entry: (apply(at, entry), loop.call_soon_threadsafe(taken.set))
    server = Server(feed)
    task = asyncio.create_task(server.attend())
    async with asyncio.timeout(DEADLINE):
        feed.put(0.0, began("peer0"))
        await taken.wait()
        server.end()
        await task
        await server.close()
    assert feed.swarm.count == 1


async def test_a_server_ends_at_once_while_it_rests(scene, monkeypatch):
    monkeypatch.setattr("p2pfl.plugins.watch.app.REST_SECONDS", 2 * DEADLINE)
    async with asyncio.timeout(DEADLINE), asking(scene) as client:
        assert (await client.get("/api/frame")).status_code == 200


async def test_files_that_cannot_be_read_are_one_sentence(scene):
    scene.raw("metrics.jsonl", b'{"schema":2,"peer":"ada"}\n')
    async with asyncio.timeout(DEADLINE), asking(scene) as client:
        answer = await client.get("/api/frame")
        assert answer.status_code == 503
        assert "the schema is version 2" in answer.text
        async with client.stream("GET", "/api/stream") as response:
            lines = [line async for line in response.aiter_lines()]
        assert lines[0] == "event: failure"
        assert "the schema is version 2" in lines[1]
