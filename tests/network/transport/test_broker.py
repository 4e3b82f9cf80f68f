import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from p2pfl.core.errors import BrokerError
from p2pfl.network.transport import broker as room_of_brokers
from p2pfl.network.transport.broker import Program, embedded, iotcore, mosquitto, run_program
from p2pfl.network.transport.mqtt import MqttTransport
from waiting import DEADLINE

INSTALLED = {"mosquitto": mosquitto(), "iotcore": iotcore()}

PARENT = """
import sys
from p2pfl.network.transport.broker import embedded
with embedded(kind=sys.argv[1]) as broker:
    print(broker.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=list(INSTALLED))
def kind(request):
    if INSTALLED[request.param] is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


def ends(pid):
    """Wait until a process has ended, whoever its parent is."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE)[0])
    finally:
        os.close(descriptor)


def port_of(broker):
    return int(broker.url.rpartition(":")[2])


def never(_host, _port):
    return [sys.executable, "-c", "import signal; signal.pause()"]


@pytest.mark.slow
def test_a_broker_runs_for_as_long_as_its_context_and_says_what_it_is(kind):
    with embedded(kind=kind) as broker:
        assert broker.kind.startswith(f"{kind} ")
        assert broker.kind[-1].isdigit()
        assert psutil.pid_exists(broker.pid)
        socket.create_connection(("127.0.0.1", port_of(broker))).close()
    assert not psutil.pid_exists(broker.pid)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(broker)))


@pytest.mark.slow
def test_a_broker_listens_on_loopback_alone_and_out_of_reach_of_ctrl_c(kind):
    with embedded(kind=kind) as broker:
        listening = [c for c in psutil.Process(broker.pid).net_connections() if c.status == psutil.CONN_LISTEN]
        assert [tuple(connection.laddr) for connection in listening] == [("127.0.0.1", port_of(broker))]
        assert os.getpgid(broker.pid) != os.getpgid(0)


@pytest.mark.sampled(fast=1)
def test_a_broker_dies_with_its_parent_even_if_that_is_killed(kind):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.send_signal(signal.SIGKILL)
    assert ends(pid)


@pytest.mark.slow
def test_a_broker_leaves_no_file(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)  # it is looked for again
    with embedded(kind=kind):
        assert not [*tmp_path.iterdir()]
    assert not [*tmp_path.iterdir()]


@pytest.mark.sampled(fast=1)
def test_a_port_can_be_chosen_and_one_that_is_taken_is_an_error(kind):
    with embedded(kind=kind) as first:
        port = port_of(first)
        with (
            pytest.raises(BrokerError, match=rf"127.0.0.1:{port} is not available \(Address already in use\)"),
            embedded(kind=kind, port=port),
        ):
            pass
    with embedded(kind=kind, port=port) as second:
        assert port_of(second) == port


@pytest.mark.slow
def test_a_free_port_that_somebody_else_takes_first_is_given_up_for_another(kind, monkeypatch):
    vacant = room_of_brokers._vacant
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answers = [taken.getsockname()[1]] * 2
        monkeypatch.setattr(room_of_brokers, "_vacant", lambda *where: answers.pop() if answers else vacant(*where))
        with embedded(kind=kind) as broker:
            assert port_of(broker) != taken.getsockname()[1]
            assert not answers


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which process listens on a port")
def test_a_broker_that_somebody_else_started_on_the_port_is_not_taken_for_ours(kind, monkeypatch):
    vacant = room_of_brokers._vacant
    with embedded(kind=kind) as other:
        answers = [port_of(other)]
        monkeypatch.setattr(room_of_brokers, "_vacant", lambda *where: answers.pop() if answers else vacant(*where))
        with embedded(kind=kind) as broker:
            assert port_of(broker) != port_of(other)


@pytest.mark.slow
def test_several_brokers_run_side_by_side(kind):
    with embedded(kind=kind) as one, embedded(kind=kind) as other:
        assert one.url != other.url


@pytest.mark.slow
def test_auto_prefers_mosquitto_and_falls_back_on_iotcore(monkeypatch):
    if None in INSTALLED.values():
        pytest.skip("both brokers are needed")
    with embedded() as broker:
        assert broker.kind.startswith("mosquitto ")
    monkeypatch.setattr(room_of_brokers, "mosquitto", lambda: None)
    with embedded() as broker:
        assert broker.kind.startswith("iotcore ")


def test_without_any_broker_one_learns_how_to_install_one(monkeypatch):
    monkeypatch.setattr(room_of_brokers, "mosquitto", lambda: None)
    monkeypatch.setattr(room_of_brokers, "iotcore", lambda: None)
    sentence = (
        r"mosquitto and iotcore are not installed; run `apt install mosquitto` \(or `brew install "
        r"mosquitto`\) or `pip install iotcore`, or give the URL of a running broker"
    )
    with pytest.raises(BrokerError, match=sentence), embedded():
        pass
    with (
        pytest.raises(
            BrokerError,
            match=(
                r"iotcore is not installed; run `apt install mosquitto` \(or `brew install mosquitto`\) or `pip "
                r"install "
                "iotcore`, or give the URL of a running broker"
            ),
        ),
        embedded(kind="iotcore"),
    ):
        pass


def test_an_unknown_kind_is_refused():
    with pytest.raises(BrokerError, match="the broker 'rabbit' is unknown; choose auto, mosquitto or iotcore"):
        embedded(kind="rabbit").__enter__()


def test_mosquitto_is_found_where_packages_put_it(monkeypatch):
    if not Path("/usr/sbin/mosquitto").exists():
        pytest.skip("mosquitto is somewhere else")
    monkeypatch.setenv("PATH", "/nowhere")
    with embedded(kind="mosquitto"):
        pass


@pytest.mark.parametrize(("host", "port"), [("203.0.113.1", 0), ("no such host", 0)])
def test_an_address_that_cannot_be_had_is_named(host, port):
    with pytest.raises(BrokerError, match=f"{host}:{port} is not available"):
        embedded(host=host, port=port).__enter__()


def test_a_port_is_a_port():
    with pytest.raises(BrokerError, match="65536 is not a port from 0 to 65535; choose another, or 0 for any free one"):
        embedded(port=65536).__enter__()


@pytest.mark.slow
def test_a_broker_may_listen_everywhere_and_on_ipv6(kind):
    with embedded(kind=kind, host="0.0.0.0") as broker:  # noqa: S104 - that is the test
        assert broker.url.startswith("mqtt://127.0.0.1:")
    if socket.has_ipv6 and Path("/proc/net/if_inet6").exists():
        with embedded(kind=kind, host="::1") as broker:
            assert broker.url.startswith("mqtt://[::1]:")


def test_a_broker_that_fails_is_quoted():
    broken = Program("broken 1.0", lambda _host, _port: [sys.executable, "-c", "raise SystemExit('no\\nbad luck')"])
    with (
        pytest.raises(
            BrokerError,
            match=(
                r"broken 1\.0 does not listen on 127\.0\.0\.1:\d+, as it ended with status 1 \(bad luck\); fix that "
                "or name another broker"
            ),
        ),
        run_program(broken, host="127.0.0.1", port=0),
    ):
        pass


def test_a_broker_that_never_listens_is_stopped(monkeypatch):
    monkeypatch.setattr(room_of_brokers, "_READY", 0.2)
    before = {*psutil.Process().children()}
    with (
        pytest.raises(
            BrokerError,
            match=(
                r"mute does not listen on 127\.0\.0\.1:\d+, as it did not start within 0 s \(it logged nothing\); fix "
                "that or name another broker"
            ),
        ),
        run_program(Program("mute", never), host="127.0.0.1", port=0),
    ):
        pass
    assert {*psutil.Process().children()} <= before  # one of an earlier test may have ended


@pytest.mark.slow
def test_whoever_waits_for_a_broker_learns_of_its_end(kind):
    with embedded(kind=kind) as broker:
        killing = threading.Thread(target=os.kill, args=(broker.pid, signal.SIGKILL))
        killing.start()
        with pytest.raises(BrokerError, match=f"^{kind} .* stopped, as it ended with status -9"):
            broker.wait()
        killing.join()


@pytest.mark.slow
async def test_a_listener_that_is_busy_loses_nothing(kind):
    count = 3000  # mosquitto's own setting keeps a thousand

    async def publish(url):
        async with MqttTransport(url).join("ada") as ada:
            await asyncio.gather(*[ada.publish("news", b"%d" % i) for i in range(count)])

    async def scenario(url):
        async with asyncio.timeout(DEADLINE), MqttTransport(url).join("bob") as bob:
            await bob.subscribe("news")
            publishing = threading.Thread(target=asyncio.run, args=(publish(url),))
            publishing.start()
            publishing.join()  # in the event loop, on purpose
            assert [int(bytes((await anext(bob)).data)) for _ in range(count)] == list(range(count))

    with embedded(kind=kind) as broker:
        await scenario(broker.url)
