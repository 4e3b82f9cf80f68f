"""Brokers that refuse subscriptions: for now, or for good; over real MQTT bytes."""

import asyncio
import contextlib
import json
import shutil
import socketserver
import subprocess
import threading
from pathlib import Path

import pytest

from p2pfl.core.errors import BrokerError, BusyError, RefusedError, TransportError
from p2pfl.network.transport import mqtt
from p2pfl.network.transport.backoff import Backoff
from p2pfl.network.transport.lasting import LastingTransport
from p2pfl.network.transport.mqtt import MqttTransport
from p2pfl.network.transport.quality import SubscriptionQuality
from waiting import DEADLINE

SOON = Backoff(first=0.001, largest=0.004, outage=60.0)
SHORT = Backoff(first=0.001, largest=0.004, outage=0.05)


class Refusing(socketserver.ThreadingTCPServer):
    """A broker that grants subscriptions after so many refusals with one code, and acknowledges nothing else."""

    daemon_threads = True

    def __init__(self, version, code, refusals, quality):
        super().__init__(("127.0.0.1", 0), Session)
        self.version, self.code, self.refusals, self.quality = version, code, refusals, quality
        self.asked = 0
        self.wanted = []  # quality of service of each subscription
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"mqtt://127.0.0.1:{self.server_address[1]}"

    def answer(self, wanted):
        """The code of the next subscription, which wants a quality of service; none for silence."""
        with self.lock:
            self.asked += 1
            self.wanted.append(wanted)
            return self.code if self.asked <= self.refusals and wanted >= self.quality else wanted


class Session(socketserver.StreamRequestHandler):
    """One connection: CONNECT, then SUBSCRIBE of one filter each, then DISCONNECT."""

    def handle(self):
        none = b"\x00" if self.server.version == 5 else b""  # MQTT 5 has properties
        with contextlib.suppress(ConnectionError):
            while header := self.rfile.read(1):
                [size] = self.rfile.read(1)  # packets of these tests are short
                body = self.rfile.read(size)
                if header == b"\x10":
                    self.wfile.write(bytes([0x20, 2 + len(none), 0, 0]) + none)
                elif header == b"\x82":
                    if (code := self.server.answer(body[-1] & 3)) is not None:
                        self.wfile.write(bytes([0x90, 3 + len(none)]) + body[:2] + none + bytes([code]))
                elif header == b"\xe0":
                    return


@contextlib.contextmanager
def refusing(version, code, refusals=10**9, quality=0):
    """A broker that refuses subscriptions at this quality of service and above, with a code or by silence."""
    with Refusing(version, code, refusals, quality) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


async def subscribed(url, version, backoff, said):
    async with LastingTransport([MqttTransport(url, version=version)], backoff=backoff, notice=said.append).join(
        "ada"
    ) as ada:
        await ada.subscribe("a/b")
        return ada.outages


@pytest.mark.parametrize(("version", "code"), [(4, 0x80), (5, 0x80), (5, 0x83), (5, 0x97)])
async def test_a_subscription_that_is_refused_for_now_is_asked_for_again_until_it_is_granted(version, code):
    said = []
    with refusing(version, code, refusals=4) as broker:
        assert await asyncio.wait_for(subscribed(broker.url, version, SOON, said), DEADLINE) == 0
        assert broker.wanted == [1, 0, 1, 0, 1]  # at each attempt, whether 0 is granted
    [wait] = said
    assert str(wait.error).startswith(f"{broker.url} refuses the subscription a/b (")
    assert wait.seconds == 60


@pytest.mark.parametrize(("version", "code"), [(4, 0x80), (5, 0x97)])
async def test_after_the_deadline_both_possible_causes_of_a_refused_subscription_are_named(version, code):
    with refusing(version, code) as broker, pytest.raises(TransportError) as caught:
        await asyncio.wait_for(subscribed(broker.url, version, SHORT, []), DEADLINE)
    assert broker.asked > 2
    assert caught.value.status == 1
    assert (
        "its access list forbids it, or it is busy; check its access list and its log; this peer gave up after 0.05 s"
        in str(caught.value)
    )


@pytest.mark.parametrize("code", [0x87, 0x8F, 0x9E, 0xA1, 0xA2])
async def test_what_mqtt_5_refuses_for_good_is_not_asked_for_again(code):
    said = []
    with refusing(5, code) as broker, pytest.raises(RefusedError, match=r"refuses the subscription a/b \(\w+"):
        await asyncio.wait_for(subscribed(broker.url, 5, SOON, said), DEADLINE)
    assert (broker.asked, said) == (1, [])


async def test_without_an_outage_a_refused_subscription_is_asked_for_once():
    with (
        refusing(4, 0x80) as broker,
        pytest.raises(
            BusyError,
            match=(
                r"refuses the subscription a/b \(Unspecified error\): its access list "
                "forbids it, or it is busy; check its access list and its log"
            ),
        ),
    ):
        await asyncio.wait_for(subscribed(broker.url, 4, Backoff(outage=0.0), []), DEADLINE)
    assert broker.asked == 2  # at quality of service 1 and 0


async def lowered(broker, said):
    transport = LastingTransport([MqttTransport(broker.url, lowered=said.append)], backoff=SOON)
    async with transport.join("ada") as ada:
        await ada.subscribe("a/b")
        await ada.subscribe("a/c")
    async with transport.join("bob") as bob:
        await bob.subscribe("a/b")
    return said


async def test_a_cluster_that_refuses_quality_of_service_1_is_used_at_0_from_then_on_and_people_learn_why():
    with refusing(4, 0x80, quality=1) as broker:
        [reason] = await asyncio.wait_for(lowered(broker, []), DEADLINE)
        assert broker.wanted == [1, 0, 0, 0]
    assert reason.startswith(f"{broker.url} refuses the subscription a/b (Unspecified error)")


@pytest.mark.slow
async def test_a_cluster_that_does_not_answer_at_quality_of_service_1_is_asked_at_0_on_a_new_connection(monkeypatch):
    monkeypatch.setattr(mqtt, "ANSWER", 1.0)  # of those that do answer, on a busy machine too
    with refusing(4, None, quality=1) as broker:
        [reason] = await asyncio.wait_for(lowered(broker, []), DEADLINE)
        assert broker.wanted[:2] == [1, 1]
        assert set(broker.wanted[2:]) == {0}
    assert reason == f"{broker.url} did not answer a subscription within 1 s; check the link and the load of the broker"


@pytest.mark.slow
async def test_a_broker_that_answers_at_no_quality_of_service_is_asked_at_both_in_turn(monkeypatch):
    monkeypatch.setattr(mqtt, "ANSWER", 0.2)
    said = []

    async def subscribe(url):
        backoff = Backoff(first=0.001, largest=0.004, outage=3.0)
        transport = LastingTransport([MqttTransport(url, lowered=said.append)], backoff=backoff)
        async with transport.join("ada") as ada:
            await ada.subscribe("a/b")

    with refusing(4, None) as broker, pytest.raises(TransportError, match=r"no steady connection for 3 s"):
        await asyncio.wait_for(subscribe(broker.url), DEADLINE)
    assert broker.wanted[:3] == [1, 1, 0]
    assert said == []


async def test_one_late_answer_lowers_nothing(monkeypatch):
    monkeypatch.setattr(mqtt, "ANSWER", 1.0)
    said = []
    with refusing(4, None, refusals=1, quality=1) as broker:
        assert await asyncio.wait_for(lowered(broker, said), DEADLINE) == []
        assert set(broker.wanted) == {1}


def test_a_broker_that_has_granted_quality_of_service_1_is_asked_for_it_again_by_the_next_connection():
    said = []
    quality = SubscriptionQuality(1, said.append)
    quality.note_grant(1)
    quality.note_silence("late")
    assert quality.qos == 1
    quality.note_silence("late again")
    assert (quality.qos, said) == (0, [])
    quality.note_grant(0)  # a node of its cluster is gone: this connection needs 0
    assert (quality.qos, said) == (1, ["late again"])
    quality.note_silence("late")
    quality.note_grant(1)
    quality.note_silence("late")
    assert (quality.qos, said) == (1, ["late again"])


def test_what_was_wanted_at_0_stays_at_0():
    quality = SubscriptionQuality(0, pytest.fail)
    for _ in range(3):
        quality.note_silence("late")
        quality.note_grant(0)
    assert quality.qos == 0


PLUGIN = next(Path("/usr/lib").glob("*/mosquitto_dynamic_security.so"), None)
RIGHTS = {"defaultACLAccess": dict.fromkeys(("publishClientSend", "publishClientReceive", "unsubscribe"), True)}


@pytest.fixture
def guarded(tmp_path, configured_broker):
    """A mosquitto whose access list lets ada subscribe to ada/# alone; an ``acl_file`` hides refusals of these."""
    if PLUGIN is None:
        pytest.skip("mosquitto has no dynamic security")
    rights = tmp_path / "rights.json"
    control = shutil.which("mosquitto_ctrl")
    if control is None or subprocess.run([control, "dynsec", "init", rights, "ada", "p"], check=False).returncode:
        pytest.skip("mosquitto_ctrl does not run")
    table = json.loads(rights.read_text()) | RIGHTS
    table["defaultACLAccess"]["subscribe"] = False
    table["roles"] = [
        {"rolename": "own", "acls": [{"acltype": "subscribePattern", "topic": "ada/#", "priority": 0, "allow": True}]}
    ]
    table["clients"][0]["roles"] = [{"rolename": "own"}]
    rights.write_text(json.dumps(table))
    for file in (tmp_path, *tmp_path.parents, rights):
        with contextlib.suppress(PermissionError):
            file.chmod(file.stat().st_mode | 0o055)  # mosquitto gives up root
    lines = [f"plugin {PLUGIN}", f"plugin_opt_config_file {rights}"]
    with configured_broker(*lines, replace={"allow_anonymous true": "allow_anonymous false"}) as broker:
        yield broker.url.replace("mqtt://", "mqtt://ada:p@")


@pytest.mark.parametrize(("version", "kind"), [(4, TransportError), (5, RefusedError)])
async def test_a_real_access_list_is_final_where_mqtt_5_says_so_and_one_of_two_causes_where_not(guarded, version, kind):
    async def scenario():
        transport = LastingTransport([MqttTransport(guarded, version=version)], backoff=SHORT)
        async with transport.join("ada") as ada:
            await ada.subscribe("ada/news")
            await ada.publish("ada/news", b"x")
            assert (await anext(ada)).data == b"x"
            await ada.subscribe("bob/news")

    with pytest.raises(
        kind, match=r"refuses the subscription bob/news \((Not authorized|Unspecified error)\)"
    ) as caught:
        await asyncio.wait_for(scenario(), DEADLINE)
    assert ("or it is busy" in str(caught.value)) == (version == 4)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(0x80, BusyError), (0, RefusedError)],
    ids=["refused at 1", "granted at 0"],
)
async def test_a_session_that_the_broker_keeps_is_never_used_without_acknowledgements(code, kind):
    with refusing(4, code, quality=1) as broker:
        transport = MqttTransport(broker.url, kept=True)
        for _ in range(2):
            async with transport.join("ada") as ada:
                with pytest.raises(kind):
                    await asyncio.wait_for(ada.subscribe("a/b"), DEADLINE)
        assert broker.wanted == [1, 1]


@pytest.mark.parametrize("options", [{"version": 5}, {"qos": 0}])
def test_a_session_that_the_broker_keeps_needs_one_version_and_quality(options):
    with pytest.raises(BrokerError, match="a session that the broker keeps needs version 4 and qos 1"):
        MqttTransport("mqtt://localhost", kept=True, **options)
