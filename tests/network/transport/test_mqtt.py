import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import threading

import aiomqtt
import paho.mqtt.client
import psutil
import pytest

from p2pfl.core.errors import AccessError, BrokerError, TransportError
from p2pfl.network.transport import mqtt
from p2pfl.network.transport.address import Address
from p2pfl.network.transport.broker import embedded, mosquitto
from p2pfl.network.transport.channel import LIMIT, Will
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.network.transport.mqtt import MqttTransport
from refusals import refusal
from waiting import DEADLINE, pass_turns


@contextlib.contextmanager
def listening(answer=b""):
    """A server that accepts, sends something and closes; without an answer it stays mute."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    mute.append(connection)
                    if answer:
                        connection.recv(4096)
                        connection.sendall(answer)
                        connection.close()

        mute = []
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in mute:
                connection.close()


def test_a_url_says_where_and_as_whom():
    address = Address.parse("wss://ada%40home:a%2Fb%3Ac@broker.example/mq")
    assert (address.user, address.password) == ("ada@home", "a/b:c")
    assert str(address) == "wss://broker.example:443/mq"
    assert [Address.parse(f"{scheme}://h").port for scheme in ("mqtt", "mqtts", "ws", "wss")] == [1883, 8883, 80, 443]
    assert Address.parse("ws://h:9001").path == "/mqtt"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:1883",
        "http://u:secret@host",
        "mqtt://u:secret@",
        "mqtt://u:secret@host:port",
        "mqtt://u:sec/secret@host",
        "mqtt://u:secret@host:99999",
        "mqtt://u:secret@host/path",
        "mqtt://u:secret@a..b",
        "mqtt://u:secret@[::1",
    ],
)
def test_what_is_no_url_of_a_broker_is_refused_without_showing_the_password(url):
    with pytest.raises(
        BrokerError,
        match="' is not the URL of a broker; use one such as mqtt://host:1883, mqtts://host:8883 or wss://host/mqtt",
    ) as caught:
        MqttTransport(url)
    assert "secret" not in str(caught.value)


async def test_the_password_is_shown_nowhere():
    transport = MqttTransport("mqtt://ada:secret@127.0.0.1:1")
    assert "secret" not in repr(transport) + repr(vars(transport)) + (await refusal(transport))


def test_an_unknown_protocol_version_is_refused():
    with pytest.raises(BrokerError, match=r"3 is not an MQTT version; choose 4 \(that is 3\.1\.1\) or 5"):
        MqttTransport("mqtt://host", version=3)


async def test_nagle_is_off_on_the_real_socket(transport, room):
    if not isinstance(transport, MqttTransport):
        pytest.skip("no socket")

    async with asyncio.timeout(DEADLINE), transport.join(room) as channel:
        fileno = channel._connection._client.socket().fileno()
        with socket.socket(fileno=os.dup(fileno)) as same:
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_the_private_names_in_use_are_still_there():
    hooks = [name for name in vars(mqtt._Client) if name.startswith("_on_")]
    assert len(hooks) == 5
    for name in hooks:
        assert callable(getattr(aiomqtt.Client, name))
    assert callable(paho.mqtt.client.Client._sock_close)

    client = aiomqtt.Client("host")
    assert isinstance(client._connected, asyncio.Future)
    assert isinstance(client._disconnected, asyncio.Future)
    assert isinstance(client._client, paho.mqtt.client.Client)
    assert client._loop is asyncio.get_running_loop()
    assert getattr(client._client, client_hook := "on_publish") == client._on_publish, client_hook


async def test_where_nothing_listens_one_learns_how_to_start_a_broker():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await refusal(MqttTransport(f"mqtt://127.0.0.1:{port}")) == (
        f"cannot connect to an MQTT broker at mqtt://127.0.0.1:{port} because nothing listens there;"
        " start one with `p2pfl broker` or correct host and port"
    )


async def test_a_host_that_is_not_known_is_named(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    assert "the host hopsital.example is not known; check its spelling" in await refusal(
        MqttTransport("mqtt://hopsital.example")
    )


async def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(mqtt, "ANSWER", 0.2)
    with listening() as port:
        assert "nothing answers there; check host, port and firewall" in await refusal(
            MqttTransport(f"mqtt://127.0.0.1:{port}")
        )


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20\x02\x00\x01"])
async def test_a_server_that_is_no_broker_or_of_another_version_is_noticed_at_once(answer, version):
    with listening(answer) as port:
        sentence = await refusal(MqttTransport(f"mqtt://127.0.0.1:{port}", version=version))
    assert re.search("closed the connection without an answer|denies access", sentence)


@pytest.mark.parametrize(
    ("answer", "version", "why"),
    [
        (b"\x20\x02\x00\x04", 4, "Bad user name or password"),
        (b"\x20\x02\x00\x05", 4, "Not authorized"),
        (b"\x20\x03\x00\x86\x00", 5, "Bad user name or password"),
        (b"\x20\x03\x00\x87\x00", 5, "Not authorized"),
    ],
)
async def test_a_broker_that_refuses_our_credentials_is_not_asked_again_whatever_its_version(answer, version, why):
    async def scenario(port):
        transport = MqttTransport(f"mqtt://127.0.0.1:{port}", version=version)
        async with LastingTransport([transport, transport]).join("ada"):
            pass

    with (
        listening(answer) as port,
        pytest.raises(AccessError, match=rf"denies access \({why}\); (set or )?correct P2PFL"),
    ):
        await asyncio.wait_for(scenario(port), DEADLINE)


async def test_to_be_welcomed_and_thrown_out_at_once_is_a_loss():
    async def scenario(port):
        async with MqttTransport(f"mqtt://127.0.0.1:{port}").join("ada") as ada:
            with pytest.raises(TransportError, match="the broker or the network closed it"):
                await anext(ada)

    with listening(b"\x20\x02\x00\x00") as port:
        for _ in range(10):
            await asyncio.wait_for(scenario(port), DEADLINE)


async def test_joining_a_mute_server_can_be_cancelled(monkeypatch):
    monkeypatch.setattr(mqtt, "GOODBYE", 0.1)

    async def scenario(port):
        async with asyncio.timeout(0.1), MqttTransport(f"mqtt://127.0.0.1:{port}").join("ada"):
            pass

    with listening() as port, pytest.raises(TimeoutError):
        await asyncio.wait_for(scenario(port), DEADLINE)


@pytest.fixture
def strict(tmp_path, configured_broker):
    """A broker that knows ada alone, who may write to ada/# and read everything."""
    passwords, rights = tmp_path / "passwords", tmp_path / "rights"
    if subprocess.run(["mosquitto_passwd", "-c", "-b", passwords, "ada", "p@ss"], check=False).returncode:
        pytest.skip("mosquitto_passwd does not run")
    rights.write_text("user ada\ntopic readwrite ada/#\n")
    for file in (tmp_path, *tmp_path.parents, passwords, rights):
        with contextlib.suppress(PermissionError):
            file.chmod(file.stat().st_mode | 0o055)  # mosquitto gives up root
    lines = [f"password_file {passwords}", f"acl_file {rights}"]
    with configured_broker(*lines, replace={"allow_anonymous true": "allow_anonymous false"}) as broker:
        yield broker.url.removeprefix("mqtt://")


@pytest.mark.parametrize("version", [4, 5])
async def test_a_broker_that_does_not_know_us_says_so(strict, version):
    nobody = await refusal(MqttTransport(f"mqtt://{strict}", version=version))
    wrong = await refusal(MqttTransport(f"mqtt://ada:wrong@{strict}", version=version))
    for sentence in (nobody, wrong):
        assert "denies access (Not authorized); set or correct P2PFL_BROKER_USER" in sentence
        assert "wrong" not in sentence


@pytest.mark.parametrize(("version", "said"), [(4, False), (5, True)])
async def test_only_mqtt_5_tells_of_a_refused_publish(strict, version, said):
    async with (
        asyncio.timeout(DEADLINE),
        MqttTransport(f"mqtt://ada:p%40ss@{strict}", version=version).join("ada") as ada,
    ):
        await ada.publish("ada/state", b"mine")
        if said:
            with pytest.raises(
                TransportError,
                match=(
                    r"mqtt://127\.0\.0\.1:\d+ refused 4 bytes on bob/state \(Not authorized\); check what "
                    "this peer may publish there"
                ),
            ):
                await ada.publish("bob/state", b"his!")
        else:
            await ada.publish("bob/state", b"his!")


async def test_mqtt_5_tells_the_limits_of_the_broker(configured_broker):
    async def scenario(url):
        async with MqttTransport(url, version=5).join("ada") as ada:
            assert ada.limit == 100_000 - 512
            assert ada._turns._value == 7
            await ada.subscribe("a/b")
            await asyncio.gather(*[ada.publish("a/b", bytes(ada.limit)) for _ in range(20)])
            assert len((await anext(ada)).data) == ada.limit

    small = {f"max_packet_size {2**21}": "max_packet_size 100000", "messages 100\n": "messages 7\n"}
    with configured_broker(replace=small) as broker:
        await asyncio.wait_for(scenario(broker.url), DEADLINE)


async def test_without_mqtt_5_an_oversized_packet_is_a_lost_connection_with_a_hint(configured_broker):
    async def scenario(url):
        async with MqttTransport(url).join("ada") as ada:
            assert ada.limit == LIMIT
            with pytest.raises(
                TransportError,
                match=(
                    r"the connection to mqtt://127\.0\.0\.1:\d+ is lost \(the broker or the network closed it\); "
                    "check the broker, and whether it accepts packets of 200000 bytes"
                ),
            ):
                await ada.publish("a/b", bytes(200_000))

    with configured_broker(replace={f"max_packet_size {2**21}": "max_packet_size 100000"}) as broker:
        await asyncio.wait_for(scenario(broker.url), DEADLINE)


@pytest.mark.parametrize("version", [4, 5])
async def test_when_the_broker_dies_everything_that_waits_fails_at_once(version, monkeypatch):
    monkeypatch.setattr(mqtt, "ANSWER", 2 * DEADLINE)  # not because of that

    async def scenario(broker):
        async with MqttTransport(broker.url, version=version).join("ada") as ada:
            os.kill(broker.pid, signal.SIGSTOP)  # it answers no more
            calls = [asyncio.ensure_future(call) for call in (ada.publish("a", b"x"), ada.subscribe("a"), anext(ada))]
            await pass_turns()
            os.kill(broker.pid, signal.SIGKILL)
            for call in calls:
                with pytest.raises(TransportError, match=f"connection to {broker.url} is lost"):
                    await call

    if mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    with embedded(kind="mosquitto") as broker:
        await asyncio.wait_for(scenario(broker), DEADLINE)


async def test_a_publish_that_nobody_acknowledges_fails_in_time(configured_broker, monkeypatch):
    async def scenario(broker):
        async with MqttTransport(broker.url).join("ada") as ada:
            os.kill(broker.pid, signal.SIGSTOP)
            monkeypatch.setattr(mqtt, "ANSWER", 0.1)
            try:
                with pytest.raises(
                    TransportError,
                    match=(
                        r"mqtt://127\.0\.0\.1:\d+ did not acknowledge 3 bytes on a/b within 0 s; check the link and "
                        "the load of the broker"
                    ),
                ):
                    await ada.publish("a/b", b"abc")
            finally:
                monkeypatch.setattr(mqtt, "ANSWER", DEADLINE)
                os.kill(broker.pid, signal.SIGCONT)
            await ada.publish("a/b", b"abc")

    with configured_broker() as broker:
        await asyncio.wait_for(scenario(broker), DEADLINE)


async def test_leaving_under_heavy_traffic_is_still_no_loss(mosquitto_url):
    async with asyncio.timeout(DEADLINE):
        transport = MqttTransport(mosquitto_url)
        async with transport.join("ada") as ada, transport.join("cyd") as cyd:
            await cyd.subscribe("leaving/state")
            for turn in range(5):
                async with transport.join("bob", will=Will("leaving/state", b"dead")) as bob:
                    await bob.subscribe("leaving/news")
                    flood = [asyncio.ensure_future(ada.publish("leaving/news", bytes(200_000))) for _ in range(16)]
                    await anext(bob)
                await asyncio.gather(*flood)
                await ada.publish("leaving/state", b"%d" % turn)
                assert (await anext(cyd)).data == b"%d" % turn


@pytest.fixture
def logged(monkeypatch):
    """Return what anything logs, with all details of p2pfl but the transport's own."""
    records = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(logging.getLogger("p2pfl"), "level", logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("p2pfl.network.transport.mqtt"), "level", logging.CRITICAL)
    logging.getLogger().addHandler(handler)
    yield records
    logging.getLogger().removeHandler(handler)


@pytest.mark.slow
async def test_nothing_is_left_behind_and_nothing_is_logged(transport, logged, capfd):
    threads = {*threading.enumerate()}
    sockets = {connection.fd for connection in psutil.Process().net_connections()}

    async with asyncio.timeout(DEADLINE), transport.join("ada") as ada, transport.join("bob") as bob:
        await bob.subscribe("a")
        await asyncio.gather(*[ada.publish("a", b"x") for _ in range(100)])
        ada.abort()
    await asyncio.get_running_loop().shutdown_default_executor()  # its threads looked up the host's name
    assert {*threading.enumerate()} <= threads  # one of an earlier test may have ended
    assert {connection.fd for connection in psutil.Process().net_connections()} <= sockets
    assert logged == []
    assert capfd.readouterr() == ("", "")


async def test_a_publish_may_take_the_time_of_those_before_it():
    """On a slow link the last of several large publishes waits until all are through."""
    asked = []

    class Connection:
        where, cap, window = Address.parse("mqtt://h"), 2**28, 16

        async def send(self, *_, patience, **__):
            asked.append(patience)
            await release.wait()
            return ""

    release = asyncio.Event()
    channel = mqtt.MqttChannel(Connection(), LIMIT, None)
    several = [asyncio.ensure_future(channel.publish("a/b", bytes(mqtt.MIN_BANDWIDTH))) for _ in range(3)]
    await pass_turns(3)
    release.set()
    await asyncio.gather(*several)
    await channel.publish("a/b", b"!")
    assert asked == [mqtt.ANSWER + seconds for seconds in (1, 2, 3, 1 / mqtt.MIN_BANDWIDTH)]
